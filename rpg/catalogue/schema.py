"""What pydantic models say of themselves: the models that a field can hold, its types, and its path
as people write it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel

_WRONG_TYPES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be an integer",
    "int_parsing": "must be an integer",
    "int_type": "must be an integer",
    "list_type": "must be a list",
    "model_attributes_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
"""Pydantic's kinds of errors whose own messages speak of Python's types, not of a file's."""


def complaint(error: Mapping[str, Any]) -> str:
    """What is wrong with a value, by an entry of `ValidationError.errors()`: `must be a list`."""
    own = str(error["msg"]).removeprefix("Value error, ")
    return _WRONG_TYPES.get(error["type"], own.replace("Input should be", "must be", 1))


def written(model: type[BaseModel], location: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """The path as written in a file, without the tag that pydantic inserts after the name of a
    union; and the names of the fields that could stand at its end."""
    candidates = [model]
    path = []
    union = False
    siblings: list[str] = []
    for part in location:
        if union and any(part in tags_of(candidate) for candidate in candidates):
            candidates = [c for c in candidates if part in tags_of(c)]
            union = False
            continue
        path.append(str(part))
        siblings = list(
            dict.fromkeys(name for candidate in candidates for name in candidate.model_fields)
        )
        fields = [c.model_fields[part] for c in candidates if part in c.model_fields]
        if fields:  # else a key or an index within the field
            candidates = [inner for field in fields for inner in models_in(field.annotation)]
            union = bool(candidates)
    return path, siblings


def tags_of(model: type[BaseModel]) -> tuple[object, ...]:
    field = model.model_fields.get("type")
    return getattr(field.annotation, "__args__", ()) if field else ()


def models_in(annotation: object) -> list[type[BaseModel]]:
    """The pydantic models an annotation mentions, through unions, lists and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for inner in getattr(annotation, "__args__", ()) for m in models_in(inner)]


@dataclass(frozen=True)
class SectionTypes:
    """The models that a field can hold, by `type`; None stands for the one that has no type."""

    by_type: Mapping[str | None, type[BaseModel]]
    default: str | None
    """The type that is meant where none is written."""

    def of(self, value: Mapping[str, Any]) -> Any:
        """The type of a mapping in this field, as written or meant."""
        return value.get("type", self.default)

    def model(self, name: object) -> type[BaseModel] | None:
        """The model of a type; None for what is not a type."""
        return self.by_type.get(name) if isinstance(name, str | None) else None


def section_types(model: type[BaseModel] | None, name: str) -> SectionTypes:
    """What the field `name` of a model can hold: nothing where there is no such field."""
    field = model.model_fields.get(name) if model is not None else None
    by_type: dict[str | None, type[BaseModel]] = {}
    defaults = []
    for inner in models_in(field.annotation) if field else ():
        tag = inner.model_fields.get("type")
        by_type |= dict.fromkeys(get_args(tag.annotation) if tag else [None], inner)
        if tag and not tag.is_required() and getattr(inner, "TYPE_CAN_BE_LEFT_OUT", False):
            defaults.append(tag.default)
    return SectionTypes(by_type, defaults[0] if defaults else None)


def has_free_keys(model: type[BaseModel] | None, name: str) -> bool:
    """Whether the field `name` of a model is a mapping whose keys are anybody's, with values that
    have no fields."""
    field = model.model_fields.get(name) if model is not None else None
    if field is None or models_in(field.annotation):
        return False
    return any(get_origin(each) is dict for each in (field.annotation, *get_args(field.annotation)))
