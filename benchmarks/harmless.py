"""Changes of the code and of a set that change no number: a night stays green."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

Change = Callable[[Path], None]
"""Changes a tree: a copy of the source, with the set in configs/small."""
SET = Path("configs") / "small"


def replaced(file: str, original: str, replacement: str) -> Change:
    """One text of a file is another one."""

    def change(tree: Path) -> None:
        path = tree / file
        text = path.read_text("utf-8")
        if original not in text:
            raise ValueError(f"{file} has no {original!r}; list another change")
        path.write_text(text.replace(original, replacement, 1), "utf-8")

    return change


def appended(file: str, lines: str) -> Change:
    """A file ends with more lines."""

    def change(tree: Path) -> None:
        with (tree / file).open("a", encoding="utf-8") as out:
            out.write(lines)

    return change


def module_renamed(tree: Path) -> None:
    """`rpg/losses/kl_terms.py` is called `kl_parts`, wherever it is named."""
    (tree / "rpg" / "losses" / "kl_terms.py").rename(tree / "rpg" / "losses" / "kl_parts.py")
    for path in [*(tree / "rpg").rglob("*.py"), *(tree / "flows").rglob("*.py")]:
        text = path.read_text("utf-8")
        if "kl_terms" in text:
            path.write_text(text.replace("kl_terms", "kl_parts"), "utf-8")


def sections_reordered(tree: Path) -> None:
    """The sections of a sweep's runs, and their fields, stand in another order."""
    path = tree / SET / "optimizers.yaml"
    content = yaml.safe_load(path.read_text("utf-8"))
    content["run"] = _reversed(content["run"])
    path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")


def _reversed(value: object) -> object:
    if not isinstance(value, dict):
        return value
    names = list(value)
    if "tiers" in names:  # the order of tiers counts
        names = ["tiers"]
        names += [name for name in reversed(list(value)) if name != "tiers"]
        return {name: value[name] for name in names}
    return {name: _reversed(value[name]) for name in reversed(names)}


def sweep_renamed(tree: Path) -> None:
    """The file of a sweep has another name."""
    (tree / SET / "optimizers.yaml").rename(tree / SET / "renamed.yaml")


def sweep_added(tree: Path) -> None:
    """A sweep more, which shares data and initial model with another one."""
    text = (tree / SET / "optimizers.yaml").read_text("utf-8")
    text = text.replace("name: optimizers", "name: brand-new").replace("dapo", "rloo")
    (tree / SET / "brand-new.yaml").write_text(text, "utf-8")


_CLASS = "class Training(Section):\n"
_FIELD = "    max_grad_norm: Annotated[float, Field(gt=0)] | None = 1.0\n"
_LOOP = "rpg/backends/local/training_loop.py"
HARMLESS: dict[str, Change] = {
    "a metric": replaced(
        _LOOP,
        "append_metrics(folder, attempt, metrics)",
        'append_metrics(folder, attempt, {**metrics, "brand_new_metric": 0.5 * step})',
    ),
    "a field with a default": replaced(
        "rpg/config/training.py", _FIELD, f"    brand_new_field: float = 0.5\n{_FIELD}"
    ),
    "a docstring": replaced("rpg/losses/policy_loss.py", '"""', '"""Another first sentence. '),
    "fields in another order": replaced(
        "rpg/config/training.py",
        _FIELD + "    entropy_coeff: Annotated[float, Field(ge=0)] = 0.0\n",
        "    entropy_coeff: Annotated[float, Field(ge=0)] = 0.0\n" + _FIELD,
    ),
    "a base class": replaced(
        "rpg/config/training.py",
        _CLASS,
        f"class _Limits(Section):\n{_FIELD}\n\n{_CLASS.replace('Section', '_Limits')}",
    ),
    "another line in the log": replaced(_LOOP, "continuing after step", "going on after step"),
    "a module with another name": module_renamed,
    "a view of the database": appended(
        "rpg/store/views.sql",
        "\n-- Runs, counted\nCREATE OR REPLACE VIEW brand_new AS\n"
        "SELECT sweep, count(*) AS n FROM runs GROUP BY sweep;\n",
    ),
    "an algorithm": appended(
        "rpg/catalogue/entries.yaml",
        "- <<: *jsd\n  name: brand-new\n  display_name: Brand new\n  description: As OPD-JSD.\n",
    ),
    "sections in another order": sections_reordered,
    "a sweep file with another name": sweep_renamed,
    "a new sweep": sweep_added,
}
