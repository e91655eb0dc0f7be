"""What all sections of a configuration share."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

from pydantic import BeforeValidator, Field

from rpg.catalogue.components import Frozen

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True)
class Kind:
    """What a field is for. It stands in the field's annotation and applies to all fields below it
    without one."""

    name: str


TRAINS = Kind("trains")
"""Part of the run's identity: another value makes another run. This is the kind of a field without
annotation."""
BY_CONTENT = Kind("by content")
"""A path to data: the content is part of the identity (by its digest), the path is not."""
EVALUATES = Kind("evaluates")
"""Part of the identity of an evaluation: after a change, existing checkpoints are evaluated again.
"""
ADDS = Kind("adds evaluations")
"""Adds evaluations to the same run; existing samples are kept."""
OPERATES = Kind("operates")
"""Memory, threads, places, limits: not part of any identity. After a change, the same run
continues."""


@dataclass(frozen=True)
class Capability:
    """What a value can reach on the machine that reads it (rpg.config.capabilities)."""

    name: str


NUMBER = Capability("a number")
CHOICE = Capability("a choice")
NAME = Capability("a name")
"""Text that is compared, shown, or given to a model; never opened, contacted or executed."""
PATH = Capability("a path")
ADDRESS = Capability("an address")
CODE = Capability("code")


class Section(Frozen):
    """Base of every section: frozen, and a misspelt field is an error rather than a silent
    default."""

    TYPE_CAN_BE_LEFT_OUT: ClassVar[bool] = True


def default_type(default: str) -> BeforeValidator:
    """A section without a `type` gets the default type of its union: `optimizer: {learning_rate:
    1e-3}`."""
    return BeforeValidator(
        lambda v: {"type": default, **v} if isinstance(v, dict) and "type" not in v else v
    )


def listed(*kinds: type) -> BeforeValidator:
    """A single value of these kinds becomes a list of one."""
    return BeforeValidator(lambda value: [value] if isinstance(value, kinds) else value)


def registered(
    what: str, declared: Iterable[object], implemented: Iterable[object], place: str
) -> None:
    """Raises RuntimeError if the sections of the configuration and the registry at `place` do not
    agree."""
    for name in set(declared) ^ set(implemented):
        shown = getattr(name, "__name__", repr(name))
        raise RuntimeError(
            f"{what} {shown} is in only one of rpg/config and {place}; add it to the other"
        )


def kinds_of(union: Any) -> dict[str, Any]:
    """`type` -> section, for an annotated union of sections."""
    members = get_args(get_args(union)[0]) or (get_args(union)[0],)
    return {get_args(member.model_fields["type"].annotation)[0]: member for member in members}


def module_function(text: str) -> str:
    """The text itself. Raises ValueError if it is not `module:name`."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", text):
        raise ValueError(
            "expected module:function, e.g. my_rewards:score for `score` of my_rewards.py"
        )
    return text


def regular_expression(text: str) -> str:
    """The text itself. Raises ValueError if it is not a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text
