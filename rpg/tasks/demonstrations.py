"""What a model made from its config is warm-started on: demonstrations in two styles.

*Ability*: full, right scratchpads. *Behaviour*: mostly bare answers, which leaves reinforcement learning an ability
that is there to sharpen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Protocol

from rpg.config.model import WarmStart
from rpg.config.task import ChainTask, FileTask
from rpg.tasks import chain
from rpg.tasks.problems import DataError, Problem, Splits

_HELD_OUT = 64
"""Problems per tier (or file) on which the ability is measured; they are in no benchmark and in no demonstration."""


class Demonstrations(Protocol):
    held_out: list[Problem]

    def characters(self) -> set[str]:
        """All characters that prompts and responses can have."""

    def longest_response(self) -> int:
        """Characters of the longest full response."""

    def ability(self, rng: random.Random) -> tuple[str, str]:
        """(prompt, response) with a full, right response."""

    def behaviour(self, rng: random.Random, warm: WarmStart) -> tuple[str, str]:
        """(prompt, response) as the initial policy shall behave."""


def demonstrations(task: ChainTask | FileTask, splits: Splits) -> Demonstrations:
    """Demonstrations of a task.

    Raises:
        DataError: a file task without the column `demonstration`.
    """
    if isinstance(task, ChainTask):
        return ChainDemonstrations(task, splits)
    return FileDemonstrations(task, splits)


@dataclass
class ChainDemonstrations:
    """Chains of every length up to the longest tier's, none of which is in a benchmark."""

    task: ChainTask
    splits: Splits
    held_out: list[Problem] = field(init=False)

    def __post_init__(self):
        self._excluded = {p.prompt for problems in self.splits.benchmarks.values() for p in problems}
        self._longest = max(self.task.tiers.values())
        rng = random.Random(f"warm start held-out {self.task.data_seed}")
        self.held_out = []
        for tier, length in self.task.tiers.items():
            for i in range(_HELD_OUT):
                one = self._fresh(length, rng)
                self.held_out.append(Problem(f"warm-{tier}-{i}", one.prompt, one.prompt, one.answer, tier))
        if chain.distinct(min(self.task.tiers.values())) > 10 * len(self.held_out):
            self._excluded |= {
                p.prompt for p in self.held_out
            }  # where so few problems exist, repeats are fine

    def _fresh(self, length: int, rng: random.Random) -> chain.Chain:
        for _ in range(1000):
            one = chain.Chain.from_index(length, rng.randrange(chain.distinct(length)))
            if one.prompt not in self._excluded:
                return one
        raise DataError(f"task.benchmark_problems: nearly all problems of {length} operation(s) are held out")

    def characters(self) -> set[str]:
        return set(chain.CHARACTERS)

    def longest_response(self) -> int:
        return len(chain.Chain.from_index(self._longest, 0).scratchpad())

    def ability(self, rng: random.Random) -> tuple[str, str]:
        one = self._fresh(rng.randint(1, self._longest), rng)
        return one.prompt, one.scratchpad()

    def behaviour(self, rng: random.Random, warm: WarmStart) -> tuple[str, str]:
        one = self._fresh(rng.choice(list(self.task.tiers.values())), rng)
        if rng.random() < warm.scratchpad_fraction:
            return one.prompt, one.scratchpad(warm.corruption, rng)
        return one.prompt, f"{chain.MARKER}{one.answer}"


@dataclass
class FileDemonstrations:
    """The demonstrations that a user's training file brings; a part of its problems is held out."""

    task: FileTask
    splits: Splits
    held_out: list[Problem] = field(init=False)

    def __post_init__(self):
        shown = [p for p in self.splits.train if p.demonstration]
        if len(shown) < 2:
            raise DataError(
                f"{self.task.train}: field demonstration is missing: a tiny model is warm-started on full responses; "
                "add the column, set model.warm_start to null, or use a pretrained model"
            )
        random.Random("warm start held-out").shuffle(shown)
        count = max(1, min(_HELD_OUT, len(shown) // 10))
        self.held_out, self._shown = shown[:count], shown[count:]

    def characters(self) -> set[str]:
        return file_characters(self.splits)

    def longest_response(self) -> int:
        return max(len(p.demonstration) for p in self.held_out + self._shown)

    def ability(self, rng: random.Random) -> tuple[str, str]:
        problem = rng.choice(self._shown)
        return problem.prompt, problem.demonstration

    def behaviour(self, rng: random.Random, warm: WarmStart) -> tuple[str, str]:
        problem = rng.choice(self._shown)
        if rng.random() < warm.scratchpad_fraction:
            return problem.prompt, problem.demonstration  # there is no general way to corrupt a step of it
        return problem.prompt, f"{self.task.verifier.marker}{problem.answer}"


def file_characters(splits: Splits) -> set[str]:
    """All characters of a file task's prompts, answers and demonstrations."""
    problems = [*splits.train, *(p for held_out in splits.benchmarks.values() for p in held_out)]
    return {c for p in problems for text in (p.prompt, p.answer, p.demonstration or "") for c in text}
