"""Which problems each step draws, and the refills of dynamic sampling."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from rpg.errors import UserError
from rpg.models.seeds import number, permutation

LARGEST_REFILL = 2
"""A refill draws at most this many times the prompts of a step."""


class PromptOrder:
    """Which problems each step gets: pass after pass over the data, each in a new order.

    Refills of dynamic sampling use a separate random stream, so the first prompts of a step are the
    same for all algorithms.
    """

    def __init__(self, problems: int, seed: int):
        self.problems = problems
        self.seed = seed
        self._cached: tuple[int, list[int]] | None = None

    def first(self, step: int, count: int) -> list[int]:
        """Problem numbers of rollout step `step` (from 1)."""
        return [self._at(i) for i in range((step - 1) * count, step * count)]

    def refill(self, step: int, round_: int, count: int, used: set[int]) -> list[int]:
        """Up to `count` further problems that are not in `used`."""
        rng = random.Random(number(self.seed, "refill", step, round_))
        drawn = rng.sample(range(self.problems), min(self.problems, count + len(used)))
        return [i for i in drawn if i not in used][:count]

    def observe(self, numbers: Iterable[int], pass_rates: Iterable[float]) -> None:
        """`pass_rates`: the share of right responses to each of the problems `numbers`. This order
        does not depend on it."""

    def metrics(self) -> dict[str, float]:
        """What a step reports of it."""
        return {}

    def state(self) -> dict[str, Any]:
        """What has to be remembered, as JSON; `restore` takes it."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on as the order whose state this is."""

    def _at(self, position: int) -> int:
        lap, offset = divmod(position, self.problems)
        if self._cached is None or self._cached[0] != lap:
            self._cached = lap, permutation(self.problems, self.seed, "order", lap).tolist()
        return self._cached[1][offset]


class UnsolvedOrder(PromptOrder):
    """The order in which a solved problem leaves for good: it is not drawn from the next pass over
    the data on, nor as a refill (ScaleRL, arXiv 2510.13786, "no positive resampling").

    It depends on what happened, so it has a state.
    """

    def __init__(self, problems: int, seed: int, solved_at: float):
        """`solved_at`: the share of right responses in a group at which its problem is solved."""
        super().__init__(problems, seed)
        self.solved_at = solved_at
        self._solved: dict[int, int] = {}
        """Problem -> the pass in which it was solved."""
        self._pass = 0
        self._drawn = 0

    def first(self, step: int, count: int) -> list[int]:
        """The next `count` problems; steps are asked for in order. Raises UserError: all are
        solved."""
        numbers: list[int] = []
        remaining = self._remaining()[self._drawn :]
        while len(numbers) < count:
            if not remaining:
                self._pass += 1
                self._drawn = 0
                remaining = self._remaining()
            if not remaining:
                raise UserError(
                    f"step {step}: rollout.drop_solved {self.solved_at:g}: all {self.problems} "
                    "problems are solved"
                )
            taken = remaining[: count - len(numbers)]
            remaining = remaining[len(taken) :]
            self._drawn += len(taken)
            numbers += taken
        return numbers

    def refill(self, step: int, round_: int, count: int, used: set[int]) -> list[int]:
        """Up to `count` further problems that are neither in `used` nor solved."""
        return super().refill(step, round_, count, used.union(self._solved))

    def observe(self, numbers: Iterable[int], pass_rates: Iterable[float]) -> None:
        for problem, rate in zip(numbers, pass_rates, strict=True):
            if rate >= self.solved_at:
                self._solved.setdefault(problem, self._pass)

    def metrics(self) -> dict[str, float]:
        return {"prompts_left": self.problems - len(self._solved)}

    def state(self) -> dict[str, Any]:
        return {"pass": self._pass, "drawn": self._drawn, "solved": list(self._solved.items())}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._pass = state["pass"]
        self._drawn = state["drawn"]
        self._solved = dict(state["solved"])

    def _remaining(self) -> list[int]:
        """The problems of this pass: without those that were solved in earlier ones."""
        order: list[int] = permutation(self.problems, self.seed, "order", self._pass).tolist()
        return [i for i in order if self._solved.get(i, self._pass) >= self._pass]


class Refills:
    """The sampling rounds of one step. The first is the same for every algorithm; refills replace
    groups without signal.

    Attributes:
        rounds: refills so far.
        sampled: prompts drawn so far, including the first round.
    """

    def __init__(self, order: PromptOrder, step: int, prompts: int, max_refills: int):
        self._order = order
        self._step = step
        self._prompts = prompts
        self._max = max_refills
        self._used: set[int] = set()
        self.rounds = self.sampled = 0

    def first(self) -> list[int]:
        """Problem numbers of the first round."""
        return self._draw(self._order.first(self._step, self._prompts))

    def further(self, useful: int) -> list[int]:
        """Problem numbers of the next round, after `useful` useful groups.

        Their number follows from the share of useful groups so far. Empty when there are enough,
        when all refills are used up, or when every problem of a small data set was tried.
        """
        left = self._prompts - useful
        if left <= 0 or self.rounds >= self._max:
            return []
        self.rounds += 1
        count = min(LARGEST_REFILL * self._prompts, -(-left * self.sampled // max(useful, 1)))
        return self._draw(self._order.refill(self._step, self.rounds, count, self._used))

    def _draw(self, numbers: list[int]) -> list[int]:
        self._used.update(numbers)
        self.sampled += len(numbers)
        return numbers
