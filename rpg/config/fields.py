"""Every field of a run as a leaf with a place in the schema, its kind, its value and its default.

`dotted` is the field as people write it (`training.optimizer.learning_rate`); `place` also tells the kinds of a section
apart (`training.optimizer.adamw.learning_rate`), so that it names one field of one model. Of a list of sections the parts
are numbered in `dotted` (`reward.0.weight`), and told by their kind in `place` (`reward.correctness.weight`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from rpg.catalogue import Algorithm
from rpg.catalogue.entry import PROSE
from rpg.config.section import BY_CONTENT, TRAINS, Kind

SECTION = "section"
"""Value of a section that has only one type: that it is there at all."""
REQUIRED = object()
"""Default of a field that has none."""


@dataclass(frozen=True)
class Leaf:
    """One field. Values are plain JSON."""

    dotted: str
    place: str
    kind: Kind
    value: Any
    default: Any


def leaves(model: BaseModel, dotted: str = "", place: str = "", kind: Kind = TRAINS) -> Iterator[Leaf]:
    """The fields of a run or of a part of it, parents before children; an algorithm's prose is left out."""
    for name, field in type(model).model_fields.items():
        if (
            name == "type"
            or field.exclude
            or (isinstance(model, Algorithm) and name in PROSE and name != "name")
        ):
            continue
        value, own = getattr(model, name), kind_of(field, kind)
        at, where = _join(dotted, name), _join(place, name)
        if isinstance(value, BaseModel) and not isinstance(value, Algorithm):
            tag = _tag(value)
            ending = ".type" if tag != SECTION else ""
            yield Leaf(at + ending, where + ending, own, tag, _default(field))
        if _is_list(value) and own is not BY_CONTENT:
            yield Leaf(f"{at}.type", f"{where}.type", own, [_tag(one) for one in value], _default(field))
            for number, one in enumerate(value):
                yield from leaves(one, _join(at, str(number)), _join(where, _tag(one)), own)
        elif isinstance(value, BaseModel):
            below = where if _tag(value) == SECTION else _join(where, _tag(value))
            yield from leaves(value, at, below, own)
        else:
            yield Leaf(at, where, own, to_jsonable_python(value), _default(field))


def kind_of(field: FieldInfo, inherited: Kind) -> Kind:
    """The kind in a field's annotation, else that of the section it stands in."""
    return next((mark for mark in field.metadata if isinstance(mark, Kind)), inherited)


def _default(field: FieldInfo) -> Any:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return REQUIRED
    if _is_list(default):
        return [_tag(one) for one in default]
    return _tag(default) if isinstance(default, BaseModel) else to_jsonable_python(default)


def _is_list(value: Any) -> bool:
    """Whether it is a list of sections: the leaf is their types, and each has the fields below its place."""
    return isinstance(value, tuple) and bool(value) and all(isinstance(one, BaseModel) for one in value)


def _tag(model: BaseModel) -> str:
    return str(getattr(model, "type", SECTION))


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
