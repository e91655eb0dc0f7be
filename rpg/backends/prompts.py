"""Which problems each step draws, and the refills of dynamic sampling."""

import random

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

    def _at(self, position: int) -> int:
        lap, offset = divmod(position, self.problems)
        if self._cached is None or self._cached[0] != lap:
            self._cached = lap, permutation(self.problems, self.seed, "order", lap).tolist()
        return self._cached[1][offset]


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
