"""Seeds that collapsed: trainings that end far below their siblings of the same variant.

A seed is called collapsed if it has lost at least half of what its siblings reach on average, and
lies below them by more than seeds differ elsewhere: its distance over the standard error, with
the spread of all other seeds, is beyond Student's quantile at FALSE_ALARM divided by the number
of seeds. Without collapses a sweep names a seed with a chance of at most FALSE_ALARM, if spreads
are alike; that half must be lost keeps it below that where they are not
(`python -m benchmarks.error_rates --collapses`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

FALSE_ALARM = 0.01
"""Chance that a sweep without collapses names any seed."""
LOST = 0.5
"""Least share of the siblings' accuracy that a collapsed seed has lost."""
SIBLINGS = 2
"""Least number of siblings that a seed is judged by."""


@dataclass(frozen=True)
class Collapse:
    """A collapsed seed of a variant: its accuracy and the mean of its siblings'."""

    variant: str
    seed: int
    accuracy: float
    siblings: float


def collapsed(accuracies: Mapping[str, Mapping[int, float]]) -> list[Collapse]:
    """The collapsed seeds, by accuracies of variant -> seed."""
    judged = {name: seeds for name, seeds in accuracies.items() if len(seeds) > SIBLINGS}
    total = sum(len(seeds) for seeds in judged.values())
    spreads = {name: _without_lowest(list(seeds.values())) for name, seeds in judged.items()}
    found = []
    for name, seeds in judged.items():
        elsewhere = [spread for other, spread in spreads.items() if other != name]
        for seed, value in seeds.items():
            siblings = [accuracy for other, accuracy in seeds.items() if other != seed]
            if _is_far_below(value, siblings, elsewhere, FALSE_ALARM / total):
                mean = float(np.mean(siblings))
                found.append(Collapse(name, seed, accuracy=value, siblings=mean))
    return found


def _is_far_below(
    value: float,
    siblings: Sequence[float],
    elsewhere: Sequence[tuple[float, int]],
    false_alarm: float,
) -> bool:
    """Whether a seed has lost half of what its siblings reach, and is below them by more than the
    spread of all other seeds allows."""
    mean = float(np.mean(siblings))
    if value > (1 - LOST) * mean or mean <= 0:
        return False
    variance, df = _pooled([_spread(siblings), *elsewhere])
    error = math.sqrt(variance * (1 + 1 / len(siblings)))
    limit = special.stdtrit(df, 1 - false_alarm)
    return bool(mean - value > limit * error)


def share_collapsed(collapses: int, seeds: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval (1934) of a variant's chance to collapse."""
    tail = (1 - level) / 2
    low = special.betaincinv(collapses, seeds - collapses + 1, tail) if collapses else 0.0
    high = 1.0
    if collapses < seeds:
        high = special.betaincinv(collapses + 1, seeds - collapses, 1 - tail)
    return float(low), float(high)


def _spread(values: Sequence[float]) -> tuple[float, int]:
    """Sum of squares and degrees of freedom."""
    return float(np.var(values) * len(values)), len(values) - 1


def _without_lowest(values: Sequence[float]) -> tuple[float, int]:
    """Of a variant without its lowest seed, which might have collapsed, if it looks like it."""
    lowest, *others = sorted(values)
    if lowest <= (1 - LOST) * float(np.mean(others)):
        return _spread(others)
    return _spread(values)


def _pooled(spreads: Sequence[tuple[float, int]]) -> tuple[float, int]:
    squares = sum(square for square, _ in spreads)
    df = sum(df for _, df in spreads)
    return squares / df, df
