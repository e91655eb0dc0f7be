"""What every task type has to say about its problems, besides its section in rpg.config.task."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from rpg.config.model import SupervisedStart, WarmStart
from rpg.config.task import Verifier
from rpg.tasks.problems import DataError, Given, Problem, Splits

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
        """(prompt, response) in the style of the initial policy."""


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


@dataclass
class ProblemDemonstrations:
    """The demonstrations in the training problems; some of them are held out."""

    source: str
    """What a message calls the training problems."""
    verifier: Verifier
    splits: Splits
    held_out: list[Problem] = field(init=False)

    def __post_init__(self) -> None:
        shown = [problem for problem in self.splits.train if problem.demonstration]
        if len(shown) < 2:
            raise DataError(
                f"{self.source}: field demonstration is missing: a model is warm-started on full responses; add the "
                "column, set model.warm_start to null, or use a pretrained model without it"
            )
        random.Random("warm start held-out").shuffle(shown)
        count = max(1, min(HELD_OUT, len(shown) // 10))
        self.held_out, self._shown = shown[:count], shown[count:]

    def characters(self) -> set[str]:
        return problem_characters(self.splits)

    def longest_response(self) -> int:
        return max(len(problem.demonstration or "") for problem in self.held_out + self._shown)

    def ability(self, rng: random.Random) -> tuple[Given, str]:
        problem = rng.choice(self._shown)
        return problem.given(), problem.demonstration or ""

    def behaviour(self, rng: random.Random, warm: WarmStart | SupervisedStart) -> tuple[Given, str]:
        problem = rng.choice(self._shown)
        # There is no general way to corrupt a step of a demonstration.
        full = rng.random() < warm.scratchpad_fraction
        return problem.given(), problem.demonstration or "" if full else self.verifier.written(problem.answer)


def problem_characters(splits: Splits) -> set[str]:
    """All characters that occur in prompts, answers and demonstrations."""
    problems = [*splits.train, *(p for held_out in splits.benchmarks.values() for p in held_out)]
    messages = (m["content"] for p in problems for m in p.messages)
    fields = (text for p in problems for text in (p.prompt, p.answer, p.demonstration or ""))
    return {c for text in itertools.chain(fields, messages) for c in text}
