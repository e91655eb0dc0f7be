"""`backend.verl`: settings of verl itself, by their dotted names, for which this project has no
field.

A setting that follows from one of our fields (verl_keys.yaml) is refused here and the field named,
so that a run never trains something its file does not say. Every other key is passed to verl
unchanged; `unknown` compares it with verl's own configuration if verl is installed.
"""

import importlib.util
import re
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from rpg.config.errors import nearest
from rpg.config.section import CODE, NUMBER, WORKERS, Capability
from rpg.config.yaml_lines import SafeLoader

_WORD = re.compile(r"[A-Za-z0-9_]*[A-Za-z0-9][A-Za-z0-9_]*")
_NUMBER_ELSE = re.compile(r",(true|false|\d+)\}$", re.IGNORECASE)
"""The end of a default that is another setting's value, or else a number."""
_CODE_SWITCHES = {"trust_remote_code"}
"""Booleans of verl by which the Python files beside a model's weights are executed."""
_COUNTS_WORKERS = re.compile(r"workers?$|_cpus$|nodes$|gpus|processes|threads|replicas|parallel")
"""Names of settings that say how many processes, processors or GPUs there are."""
_WIDER: dict[type, tuple[type, ...]] = {float: (float, int), list: (list, tuple)}


def derived() -> dict[str, str]:
    """Key of verl, with everything below it -> our field, or in brackets why there is none."""
    return {key: field.removeprefix("=") for key, field in _table().items()}


def taken_over(run: BaseModel) -> dict[str, Any]:
    """Key of verl -> the value of our field, where the two mean the same."""
    return {k: attrgetter(field[1:])(run) for k, field in _table().items() if field.startswith("=")}


@cache
def _table() -> dict[str, str]:
    sections = yaml.load(Path(__file__).with_suffix(".yaml").read_bytes(), Loader=SafeLoader)
    fields: dict[str, str] = {}
    _flatten(sections, "", fields)
    return {key: field for key, field in fields.items() if isinstance(field, str)}


def refused(settings: dict[str, Any]) -> str | None:
    """What is wrong with the first setting that our fields decide or that is no dotted name; None
    if there is none."""
    fields = derived() if settings else {}
    for key in settings:
        name = key.removeprefix("+")
        parts = name.split(".")
        if len(parts) < 2 or not all(map(_WORD.fullmatch, parts)):
            return (
                f"{key!r}: expected a dotted key of verl's configuration, e.g. "
                "actor_rollout_ref.rollout.max_num_seqs"
            )
        field = next((fields[at] for at in _above(parts) if at in fields), None)
        if field is not None:
            return (
                f"{key}: cannot be set "
                f"{field if field.startswith('(') else f'here; set {field} instead'}"
            )
        below = next(
            (derived_key for derived_key in fields if derived_key.startswith(f"{name}.")), None
        )
        if below is not None:
            return (
                f"{key}: contains {below}, which cannot be set here; name single settings of "
                "the section"
            )
    return None


def unknown(settings: dict[str, Any]) -> list[str]:
    """Which of these settings verl does not have, or has with another type of value; nothing if
    verl is not installed. A key with a leading `+` is one that verl's YAML lacks; it is passed on
    unchanged."""
    schema = _schema()
    if schema is None:
        return []
    lines = []
    for key, value in settings.items():
        if key.startswith("+") or _is_open(key, schema):
            continue
        if key not in schema:
            lines.append(
                f"backend.verl: verl has no setting {key!r} (got {value!r}){nearest(key, schema)}"
            )
        elif isinstance(schema[key], dict):
            if not isinstance(value, dict) or schema[key]:
                section = f"{key} is a section of verl's configuration"
                lines.append(f"backend.verl: {section}; name single settings of it")
        elif value is not None and schema[key] is not None and not _fits(value, schema[key]):
            lines.append(f"backend.verl: {key}: {value!r} (verl's default is {schema[key]!r})")
    return lines


def capability(key: str, value: Any) -> Capability | None:
    """What a setting of verl can reach. Declared are those for which its configuration has a
    number: most of its texts name files, addresses, modules or commands, and what its configuration
    lacks (null, or `+key`) may be anything.
    """
    if key.rpartition(".")[2] in _CODE_SWITCHES:
        return CODE
    default = (_schema() or {}).get(key)
    is_number = isinstance(default, bool | int | float) or _NUMBER_ELSE.search(str(default))
    return NUMBER if is_number and isinstance(value, bool | int | float) else None


def size(key: str) -> Capability:
    """The limit of a number of verl: what counts workers has theirs, all others are numbers of
    tokens, rows or bytes, or rates. Nobody needs a hundred times verl's own number of bytes."""
    last = key.rpartition(".")[2]
    if _COUNTS_WORKERS.search(last):
        return WORKERS
    default = (_schema() or {}).get(key)
    if isinstance(default, int | float) and abs(default) > NUMBER.most:
        return Capability(NUMBER.name, NUMBER.cost, 100.0 * abs(default))
    return NUMBER


def is_added(key: str) -> bool:
    """Whether the key must be given to Hydra with a leading `+`, as one that its configuration
    lacks."""
    schema = _schema()
    return key.startswith("+") or (
        schema is not None and key not in schema and _is_open(key, schema)
    )


def sections() -> list[str]:
    """The top-level sections of verl's configuration; none if verl is not installed."""
    return sorted({key.partition(".")[0] for key in _schema() or {}})


def _above(parts: list[str]) -> list[str]:
    """A key and every section that contains it."""
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _is_open(key: str, schema: dict[str, Any]) -> bool:
    """Whether it lies in a section that takes any key, such as the one that is passed on to
    vLLM."""
    return any(schema.get(at) == {} for at in _above(key.split("."))[1:])


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, str) and default.startswith("${"):
        return True  # derived from another setting
    kind = type(default)
    if kind not in (bool, int, float, str, list):
        return True
    return isinstance(value, _WIDER.get(kind, kind)) and (
        kind is bool or not isinstance(value, bool)
    )


@cache
def _schema() -> dict[str, Any] | None:
    """Every key of verl's configuration with its default, sections too ({} for those that take any
    key)."""
    spec = importlib.util.find_spec("verl")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml"
    try:
        schema: dict[str, Any] = {}
        _flatten(yaml.load(path.read_bytes(), Loader=SafeLoader), "", schema)
        return schema
    except (OSError, yaml.YAMLError, AttributeError):
        return None


def _flatten(section: dict[str, Any], prefix: str, into: dict[str, Any]) -> None:
    for name, value in section.items():
        into[prefix + str(name)] = value
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{name}.", into)
