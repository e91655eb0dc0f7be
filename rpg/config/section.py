"""What every section of a configuration shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True)
class Kind:
    """What a field is for; it stands in the field's annotation, and holds for all fields below it that say nothing else."""

    name: str


TRAINS = Kind("trains")
"""Part of the run's identity: another value is another run. A field that says nothing is of this kind."""
BY_CONTENT = Kind("by content")
"""A place of data: what lies there is part of the identity (by its digest), its name is not."""
EVALUATES = Kind("evaluates")
"""Part of the identity of an evaluation: another value has the checkpoints that are there evaluated anew."""
ADDS = Kind("adds evaluations")
"""Adds evaluations to the same run; samples that are drawn already are kept."""
OPERATES = Kind("operates")
"""Memory, threads, places, limits: no part of any identity. Changing it goes on with the same run."""


class Section(BaseModel):
    """Base of every section: frozen, and a misspelt field is an error rather than a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


def default_type(default: str) -> BeforeValidator:
    """A section of a union that names no `type` is of the default one: `optimizer: {learning_rate: 1e-3}`."""
    return BeforeValidator(lambda v: {"type": default, **v} if isinstance(v, dict) and "type" not in v else v)


def registered(what: str, declared: Iterable[object], known: Iterable[object], place: str) -> None:
    """Raises RuntimeError where the sections of the configuration and the registry at `place` do not agree."""
    for name in set(declared) ^ set(known):
        shown = getattr(name, "__name__", repr(name))
        raise RuntimeError(
            f"{what} {shown} stands in only one of rpg/config and {place}: it belongs into both"
        )


def kinds_of(union: Any) -> dict[str, Any]:
    """`type` -> section, of an annotated union of sections."""
    members = get_args(get_args(union)[0]) or (get_args(union)[0],)
    return {get_args(member.model_fields["type"].annotation)[0]: member for member in members}
