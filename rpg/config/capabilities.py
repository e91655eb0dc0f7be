"""What each value of a configuration can reach. From somebody who is not trusted with the machine
(a form), numbers, choices and names are taken as they are, paths and addresses if they are allowed,
code and what is not declared never.

Numbers and choices are known by their types; every other text is declared in its field's annotation
(rpg.config.section).
"""

from collections.abc import Iterable, Iterator
from inspect import isclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from rpg.catalogue.schema import models_in
from rpg.config import verl_keys
from rpg.config.section import ADDRESS, CHOICE, CODE, NAME, NUMBER, PATH, Capability

_ASCENDING = (NUMBER, CHOICE, NAME, PATH, ADDRESS, CODE, None)
VERL = ["backend", "verl"]  # the field whose keys are verl's


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
    return max(
        (capability(each) for each in inner if each is not ...), key=_ASCENDING.index, default=None
    )


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
    models: list[type[BaseModel]] = [model]
    declared: Capability | None = None
    marked = False
    for part in parts:
        fields = [each.model_fields[part] for each in models if part in each.model_fields]
        if fields:  # else the name of an entry, or a field that does not exist
            marks = [_mark(each.metadata) for each in fields]
            reach = [
                mark or capability(each.annotation)
                for mark, each in zip(marks, fields, strict=True)
            ]
            furthest = max(reach, key=_ASCENDING.index)
            models = [inner for each in fields for inner in models_in(each.annotation)]
            if not marked:
                declared = furthest
                marked = any(marks)
            elif furthest is PATH:  # a mark holds for everything below it, but a path stays one
                declared = max(declared, PATH, key=_ASCENDING.index)
    if isinstance(value, dict | list | tuple):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from reached(model, f"{field}.{name}" if field else str(name), inner)
    elif isinstance(value, str):
        yield field, declared, value
    elif declared is CODE and value is not None:
        yield field, CODE, value
