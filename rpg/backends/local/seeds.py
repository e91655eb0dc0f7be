"""All randomness of a run, derived from counters: (seed, purpose, step, ...) -> the same numbers whenever asked.

There is no generator whose state would have to be saved, and runs with the same seed see the same prompts and the
same uniforms whatever their algorithm.
"""

from __future__ import annotations

import hashlib
import random

import torch
from torch import Tensor


def number(*key: object) -> int:
    """63 bits that depend on every part of the key."""
    text = "\0".join(map(str, key))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def uniforms(rows: int, columns: int, *key: object) -> Tensor:
    """(rows, columns) in [0, 1)."""
    generator = torch.Generator().manual_seed(number(*key))
    return torch.rand(rows, columns, generator=generator)


def permutation(size: int, *key: object) -> Tensor:
    """(size,) a random order."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(number(*key)))


class PromptOrder:
    """Which problems each step gets: pass after pass over the data, each in an order of its own.

    Refills of dynamic sampling come from a stream of their own, so the first prompts of a step are the same for all
    algorithms.
    """

    def __init__(self, problems: int, seed: int):
        self.problems, self.seed = problems, seed
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
