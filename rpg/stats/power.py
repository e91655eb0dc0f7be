"""What a comparison can find: known before a training from assumed spreads, or from those of stored runs.

The numbers come from the test itself, applied to simulated sweeps with a fixed random state, so that they hold for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from rpg.stats.comparisons import (
    CROWDING,
    ERROR,
    Family,
    family,
    noise_of_answers,
    posterior_alone,
    posterior_together,
    shared_out,
)

POWER = 0.8
MATTERS = 0.02
"""The difference of accuracy that people ask about unless they say otherwise (two points)."""
MOST_SEEDS = 100
_SWEEPS = 120


class Design(NamedTuple):
    """Variants with the baseline, seeds, problems of each benchmark, samples of each problem."""

    variants: int
    seeds: int
    problems: tuple[int, ...]
    samples: int


class Spreads(NamedTuple):
    """Standard deviations: of a variant's accuracy from seed to seed, of one answer to a problem (right or wrong), and of
    a problem's accuracy from variant to variant; each without what all variants have in common."""

    seeds: float
    answers: float
    problems: float


ASSUMED = Spreads(0.03, 0.4, 0.1)
"""Where no run of the task is stored: seeds that differ by three points, problems of all difficulties."""


def spreads(strata: Sequence[np.ndarray], samples: int) -> Spreads:
    """Estimated from the scores (V, S, P) per benchmark of a stored sweep; needs two variants and two seeds."""
    arrays = [np.asarray(array, float)[None] for array in strata]
    present = np.ones(arrays[0].shape[1:3], bool)
    noise = float(noise_of_answers(arrays, present).mean())
    means = np.mean([array.mean(axis=3) for array in arrays], axis=0)
    squares, freedom = shared_out(means, np.full(means.shape[:2], 1.0), present)
    excess = family(arrays).excess
    each = sum(1 / array.shape[3] for array in arrays) / len(arrays) ** 2  # one over the problems of a mean
    seeds = max(float(squares.sum() / freedom.sum()) - noise, 0.0)
    return Spreads(
        math.sqrt(seeds), math.sqrt(noise * samples / each), math.sqrt(float(excess.mean()) / 2 / each)
    )


def _simulated(design: Design, known: Spreads) -> Family:
    """The first two differences of sweeps in which variants are equal."""
    rng = np.random.default_rng(0)
    each = sum(1 / count for count in design.problems) / len(design.problems) ** 2
    noise, excess = known.answers**2 * each / design.samples, 2 * known.problems**2 * each
    shape = (_SWEEPS, design.variants)
    means = math.sqrt(known.seeds**2 + noise) * rng.standard_normal((*shape, design.seeds))
    pairs = (means[:, 1:] - means[:, :1])[:, :2]
    constant = np.ones(pairs.shape[:2])
    counts = np.full(pairs.shape[1], design.seeds)
    present = np.ones((design.variants, design.seeds), bool)
    return Family(
        pairs.mean(axis=2) + math.sqrt(excess) * rng.standard_normal(pairs.shape[:2]),
        posterior_together(means, np.full(shape, noise), np.ones(shape), present, counts),
        posterior_alone(pairs.var(axis=2, ddof=1) / design.seeds, 2 * noise / design.seeds * constant, counts),
        excess * constant,
        (sum(design.problems) - len(design.problems)) * constant,
        0 * constant,
        counts,
    )


@cache
def detectable(design: Design, known: Spreads, power: float = POWER) -> float:
    """The smallest difference that is found in this share of sweeps; 1 at most. NaN with fewer than two seeds."""
    if design.seeds < 2 or design.variants < 2:
        return math.nan
    simulated, differences = _simulated(design, known), design.variants - 1
    level = ERROR / differences * (simulated.difference.shape[1] / max(2, differences)) ** CROWDING
    low, high = np.zeros_like(simulated.difference), np.ones_like(simulated.difference)
    for _ in range(14):  # the size of a difference that has this p-value
        middle = (low + high) / 2
        kept = simulated.p_values(simulated.difference - middle) >= level
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return float(min(np.quantile(high - simulated.difference, power), 1.0))


def seeds_needed(design: Design, known: Spreads, difference: float) -> int | None:
    """How many seeds find a difference with 80 % power; None where not even `MOST_SEEDS` do."""
    low, high = 2, MOST_SEEDS
    if detectable(design._replace(seeds=high), known) > difference:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        found = detectable(design._replace(seeds=middle), known) <= difference
        low, high = (low, middle) if found else (middle, high)
    return high


def problems_needed(design: Design, known: Spreads, difference: float) -> int | None:
    """How many problems of each benchmark, relative to now, find it with the seeds there are; None where seeds differ so
    much that no number does."""
    for doublings in range(-4, 9):
        problems = tuple(max(2, round(count * 2.0**doublings)) for count in design.problems)
        if detectable(design._replace(problems=problems), known) <= difference:
            return sum(problems)
    return None
