"""The labelled chain: left-to-right arithmetic modulo 10 that a tiny model can learn on one core.

    prompt    a3b+7c-5=        start 3, then +7, then -5; letters label the operands
    response  b+70c-55#5       per step: label, operator, operand, running value; after # the answer

The labels make copying an operand unambiguous, without which a model of this size learns the task
only for some seeds. Problems of n operations are numbered 0 .. 10 * 27**n - 1, so distinct ones are
drawn by drawing numbers.
"""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Self

from rpg.config.model import SupervisedStart, WarmStart
from rpg.config.task import ChainTask, MarkerVerifier
from rpg.tasks.problems import HELD_OUT, DataError, Problem, Splits, TaskKind

GENERATOR_VERSION = 1
"""Part of the data's digest: raise it when the same settings would give other problems."""
CHARACTERS = "0123456789+-*=#abcdefghijklm"
MARKER = "#"
LABELS = "abcdefghijklm"
OPERATORS = "+-*"
_CHOICES = len(OPERATORS) * 9


@dataclass(frozen=True)
class Chain:
    """One problem: a start digit and the operations in order."""

    start: int
    operations: tuple[tuple[str, int], ...]

    @classmethod
    def from_index(cls, length: int, index: int) -> Self:
        """Problem number `index` of those with `length` operations (a bijection)."""
        index, start = divmod(index, 10)
        operations = []
        for _ in range(length):
            index, choice = divmod(index, _CHOICES)
            operations.append((OPERATORS[choice // 9], choice % 9 + 1))
        return cls(start, tuple(operations))

    @property
    def prompt(self) -> str:
        body = "".join(
            f"{label}{op}{x}" for label, (op, x) in zip(LABELS[1:], self.operations, strict=False)
        )
        return f"{LABELS[0]}{self.start}{body}="

    @property
    def answer(self) -> str:
        value = self.start
        for op, x in self.operations:
            value = _apply(value, op, x)
        return str(value)

    def scratchpad(self, corruption: float = 0.0, rng: random.Random | None = None) -> str:
        """A full response; each running value is replaced by a random digit with probability
        `corruption`.

        A wrong value is carried on, so the response stays consistent with itself.
        """
        value = self.start
        text = ""
        for label, (op, x) in zip(LABELS[1:], self.operations, strict=False):
            value = _apply(value, op, x)
            if rng is not None and rng.random() < corruption:
                value = rng.randrange(10)
            text += f"{label}{op}{x}{value}"
        return f"{text}{MARKER}{value}"


def _apply(value: int, op: str, x: int) -> int:
    if op == "+":
        return (value + x) % 10
    if op == "-":
        return (value - x) % 10
    return value * x % 10


def distinct(length: int) -> int:
    """How many problems of `length` operations there are."""
    return 10 * int(_CHOICES**length)


def make(task: ChainTask) -> Splits:
    """Training problems and one benchmark per tier, all distinct and determined by the settings.

    Benchmarks are dealt first; the training problems are then spread evenly over the tiers, as far
    as a tier has enough distinct ones.

    Raises:
        DataError: a tier has too few distinct problems for its benchmark and one training problem.
    """
    base, extra = divmod(task.train_problems, len(task.tiers))
    shares = {tier: base + (i < extra) for i, tier in enumerate(task.tiers)}
    hands = {}  # enough distinct problem numbers for all tiers of a length, in random order
    for length, tiers in Counter(task.tiers.values()).items():
        needed = min(tiers * task.benchmark_problems + task.train_problems, distinct(length))
        chance = random.Random(f"chain {task.data_seed} {length}")
        hands[length] = chance.sample(range(distinct(length)), needed)

    def deal(tier: str, count: int, kind: str) -> list[Problem]:
        length = task.tiers[tier]
        numbers, hands[length] = hands[length][:count], hands[length][count:]
        return [
            _problem(Chain.from_index(length, n), tier, f"{kind}-{i:05d}")
            for i, n in enumerate(numbers)
        ]

    benchmarks = {
        f"chain-{tier}": deal(tier, task.benchmark_problems, "held-out") for tier in task.tiers
    }
    train = []
    for position, (tier, share) in enumerate(shares.items()):
        # Tiers of equal length are dealt from the same hand: each takes its share of what is left.
        still = sum(task.tiers[t] == task.tiers[tier] for t in list(task.tiers)[position:])
        problems = deal(tier, min(share, len(hands[task.tiers[tier]]) // still), "train")
        if len(benchmarks[f"chain-{tier}"]) < task.benchmark_problems or not problems:
            raise DataError(
                f"task.benchmark_problems: {task.benchmark_problems} are too many for tier "
                f"{tier!r}: there are only "
                f"{distinct(task.tiers[tier])} distinct problems of {task.tiers[tier]} operation(s)"
            )
        train += problems
    return Splits(train, benchmarks)


def _problem(chain: Chain, tier: str, name: str) -> Problem:
    text = chain.prompt
    return Problem(f"chain-{tier}-{name}", text, text, chain.answer, tier, chain.scratchpad())


class ChainDemonstrations:
    """Chains of every length up to the longest tier's, none of which is in a benchmark."""

    def __init__(self, task: ChainTask, splits: Splits):
        self._excluded = {p.prompt for problems in splits.benchmarks.values() for p in problems}
        self._lengths = list(task.tiers.values())
        self.held_out: list[Problem] = []
        rng = random.Random(f"warm start held-out {task.data_seed}")
        for tier, length in task.tiers.items():
            chains = [self._fresh(length, rng) for _ in range(HELD_OUT)]
            self.held_out += [_problem(chain, tier, f"warm-{i}") for i, chain in enumerate(chains)]
        # Where fewer problems exist, repeats are fine.
        if distinct(min(self._lengths)) > 10 * len(self.held_out):
            self._excluded |= {p.prompt for p in self.held_out}

    def _fresh(self, length: int, rng: random.Random) -> Chain:
        for _ in range(1000):
            chain = Chain.from_index(length, rng.randrange(distinct(length)))
            if chain.prompt not in self._excluded:
                return chain
        raise DataError(
            f"task.benchmark_problems: nearly all problems of {length} operation(s) are held out"
        )

    def longest_response(self) -> int:
        return len(Chain.from_index(max(self._lengths), 0).scratchpad())

    def ability(self, rng: random.Random) -> tuple[str, str]:
        chain = self._fresh(rng.randint(1, max(self._lengths)), rng)
        return chain.prompt, chain.scratchpad()

    def behaviour(self, rng: random.Random, warm: WarmStart | SupervisedStart) -> tuple[str, str]:
        chain = self._fresh(rng.choice(self._lengths), rng)
        if rng.random() < warm.scratchpad_fraction:
            return chain.prompt, chain.scratchpad(warm.corruption, rng)
        return chain.prompt, f"{MARKER}{chain.answer}"


KIND = TaskKind(
    problems=make,
    data=lambda _task: {"generator": GENERATOR_VERSION},
    verifier=lambda _task: MarkerVerifier(marker=MARKER, match="exact"),
    demonstrations=ChainDemonstrations,
    characters=lambda _splits: set(CHARACTERS),
)
