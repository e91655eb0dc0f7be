"""What all sections of a configuration share."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

from pydantic import BeforeValidator, Field

from rpg.catalogue.components import Frozen

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True)
class Purpose:
    """What a field is for. It stands in the field's annotation and applies to all fields below it
    without one."""

    name: str


TRAINS = Purpose("trains")
"""Part of the run's identity: another value makes another run. This is the purpose of a field
without annotation."""
BY_CONTENT = Purpose("by content")
"""A path to data: the content is part of the identity (by its digest), the path is not."""
EVALUATES = Purpose("evaluates")
"""Part of the identity of an evaluation: after a change, existing checkpoints are evaluated again.
"""
ADDS = Purpose("adds evaluations")
"""Adds evaluations to the same run; existing samples are kept."""
OPERATES = Purpose("operates")
"""Memory, threads, places, limits: not part of any identity. After a change, the same run
continues."""


@dataclass(frozen=True)
class Capability:
    """What a value can reach on the machine that reads it (rpg.config.capabilities)."""

    name: str
    cost: str = ""
    """What a large value takes: the name of a limit."""
    most: float = math.inf
    """The largest value that a form may give, where the server's limits.yaml says nothing else."""


NUMBER = Capability("a number", cost="numbers", most=1e9)
"""Of no size, e.g. a rate or a weight."""
CHOICE = Capability("a choice")
NAME = Capability("a name")
"""Text that is compared, shown, or given to a model; never opened, contacted or executed."""
PATH = Capability("a path")
ADDRESS = Capability("an address")
CODE = Capability("code")


def _size(cost: str, most: int) -> Capability:
    return Capability(NUMBER.name, cost, most)


SEED = _size("seed", 2**31 - 1)
STEPS = _size("steps", 1_000_000)
WARM_START_STEPS = _size("warm_start_steps", 1_000_000)
INTERVAL = _size("interval", 1_000_000_000)
"""Steps from one time to the next, or of a schedule: a large one takes nothing."""
ROUNDS = _size("rounds", 1_000)
"""How often something is done again: passes, extra rounds, attempts, calls."""
SAMPLES_PER_STEP = _size("samples_per_step", 65_536)
SAMPLES_PER_PROBLEM = _size("samples_per_problem", 4_096)
PROBLEMS = _size("problems", 200_000)
TOKENS = _size("tokens", 131_072)
"""Of a prompt, and of a response."""
TOKENS_AT_ONCE = _size("tokens_at_once", 16_777_216)
ROWS_AT_ONCE = _size("rows_at_once", 65_536)
WIDTH = _size("width", 65_536)
"""Of a model's matrices; its parameters have a limit, too."""
WORKERS = _size("workers", 1_024)
"""GPUs or processes that one run may ask a cluster for."""
PROCESSES = _size("processes", 256)
"""Processes and threads on this machine."""
GIGABYTES = _size("gigabytes", 4_096)
SECONDS = _size("seconds", 86_400)
CHARACTERS = _size("characters", 20_000)
"""Of a text."""
ENTRIES = _size("entries", 1_000)
"""Of a list or mapping."""
SIZES = (
    NUMBER,
    SEED,
    STEPS,
    WARM_START_STEPS,
    INTERVAL,
    ROUNDS,
    SAMPLES_PER_STEP,
    SAMPLES_PER_PROBLEM,
    PROBLEMS,
    TOKENS,
    TOKENS_AT_ONCE,
    ROWS_AT_ONCE,
    WIDTH,
    WORKERS,
    PROCESSES,
    GIGABYTES,
    SECONDS,
    CHARACTERS,
    ENTRIES,
)
"""What limits.yaml may set another limit for."""


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
