"""Dynamic sampling: which problems each round of one step's rollout draws."""

from __future__ import annotations

from rpg.backends.local.seeds import PromptOrder

LARGEST_REFILL = 2
"""A round of refills has at most this many times the prompts of a step."""


class Refills:
    """The rounds of one step. The first is the same for every algorithm; further ones replace groups that teach nothing.

    Attributes:
        rounds: rounds of refills so far.
        sampled: prompts drawn so far, the first round included.
    """

    def __init__(self, order: PromptOrder, step: int, wanted: int, max_refills: int):
        self._order, self._step, self._wanted, self._max = order, step, wanted, max_refills
        self._used: set[int] = set()
        self.rounds = self.sampled = 0

    def first(self) -> list[int]:
        """Problem numbers of the first round."""
        return self._draw(self._order.first(self._step, self._wanted))

    def further(self, found: int) -> list[int]:
        """Problem numbers of the next round when `found` useful groups are there.

        As many as the share of useful groups so far suggests. Empty when these are enough, when the rounds are used
        up, or when every problem of a small data set was tried.
        """
        left = self._wanted - found
        if left <= 0 or self.rounds >= self._max:
            return []
        self.rounds += 1
        count = min(LARGEST_REFILL * self._wanted, -(-left * self.sampled // max(found, 1)))
        return self._draw(self._order.refill(self._step, self.rounds, count, self._used))

    def _draw(self, numbers: list[int]) -> list[int]:
        self._used.update(numbers)
        self.sampled += len(numbers)
        return numbers
