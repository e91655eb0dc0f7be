"""Demonstrations from the training problems themselves, where they bring some."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

from rpg.config.model import SupervisedStart, WarmStart
from rpg.config.task import Verifier
from rpg.tasks.kind import HELD_OUT
from rpg.tasks.problems import DataError, Given, Problem, Splits


@dataclass
class OwnDemonstrations:
    """The demonstrations that a task's own training problems bring; a part of them is held out."""

    source: str
    """What a message calls the training problems."""
    verifier: Verifier
    splits: Splits
    held_out: list[Problem] = field(init=False)

    def __post_init__(self):
        shown = [p for p in self.splits.train if p.demonstration]
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
        return max(len(p.demonstration) for p in self.held_out + self._shown)

    def ability(self, rng: random.Random) -> tuple[Given, str]:
        problem = rng.choice(self._shown)
        return problem.given(), problem.demonstration

    def behaviour(self, rng: random.Random, warm: WarmStart | SupervisedStart) -> tuple[Given, str]:
        problem = rng.choice(self._shown)
        if rng.random() < warm.scratchpad_fraction:
            return problem.given(), problem.demonstration  # there is no general way to corrupt a step of it
        return problem.given(), self.verifier.written(problem.answer)


def problem_characters(splits: Splits) -> set[str]:
    """All characters that occur in prompts, answers and demonstrations."""
    problems = [*splits.train, *(p for held_out in splits.benchmarks.values() for p in held_out)]
    said = (m["content"] for p in problems for m in p.messages)
    own = (text for p in problems for text in (p.prompt, p.answer, p.demonstration or ""))
    return {c for text in itertools.chain(own, said) for c in text}
