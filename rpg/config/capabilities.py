"""What each value of a configuration can reach. From somebody who is not trusted with the machine
(a form), numbers, choices and names are taken as they are, paths and addresses if they are allowed,
code and what is not declared never.

Numbers and choices are known by their types; every other text is declared in its field's annotation
(rpg.config.section).
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from inspect import isclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from rpg.catalogue.schema import models_in
from rpg.config import verl_keys
from rpg.config.section import (
    ADDRESS,
    CHARACTERS,
    CHOICE,
    CODE,
    ENTRIES,
    NAME,
    NUMBER,
    PATH,
    Capability,
)

_ASCENDING = (NUMBER, CHOICE, NAME, PATH, ADDRESS, CODE)
_NAMES = [each.name for each in _ASCENDING]
VERL = ["backend", "verl"]  # the field whose keys are verl's


def _reach(mark: Capability | None) -> tuple[int, float]:
    """Orders capabilities by how far they reach; of numbers, the one with the lowest limit counts
    most. Text that is not declared comes last."""
    if mark is None:
        return len(_ASCENDING), 0.0
    return _NAMES.index(mark.name), -mark.most


def capability(annotation: Any) -> Capability | None:
    """The furthest that a value of this type can reach; None for text that is not declared."""
    if hasattr(annotation, "__metadata__"):
        return _mark(annotation.__metadata__) or capability(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return CHOICE
    if isclass(annotation) and issubclass(annotation, (bool, int, float, type(None))):
        return NUMBER
    if isclass(annotation) and issubclass(annotation, (Path, BaseModel)):
        return PATH if issubclass(annotation, Path) else CHOICE  # a section by its type
    inner = get_args(annotation)[
        get_origin(annotation) is dict :
    ]  # the keys of a mapping are names
    return max((capability(each) for each in inner if each is not ...), key=_reach, default=None)


def _mark(metadata: Iterable[object]) -> Capability | None:
    return next((mark for mark in metadata if isinstance(mark, Capability)), None)


def reached(
    model: type[BaseModel], field: str, value: Any
) -> Iterator[tuple[str, Capability | None, Any]]:
    """(dotted field, capability, value) of everything that `value` would set at the dotted name
    `field`, before it is validated. Where several kinds of a section have a field of this name, the
    one that reaches furthest counts."""
    parts = field.split(".") if field else []
    if parts[:2] == VERL and len(parts) > 2:
        key = ".".join(parts[2:])
        yield field, verl_keys.capability(key, value), value
        return
    declared = _declared(model, field)[0]
    if isinstance(value, dict | list | tuple):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from reached(model, f"{field}.{name}" if field else str(name), inner)
    elif isinstance(value, str):
        yield field, declared, value
    elif declared is CODE and value is not None:
        yield field, CODE, value


def sizes(
    model: type[BaseModel], field: str, value: Any
) -> Iterator[tuple[str, Capability, float]]:
    """(dotted field, capability with its limit, size) of everything that `value` would set at the
    dotted name `field`, before it is validated: numbers, the lengths of texts, of lists and of
    mappings. A text that says a number may become one."""
    if isinstance(value, dict | list | tuple):
        yield field, ENTRIES, len(value)
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from sizes(model, f"{field}.{name}" if field else str(name), inner)
    elif isinstance(value, str):
        yield field, CHARACTERS, len(value)
        with suppress(ValueError):
            yield field, _limit(model, field), float(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield field, _limit(model, field), value


def _limit(model: type[BaseModel], field: str) -> Capability:
    """The limit of a number at this dotted name."""
    parts = field.split(".")
    if parts[:2] == VERL and len(parts) > 2:
        return verl_keys.size(".".join(parts[2:]))
    return _declared(model, field)[1]


def _limits(annotation: Any, metadata: Iterable[object] = ()) -> Iterator[Capability]:
    """The limits that are declared for numbers anywhere in a type."""
    marks = [*metadata, *getattr(annotation, "__metadata__", ())]
    yield from (mark for mark in marks if isinstance(mark, Capability) and mark.cost)
    for inner in get_args(annotation):
        yield from _limits(inner)


@lru_cache(maxsize=4_096)
def _declared(model: type[BaseModel], field: str) -> tuple[Capability | None, Capability]:
    """How far a text at the dotted name `field` reaches, and the limit of a number there."""
    parts = field.split(".") if field else []
    models: list[type[BaseModel]] = [model]
    declared: Capability | None = None
    marked = False
    limit = NUMBER
    for part in parts:
        fields = [each.model_fields[part] for each in models if part in each.model_fields]
        if fields:  # else the name of an entry, or a field that does not exist
            marks = [_mark(each.metadata) for each in fields]
            reach = [
                mark or capability(each.annotation)
                for mark, each in zip(marks, fields, strict=True)
            ]
            furthest = max(reach, key=_reach)
            models = [inner for each in fields for inner in models_in(each.annotation)]
            limits = [mark for each in fields for mark in _limits(each.annotation, each.metadata)]
            limit = min(limits, key=lambda mark: mark.most, default=NUMBER)
            if not marked:
                declared = furthest
                marked = any(marks)
            elif furthest is PATH:  # a mark holds for everything below it, but a path stays one
                declared = max(declared, PATH, key=_reach)
    return declared, limit
