"""What a comparison can find: known before a training from assumed spreads, or from those of stored
runs."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from rpg.stats.comparisons import (
    ERROR,
    MINIMUM_SEEDS,
    family,
    noise_of_answers,
    shared_out,
    without_shifts,
)
from rpg.stats.estimates import problems_df

POWER = 0.8
MATTERS = 0.02
"""The difference of accuracy that people ask about unless they say otherwise (two points)."""


class Design(NamedTuple):
    """Variants with the baseline, seeds, problems of each benchmark, samples of each problem."""

    variants: int
    seeds: int
    problems: tuple[int, ...]
    samples: int


class Spreads(NamedTuple):
    """Standard deviations: of a variant's accuracy from seed to seed, of one answer to a problem
    (right or wrong), and of a problem's accuracy from variant to variant; each without what all
    variants have in common."""

    seeds: float
    answers: float
    problems: float


ASSUMED = Spreads(0.03, 0.4, 0.05)
"""Where no run of the task is stored: seeds that differ by three points, problems of all
difficulties."""


def spreads(strata: Sequence[np.ndarray], samples: int) -> Spreads:
    """Estimated from the scores (V, S, P) per benchmark of a stored sweep; needs two variants and
    two seeds."""
    arrays = [np.asarray(array, float)[None] for array in strata]
    noise = float(noise_of_answers(without_shifts(arrays)[0]).mean())
    means = np.mean([array.mean(axis=3) for array in arrays], axis=0)
    squares, freedom = shared_out(means, np.ones(means.shape[:2]))
    each = _per_problem([array.shape[3] for array in arrays])
    seeds = max(float(squares.sum() / freedom.sum()) - noise, 0.0)
    excess = float(family(arrays).due_to_problems().mean()) / 2
    return Spreads(math.sqrt(seeds), math.sqrt(noise * samples / each), math.sqrt(excess / each))


def carried_by_few(strata: Sequence[np.ndarray]) -> str:
    """A note where few problems (Kish's number of them) carry the differences of scores (V, S, P)
    per benchmark."""
    slopes = without_shifts([np.asarray(array, float)[None] for array in strata])[1]
    weights = np.concatenate([slope.ravel() / slope.size for slope in slopes])
    carrying = weights.sum() ** 2 / np.square(weights).sum()
    if carrying >= min(15, len(weights) / 2):  # levels hold from there on
        return ""
    return (
        f"about {carrying:.0f} of {len(weights)} problems carry the differences, at the others nearly all answers are right "
        "or wrong: with so few, equal variants may be called different in over 5 % of sweeps"
    )


def _per_problem(problems: Sequence[int]) -> float:
    """Variance of the mean of the benchmarks' means, in variances of one problem."""
    return sum(1 / count for count in problems) / len(problems) ** 2


def detectable(design: Design, spread: Spreads) -> float:
    """About the smallest difference that is found in 80 % of sweeps; 1 at most. NaN with fewer than
    two seeds.

    Student's t, Bonferroni for the differences. The degrees of freedom of seeds were fitted to
    simulations of the test (2 to 15 variants, 3 to 20 seeds): the more variants, and the more of a
    spread is the known noise of answers, the more.
    """
    differences = design.variants - 1
    if design.seeds < 2 or differences < 1:
        return math.nan
    noise = spread.answers**2 * _per_problem(design.problems) / design.samples
    of_seeds = 2 * (spread.seeds**2 + noise) / design.seeds
    of_problems = 2 * spread.problems**2 * _per_problem(design.problems)
    noise_ratio = (spread.seeds**2 + noise) / max(spread.seeds**2, noise / 8, 1e-12)
    others = 1 - 1 / differences
    df_seeds = (design.seeds - 1) * (0.75 + 0.75 * others) * noise_ratio ** (others / 2)
    total = of_seeds + of_problems
    df = total**2 / max(
        of_seeds**2 / df_seeds + of_problems**2 / problems_df(design.problems), 1e-300
    )
    quantiles = special.stdtrit(df, 1 - ERROR / differences / 2) + special.stdtrit(df, POWER)
    return float(min(quantiles * math.sqrt(total), 1.0))


def seeds_needed(design: Design, spread: Spreads, difference: float) -> int | None:
    """About how many seeds find a difference with 80 % power; None where not even 100 do."""
    designs = (design._replace(seeds=seeds) for seeds in range(3, 101))
    return next((each.seeds for each in designs if detectable(each, spread) <= difference), None)


def problems_needed(design: Design, spread: Spreads, difference: float) -> int | None:
    """About how many problems in all find it with the seeds there are; None where seeds differ so
    much that none do."""
    for doublings in np.arange(-4, 8.1, 0.25):
        problems = tuple(max(2, round(count * 2.0**doublings)) for count in design.problems)
        if detectable(design._replace(problems=problems), spread) <= difference:
            return int(sum(problems))
    return None


def sentence(design: Design, spread: Spreads, difference: float) -> str:
    """What a design finds and what a difference that matters would take."""
    if design.seeds < MINIMUM_SEEDS:
        given = "one seed gives" if design.seeds == 1 else f"{design.seeds} seeds give"
        return f"{given} differences and intervals, but no verdicts: those take three"
    smallest = detectable(design, spread)
    found = (
        "no difference is"
        if smallest >= 1
        else f"differences of {100 * smallest:.1f} points or more are"
    )
    sizes = f"{design.seeds} seeds and {sum(design.problems):,} problems x {design.samples}"
    text = f"With {sizes}, {found} found in 80 % of sweeps"
    if smallest <= difference:
        return text
    seeds, problems = (
        seeds_needed(design, spread, difference),
        problems_needed(design, spread, difference),
    )
    ways = [f"about {seeds} seeds"] if seeds else []
    ways += [f"about {problems:,} problems"] if problems else []
    points = f"{100 * difference:g} points"
    if not ways:
        return f"{text}; neither 100 seeds nor more problems alone find {points}"
    return f"{text}; {points} take {' or '.join(ways)}"
