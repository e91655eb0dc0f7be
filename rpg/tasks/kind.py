"""What every task type has to say about its problems, besides its section in rpg.config.task."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rpg.config.model import SupervisedStart, WarmStart
from rpg.config.task import Verifier
from rpg.tasks.problems import Given, Problem, Splits

HELD_OUT = 64
"""Problems per tier (or file) on which the ability is measured; they are in no benchmark and in no demonstration."""


class Demonstrations(Protocol):
    """What a model is warm-started on: demonstrations in two styles.

    *Ability*: full, right responses. *Behaviour*: mostly bare answers, which leaves reinforcement learning an ability
    that is there to sharpen.
    """

    held_out: list[Problem]

    def characters(self) -> set[str]:
        """All characters that prompts and responses can have."""

    def longest_response(self) -> int:
        """Characters of the longest full response."""

    def ability(self, rng: random.Random) -> tuple[Given, str]:
        """(prompt, response) with a full, right response."""

    def behaviour(self, rng: random.Random, warm: WarmStart | SupervisedStart) -> tuple[Given, str]:
        """(prompt, response) as the initial policy shall behave."""


@dataclass(frozen=True)
class TaskKind:
    """One task type; every function takes its section, and raises DataError for problems that cannot be used.

    problems: training problems and held-out benchmarks. data: what stands in the digest of the data over the fields
    of the section: digests of what its files hold, or the version of the code that makes the problems. verifier: how
    responses are checked. demonstrations: of its problems, for the warm start of a model made from its config.
    """

    problems: Callable[[Any], Splits]
    data: Callable[[Any], dict[str, Any]]
    verifier: Callable[[Any], Verifier]
    demonstrations: Callable[[Any, Splits], Demonstrations]
    characters: Callable[[Splits], set[str]] | None = None
    """All that prompts and responses can be written with; None: those that occur in the problems."""
