"""The page docs/configuration.md, generated from the models: `python .ci/configuration_page.py`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rpg.catalogue import Algorithm, Clip, Overlong, algorithm
from rpg.catalogue.schema import models_in
from rpg.config.identity import purpose_of
from rpg.config.run_spec import RunSpec
from rpg.config.section import BY_CONTENT, TRAINS
from rpg.config.sweep_file import SweepSpec

HEAD = Path(__file__).with_suffix(".md").read_text("utf-8")
_ALGORITHM = (
    "A name from `rpg list`, or a mapping with the `name` and overrides, e.g. "
    "`{name: rpg-urkl, beta: 0.001, clip: {low: 0.1, high: 0.1}}`. `preset: released` selects the "
    "settings of the released code where they differ from the paper. The default of each field is "
    "the catalogue's entry for that name."
)


def page() -> str:
    """The whole page as Markdown."""
    out = [HEAD, "## A run\n"]
    for name, field in RunSpec.model_fields.items():
        models = models_in(field.annotation)
        if not models:
            about = f"A whole number from 0; default `{field.default}`. The run's random seed."
            out.append(f"### `{name}`\n\n{about}\n")
        elif name == "algorithm":
            out.append(f"### `{name}`\n\n{_ALGORITHM}\n\n{_table(_algorithm_rows())}\n")
        else:
            out.append(f"### `{name}`\n")
            out += [_section(model) for model in models]
    out.append(f"## A sweep\n\n{_about(SweepSpec)}")
    return "\n".join(out).rstrip() + "\n"


def _section(model: type[BaseModel]) -> str:
    parts = [f"{_about(model)}\n"]
    for name, field in model.model_fields.items():
        parts += [
            f"#### `{name}`: {inner.__name__}\n\n{_about(inner)}\n"
            for inner in models_in(field.annotation)
        ]
    return "\n".join(parts)


def _about(model: type[BaseModel]) -> str:
    """What a section is, and the table of its fields."""
    kind = get_args(model.model_fields["type"].annotation) if "type" in model.model_fields else ()
    text = inspect.cleandoc(model.__doc__ or model.__name__)
    text = text.replace("``", "`").replace("\n", " ").replace("  ", "\n\n")
    return (f"**`type: {kind[0]}`**: " if kind else "") + f"{text}\n\n{_table(_rows(model))}"


def _rows(model: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    texts = _texts(model)
    for name, field in model.model_fields.items():
        if name == "type":
            continue
        default = field.get_default(call_default_factory=True)
        if default is PydanticUndefined:
            shown = "required"
        elif isinstance(default, BaseModel):
            shown = "see below"
        else:
            shown = f"`{_yaml(default)}`".replace("\n", "\\n")  # a row of the table is a line
        yield name, shown, f"{_choices(field.annotation)}{texts.get(name, '')}{_purpose(field)}"


def _texts(model: type[BaseModel]) -> dict[str, str]:
    """The text below each field, which the models themselves do not read: that would take every
    command's start a moment."""
    texts = {}
    for section in reversed(model.__mro__):
        if issubclass(section, BaseModel) and section is not BaseModel:
            [definition] = ast.parse(inspect.getsource(section)).body
            for field, below in pairwise(definition.body):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                    texts[field.target.id] = inspect.cleandoc(ast.literal_eval(below.value))
    return texts


def _purpose(field: FieldInfo) -> str:
    """What the field is for, unless it affects training."""
    purpose = purpose_of(field, TRAINS)
    return "" if purpose in (TRAINS, BY_CONTENT) else f" *{purpose.name.capitalize()}.*"


def _choices(annotation: object) -> str:
    """`cpu` or `cuda`: the accepted values of a field with few."""
    if get_origin(annotation) is not Literal:
        return ""
    return " or ".join(f"`{value}`" for value in get_args(annotation)) + ". "


def _algorithm_rows() -> Iterator[tuple[str, str, str]]:
    example = algorithm("rpg-reinforce-urkl").model_dump(mode="json")
    for name in algorithm("grpo").settings():
        yield (
            name,
            f"`{_yaml(example[name])}` (rpg-reinforce-urkl)",
            Algorithm.model_fields[name].description or "",
        )
    for prefix, model in (("clip", Clip), ("overlong", Overlong)):
        for name, field in model.model_fields.items():
            yield f"{prefix}.{name}", f"`{_yaml(field.default)}`", field.description or ""


def _yaml(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return str(value)


def _table(rows: Iterator[tuple[str, str, str]]) -> str:
    lines = ["| field | default | meaning |", "|---|---|---|"]
    listed = list(rows)
    if not listed:
        return "It has no fields of its own."
    for name, default, meaning in listed:
        text = " ".join(meaning.split()).replace("|", "\\|").replace("``", "`")
        lines.append(f"| `{name}` | {default} | {text} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
