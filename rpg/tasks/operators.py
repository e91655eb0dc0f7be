"""Chains whose operators are missing: several right answers per problem, so that a policy can lose
diversity.

    prompt    a3b7c5=5         start at 3, then 7 and 5; which operators end at 5 (modulo 10)?
    response  b+70c-55#+-      a chain as rpg.tasks.chain writes it; after # its operators, which
    are the answer

A problem's `answer` holds all right ones with blanks between them. Problems of n operations are
numbered 0 .. 100 * 9**n - 1; those with fewer than two right answers are left out.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from rpg.config.model import SupervisedStart, WarmStart
from rpg.config.task import MarkerVerifier, OperatorsTask
from rpg.tasks.chain import CHARACTERS, LABELS, MARKER, OPERATORS, Chain
from rpg.tasks.problems import HELD_OUT, DataError, Problem, Splits, TaskKind

VERSION = 1
"""Part of the data's digest: raise it when the same settings would give other problems."""
FEWEST = 2
"""Smallest number of right answers of a problem."""
_DIGITS = 9


@dataclass(frozen=True)
class Blank:
    """One problem: where the chain starts, its operands in order, and where it has to end."""

    start: int
    operands: tuple[int, ...]
    target: int

    @classmethod
    def from_index(cls, length: int, index: int) -> Self:
        """Problem number `index` of those with `length` operations (a bijection)."""
        index, start = divmod(index, 10)
        index, target = divmod(index, 10)
        operands = []
        for _ in range(length):
            index, digit = divmod(index, _DIGITS)
            operands.append(digit + 1)
        return cls(start, tuple(operands), target)

    @property
    def prompt(self) -> str:
        body = "".join(f"{label}{x}" for label, x in zip(LABELS[1:], self.operands, strict=False))
        return f"{LABELS[0]}{self.start}{body}={self.target}"

    def answers(self) -> list[str]:
        """All operators that end at the target, in the order of `+-*`."""
        ways = map("".join, itertools.product(OPERATORS, repeat=len(self.operands)))
        return [way for way in ways if self.filled(way).answer == str(self.target)]

    def filled(self, operators: str) -> Chain:
        return Chain(self.start, tuple(zip(operators, self.operands, strict=True)))

    def response(
        self, operators: str, corruption: float = 0.0, rng: random.Random | None = None
    ) -> str:
        """A full response; `corruption` as in `Chain.scratchpad`."""
        return (
            self.filled(operators).scratchpad(corruption, rng).rpartition(MARKER)[0]
            + MARKER
            + operators
        )


def distinct(length: int) -> int:
    """How many problems of `length` operations there are, those with too few right answers among
    them."""
    return 100 * int(_DIGITS**length)


def make(task: OperatorsTask) -> Splits:
    """All problems, distinct, the same for the same settings. Raises DataError: the settings have
    too few."""
    rng = random.Random(f"operators {task.data_seed} {task.operations}")
    dealt = list(
        itertools.islice(_all(task.operations, rng), task.benchmark_problems + task.train_problems)
    )
    held_out = dealt[: task.benchmark_problems]
    train = dealt[task.benchmark_problems :]
    if len(train) < task.train_problems:
        raise DataError(
            f"task.train_problems: {task.train_problems} and {task.benchmark_problems} held "
            "out are too many: "
            f"{len(dealt)} problems of {task.operations} operations have {FEWEST} right answers"
        )
    [name] = task.benchmark_names()
    tests = [_problem(blank, f"held-out-{i:05d}") for i, blank in enumerate(held_out)]
    return Splits(
        [_problem(blank, f"train-{i:05d}") for i, blank in enumerate(train)], {name: tests}
    )


def _all(length: int, rng: random.Random) -> Iterator[Blank]:
    """Problems with enough right answers, each once, in random order."""
    total = distinct(length)
    for index in rng.sample(range(total), min(total, 200_000)):
        blank = Blank.from_index(length, index)
        if len(blank.answers()) >= FEWEST:
            yield blank


def _problem(blank: Blank, name: str) -> Problem:
    text = blank.prompt
    answers = blank.answers()
    response = blank.response(answers[0])
    return Problem(f"operators-{name}", text, text, " ".join(answers), "operators", response)


class OperatorsDemonstrations:
    """Problems outside the benchmark, each shown with one of its right answers at random."""

    def __init__(self, task: OperatorsTask, splits: Splits):
        self._length = task.operations
        self._excluded = {p.prompt for problems in splits.benchmarks.values() for p in problems}
        rng = random.Random(f"warm start held-out {task.data_seed}")
        self.held_out = [_problem(self._fresh(rng), f"warm-{i}") for i in range(HELD_OUT)]
        self._excluded |= {p.prompt for p in self.held_out}

    def _fresh(self, rng: random.Random) -> Blank:
        while True:
            blank = Blank.from_index(self._length, rng.randrange(distinct(self._length)))
            if blank.prompt not in self._excluded and len(blank.answers()) >= FEWEST:
                return blank

    def longest_response(self) -> int:
        return max(len(problem.demonstration or "") for problem in self.held_out)

    def ability(self, rng: random.Random) -> tuple[str, str]:
        blank = self._fresh(rng)
        return blank.prompt, blank.response(rng.choice(blank.answers()))

    def behaviour(self, rng: random.Random, warm: WarmStart | SupervisedStart) -> tuple[str, str]:
        blank = self._fresh(rng)
        operators = rng.choice(blank.answers())
        if rng.random() < warm.scratchpad_fraction:
            return blank.prompt, blank.response(operators, warm.corruption, rng)
        return blank.prompt, f"{MARKER}{operators}"


KIND = TaskKind(
    problems=make,
    data=lambda _task: {"generator": VERSION},
    verifier=lambda _task: MarkerVerifier(marker=MARKER, match="any"),
    demonstrations=OperatorsDemonstrations,
    characters=lambda _splits: set(CHARACTERS),
)
