"""A run's identity: one hash of everything that affects its training.

It covers the digest of the run's data and every training field that differs from a default frozen
for the format (frozen_defaults.json). So a new field with a default changes no identity; fields
that evaluate or operate are not part of it.

A line of frozen_defaults.json never changes, whatever becomes of the default in the code: that is
what keeps the identities of finished runs. A new field gets a line in `added`, with the default it
came with (tests/config/test_identity.py asks for it); then no run that does not use it gets another
identity.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from rpg.catalogue import Algorithm
from rpg.catalogue.entry import PROSE
from rpg.config.run_spec import RunSpec
from rpg.config.section import ADDS, BY_CONTENT, EVALUATES, TRAINS, Purpose

SECTION = "section"
"""Value of a section that has only one type: that it is there at all."""
REQUIRED = object()
"""Default of a field that has none."""


class Leaf(NamedTuple):
    """One field of a run. Values are plain JSON.

    `dotted` is the field as people write it (`training.optimizer.learning_rate`); `place` also
    tells the kinds of a section apart (`training.optimizer.adamw.learning_rate`), so that it names
    one field of one model. Of a list of sections the parts are numbered in `dotted`
    (`reward.0.weight`), and told by their kind in `place` (`reward.correctness.weight`).
    """

    dotted: str
    place: str
    purpose: Purpose
    value: Any
    default: Any


def leaves(
    model: BaseModel, dotted: str = "", place: str = "", purpose: Purpose = TRAINS
) -> Iterator[Leaf]:
    """The fields of a run or of a part of it, parents before children; an algorithm's prose is left
    out."""
    for name, mark, default in _fields(type(model), purpose):
        value = getattr(model, name)
        at = _join(dotted, name)
        where = _join(place, name)
        if isinstance(value, BaseModel) and not isinstance(value, Algorithm):
            ending = ".type" if (tag := _tag(value)) != SECTION else ""
            yield Leaf(at + ending, where + ending, mark, tag, default)
        if _is_list(value) and mark is not BY_CONTENT:
            yield Leaf(f"{at}.type", f"{where}.type", mark, [_tag(item) for item in value], default)
            for number, item in enumerate(value):
                yield from leaves(item, _join(at, str(number)), _join(where, _tag(item)), mark)
        elif isinstance(value, BaseModel):
            below = where if _tag(value) == SECTION else _join(where, _tag(value))
            yield from leaves(value, at, below, mark)
        else:
            yield Leaf(at, where, mark, to_jsonable_python(value), default)


@cache
def _fields(section: type[BaseModel], purpose: Purpose) -> list[tuple[str, Purpose, Any]]:
    """Name, purpose and default of each field, without a section's type and an algorithm's
    prose."""
    left_out = {"type", *PROSE} - {"name"} if issubclass(section, Algorithm) else {"type"}
    fields = [
        (name, f) for name, f in section.model_fields.items() if not (f.exclude or name in left_out)
    ]
    return [(name, purpose_of(field, purpose), _default(field)) for name, field in fields]


def purpose_of(field: FieldInfo, inherited: Purpose) -> Purpose:
    """The purpose in a field's annotation, else that of the section it stands in."""
    return next((mark for mark in field.metadata if isinstance(mark, Purpose)), inherited)


def _default(field: FieldInfo) -> Any:
    default = field.get_default()
    if default is PydanticUndefined:
        return REQUIRED
    if _is_list(default):
        return [_tag(item) for item in default]
    return _tag(default) if isinstance(default, BaseModel) else to_jsonable_python(default)


def _is_list(value: Any) -> bool:
    """Whether it is a list of sections: the leaf is their types, and each has the fields below its
    place."""
    return (
        isinstance(value, tuple)
        and bool(value)
        and all(isinstance(item, BaseModel) for item in value)
    )


def _tag(model: BaseModel) -> str:
    return str(getattr(model, "type", SECTION))


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


_RECORD: dict[str, Any] = json.loads(
    Path(__file__).with_name("frozen_defaults.json").read_text("utf-8")
)

FORMAT: int = _RECORD["format"]
ADDED: dict[str, Any] = _RECORD["added"]
"""Defaults of fields that came after the format, by place."""
ADDED_TO_LATER_KINDS: dict[str, Any] = _RECORD["added_to_later_kinds"]
"""Defaults of fields that kinds of sections without frozen defaults (`is_frozen_kind`) got after
runs had used them."""
DEFAULTS: dict[str, Any] = _RECORD["defaults"]
"""Place in the schema -> default. A field without a default is not listed."""
ALGORITHMS: dict[str, dict[str, Any]] = _RECORD["algorithms"]
"""Algorithm -> the settings of its entry in the catalogue."""

FROZEN = {**ADDED, **DEFAULTS}
_SECTIONS = {
    ".".join(place.split(".")[:end]) for place in FROZEN for end in range(1, place.count(".") + 1)
}


def is_frozen_kind(place: str) -> bool:
    """Whether the section of a field was there when defaults were frozen, or has been added to the
    file since.

    A kind of section that came later (a task type, a back end) has no runs whose identity is to be
    kept: all its fields count, whatever their default becomes, and no line is needed, but for
    fields that it got after runs had used it (`added_to_later_kinds`). So do all settings of a new
    algorithm.
    """
    section = place.rpartition(".")[0]
    return not section or section in _SECTIONS


SCHEDULE = "training.optimizer.schedule"
STEPS = "training.steps"
"""Part of a run's identity; but a longer run continues a shorter one with the same root."""


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no blanks, shortest round-trip floats."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def identity_record(spec: RunSpec, data_digest: str) -> dict[str, Any]:
    """The record of which a run's identity is the hash: {format, data, settings: {dotted field:
    value}}."""
    settings = _settings([leaf for leaf in leaves(spec) if leaf.purpose is TRAINS])
    return {"format": FORMAT, "data": data_digest, "settings": settings}


def identity(spec: RunSpec, data_digest: str) -> str:
    """Hash of a run's training settings and data: 16 hexadecimal digits. Data count by content, not
    by name."""
    return digest(identity_record(spec, data_digest))


def root(spec: RunSpec, data_digest: str) -> str:
    """The identity without the number of steps: runs that share it are the same run up to the
    shorter one's end.

    In both back ends, nothing before a step depends on how many steps follow: rates are constant
    after the warm-up, and schedules of an algorithm have their own lengths. Only a learning rate
    that falls to the end depends on it: then the root is the identity.
    """
    record = identity_record(spec, data_digest)
    if SCHEDULE in record["settings"]:
        return digest(record)
    return digest(
        {**record, "settings": {k: v for k, v in record["settings"].items() if k != STEPS}}
    )


def evaluation_identity(spec: RunSpec) -> str:
    """Hash of how a run's checkpoints are evaluated, without how often, on what and with how many
    samples."""
    return digest(_settings([leaf for leaf in leaves(spec) if leaf.purpose is EVALUATES]))


def results_identity(spec: RunSpec, data_digest: str) -> str:
    """Hash of all that decides what a run comes to: its identity, and how, when, on what and with
    how many samples it is evaluated."""
    evaluation = _settings([leaf for leaf in leaves(spec) if leaf.purpose in (EVALUATES, ADDS)])
    return digest({"run": identity(spec, data_digest), "evaluation": evaluation})


def identities(spec: RunSpec, data_digest: str) -> dict[str, Any]:
    """What a manifest says about who its run is."""
    return {
        "run_id": identity(spec, data_digest),
        "root_id": root(spec, data_digest),
        "identity": identity_record(spec, data_digest),
        "evaluation_id": evaluation_identity(spec),
        "samples": spec.evaluation.samples_per_problem,
    }


def frozen_dump(section: BaseModel, place: str = "") -> dict[str, Any]:
    """A section as plain data, without fields that came after the defaults were frozen and have
    their default.

    `place` is the section's place in the schema, e.g. `task.chain`.
    """
    data: dict[str, Any] = section.model_dump(mode="json")
    for leaf in reversed(list(leaves(section, place=place))):
        new = leaf.default is not REQUIRED and leaf.place not in DEFAULTS
        if new and _same(leaf, ADDED.get(leaf.place, leaf.default)):
            _remove(data, leaf.dotted.removesuffix(".type"))
    return data


def _settings(fields: list[Leaf]) -> dict[str, Any]:
    """The fields that differ from their frozen default."""
    entry = next(
        (ALGORITHMS.get(leaf.value, {}) for leaf in fields if leaf.place == "algorithm.name"), {}
    )
    types = [leaf for leaf in fields if leaf.dotted.endswith(".type")]
    kinds = {leaf.dotted.removesuffix(".type"): leaf.value for leaf in types}
    return {
        leaf.dotted: leaf.value for leaf in fields if not _same(leaf, _frozen(leaf, entry, kinds))
    }


def _frozen(leaf: Leaf, entry: dict[str, Any], kinds: dict[str, Any]) -> Any:
    """The default to compare with: of the algorithm's entry, else of the place in the schema, else
    (a new field) its own."""
    inside = leaf.dotted.removeprefix("algorithm.")
    if inside != leaf.dotted and inside in entry:
        section = inside.rpartition(".")[0]
        tag = entry.get(f"{section}.type", entry.get(section))
        if (
            not section
            or leaf.dotted.endswith(".type")
            or kinds.get(f"algorithm.{section}", SECTION) == tag
        ):
            return entry[inside]
    if not is_frozen_kind(leaf.place):
        return ADDED_TO_LATER_KINDS.get(leaf.place, REQUIRED)
    return FROZEN.get(leaf.place, leaf.default)


def _same(leaf: Leaf, default: Any) -> bool:
    if type(leaf.value) is not type(default) or leaf.value is default:  # most: without their texts
        return leaf.value is default
    return canonical_json(leaf.value) == canonical_json(default)


def _remove(data: dict[str, Any], dotted: str) -> None:
    """Drop a field; a section only if nothing but its type is left."""
    *parents, last = dotted.split(".")
    for part in parents:
        data = data[int(part)] if isinstance(data, list) else data[part]
    if not isinstance(data.get(last), dict) or data[last].keys() <= {"type"}:
        data.pop(last, None)


def digest(value: Any) -> str:
    """16 hexadecimal digits for a value of JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]
