"""What a comparison can find: known before a training from assumed spreads, or from those of stored runs.

The numbers come from the test itself, applied to simulated sweeps with a fixed random state, so that they hold for it.
"""

from __future__ import annotations

import bisect
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
_SEEDS = (3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
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


ASSUMED = Spreads(0.03, 0.4, 0.05)
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
        posterior_alone(
            pairs.var(axis=2, ddof=1) / design.seeds, 2 * noise / design.seeds * constant, counts
        ),
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
    """About how many seeds find a difference with 80 % power; None where not even 100 do."""
    place = bisect.bisect_left(
        _SEEDS, True, key=lambda seeds: detectable(design._replace(seeds=seeds), known) <= difference
    )
    return _SEEDS[place] if place < len(_SEEDS) else None


def problems_needed(design: Design, known: Spreads, difference: float) -> int | None:
    """About how many problems in all find it with the seeds there are; None where seeds differ so much that none do."""

    def enlarged(doublings: float) -> tuple[int, ...]:
        return tuple(max(2, round(count * 2.0**doublings)) for count in design.problems)

    sizes = [doublings / 2 for doublings in range(-8, 17)]
    place = bisect.bisect_left(
        sizes,
        True,
        key=lambda size: detectable(design._replace(problems=enlarged(size)), known) <= difference,
    )
    return sum(enlarged(sizes[place])) if place < len(sizes) else None


def sentence(design: Design, known: Spreads, difference: float) -> str:
    """What a design finds and what a difference that matters would take."""
    smallest = detectable(design, known)
    text = (
        f"With {design.seeds} seeds and {sum(design.problems):,} problems x {design.samples}, differences of "
        f"{100 * smallest:.1f} points or more are found in 80 % of sweeps"
    )
    if smallest <= difference:
        return text
    seeds, problems = seeds_needed(design, known, difference), problems_needed(design, known, difference)
    ways = [f"about {seeds} seeds"] if seeds else []
    ways += [f"about {problems:,} problems"] if problems else []
    needed = " or ".join(ways) or "more than 100 seeds, and no number of problems"
    return f"{text}; {100 * difference:g} points take {needed}"
