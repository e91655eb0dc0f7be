"""What a comparison can find: known before a training from assumed spreads, or from those of
stored runs. Computed by the formulas of the test itself (rpg.stats.comparisons)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from rpg.stats import many_to_one
from rpg.stats.comparisons import (
    ERROR,
    centred_squares,
    family,
    interaction,
    kish,
    prior_df,
)
from rpg.stats.estimates import problems_df
from rpg.stats.verdicts import MINIMUM_MOVING, MINIMUM_SEEDS

POWER = 0.8
MATTERS = 0.02
"""The difference of accuracy that people ask about unless they say otherwise (two points)."""


class Design(NamedTuple):
    """Variants with the baseline, seeds of each, problems of each benchmark, samples of each
    problem; seeds of the baseline where it has more."""

    variants: int
    seeds: int
    problems: tuple[int, ...]
    samples: int
    baseline_seeds: int | None = None

    @property
    def further(self) -> int:
        """Seeds of the baseline that no variant shares."""
        return max((self.baseline_seeds or self.seeds) - self.seeds, 0)

    @property
    def runs(self) -> int:
        return self.variants * self.seeds + self.further


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
    variants = arrays[0].shape[1]
    noise = 0.0
    for array in arrays:
        rows = array - array.mean(axis=1, keepdims=True)
        noise += float(interaction(rows).sum()) / (variants - 1) / array.shape[3]
    noise /= len(arrays) ** 2
    means = np.mean([array.mean(axis=3) for array in arrays], axis=0)
    seeds = max(float(centred_squares(means).mean()) - noise, 0.0)
    each = _per_problem([array.shape[3] for array in arrays])
    problems = float(family(arrays).of_problems.variance.mean()) / 2
    return Spreads(
        seeds=math.sqrt(seeds),
        answers=math.sqrt(noise * samples / each),
        problems=math.sqrt(problems / each),
    )


def carried_by_few(
    strata: Sequence[np.ndarray], labels: Sequence[Sequence[object] | None] = ()
) -> str:
    """A note where too few problems (Kish's number) move in scores (V, S, P) per benchmark; with
    `labels`, too few clusters of problems."""
    accuracies = [np.asarray(array, float).mean(axis=(0, 1))[None] for array in strata]
    moving = float(kish(accuracies, labels).item())
    if moving >= MINIMUM_MOVING:
        return ""
    problems = sum(accuracy.shape[1] for accuracy in accuracies)
    return (
        f"only about {moving:.0f} of {problems} problems tell variants apart: at the others nearly "
        f"all answers are right, or nearly all wrong; a verdict needs {MINIMUM_MOVING:.0f}"
    )


def _per_problem(problems: Sequence[int]) -> float:
    """Variance of the mean of the benchmarks' means, in variances of one problem."""
    return sum(1 / count for count in problems) / len(problems) ** 2


def detectable(design: Design, spread: Spreads) -> float:
    """About the smallest difference that is found in 80 % of sweeps; 1 at most. NaN with fewer
    than two seeds.

    The variance and the degrees of freedom are those that the test expects if the spreads are as
    they are given, alike for all variants, and seeds have nothing in common.
    """
    if design.seeds < 2 or design.variants < 2:
        return math.nan
    of_seeds, df_of_seeds = _expected_of_seeds(design, spread)
    of_problems = 2 * spread.problems**2 * _per_problem(design.problems)
    total = of_seeds + of_problems

    # As Family.variance weights them.
    share = of_seeds / max(total, 1e-300)
    df = 1 / (share / df_of_seeds + (1 - share) / problems_df(design.problems))

    correlation = design.seeds / (2 * design.seeds + design.further)
    p = many_to_one.alone_p(ERROR, design.variants - 1, correlation)
    quantiles = special.stdtrit(df, 1 - p / 2) + special.stdtrit(df, POWER)
    return float(min(quantiles * math.sqrt(total), 1.0))


def _expected_of_seeds(design: Design, spread: Spreads) -> tuple[float, float]:
    """Variance of a difference over seeds, and its degrees of freedom."""
    differences = design.variants - 1
    seeds = design.seeds
    further = design.further
    noise = spread.answers**2 * _per_problem(design.problems) / design.samples
    of_seed = spread.seeds**2 + noise
    weight = further / (seeds + further)
    prior = prior_df(differences, seeds)

    variant = of_seed / seeds
    variant_df = prior + seeds - 1
    baseline = of_seed * (1 - weight) ** 2 / seeds
    baseline_df = prior / 4 + seeds - 1
    variance = variant + baseline
    squares = variant**2 / variant_df + baseline**2 / baseline_df
    if further:
        added = of_seed * weight**2 / further
        variance += added
        squares += added**2 / (seeds + further - 1)
    together = variant * baseline / differences**2 / math.sqrt(variant_df * baseline_df)
    squares += 2 * together
    df = variance**2 / squares if squares > 0 else 1.0
    return variance, df


def seeds_needed(design: Design, spread: Spreads, difference: float) -> int | None:
    """About how many seeds find a difference with 80 % power; None where not even 100 do."""
    for seeds in range(3, 101):
        if detectable(design._replace(seeds=seeds, baseline_seeds=None), spread) <= difference:
            return seeds
    return None


def problems_needed(design: Design, spread: Spreads, difference: float) -> int | None:
    """About how many problems in all find it with the seeds there are; None where seeds differ so
    much that none do."""
    for doublings in np.arange(-4, 8.1, 0.25):
        problems = tuple(max(2, round(count * 2.0**doublings)) for count in design.problems)
        if detectable(design._replace(problems=problems), spread) <= difference:
            return int(sum(problems))
    return None


def more_of_the_baseline(design: Design) -> Design:
    """The design with the baseline's seeds times the square root of the number of differences,
    Dunnett's (1955) allocation; itself if it has as many already."""
    wanted = round(design.seeds * math.sqrt(design.variants - 1))
    if wanted <= (design.baseline_seeds or design.seeds):
        return design
    return design._replace(baseline_seeds=wanted)


def sentence(design: Design, spread: Spreads, difference: float) -> str:
    """What a design finds and what a difference that matters would take."""
    if design.seeds < MINIMUM_SEEDS:
        given = "one seed gives" if design.seeds == 1 else f"{design.seeds} seeds give"
        return f"{given} differences and intervals, but no verdicts: those need three seeds"
    smallest = detectable(design, spread)
    found = f"differences of {100 * smallest:.1f} points or more are"
    if smallest >= 1:
        found = "no difference is"
    seeds = f"{design.seeds} seeds"
    if design.further:
        seeds = f"{design.seeds} seeds ({design.seeds + design.further} of the baseline)"
    sizes = f"{seeds}, {sum(design.problems):,} problems and k = {design.samples}"
    text = f"With {sizes}, {found} found in 80 % of sweeps"
    if smallest <= difference:
        return text
    ways = _ways(design, spread, difference)
    points = f"{100 * difference:g} points"
    if not ways:
        return f"{text}; neither 100 seeds nor more problems alone find {points}"
    return f"{text}; to find {points} would take {' or '.join(ways)}"


def _ways(design: Design, spread: Spreads, difference: float) -> list[str]:
    """What would find a difference of this size."""
    ways = []
    seeds = seeds_needed(design, spread, difference)
    if seeds:
        ways.append(f"about {seeds} seeds")
    problems = problems_needed(design, spread, difference)
    if problems:
        ways.append(f"about {problems:,} problems")
    return ways


def baseline_sentence(design: Design, spread: Spreads) -> str:
    """What further seeds of the baseline buy; "" where they buy less than a tenth of a point."""
    more = more_of_the_baseline(design)
    if design.seeds < MINIMUM_SEEDS or more == design:
        return ""
    now = detectable(design, spread)
    then = detectable(more, spread)
    if now - then < 0.001:
        return ""
    return (
        f"{more.baseline_seeds} seeds of the baseline instead of "
        f"{design.baseline_seeds or design.seeds} ({more.runs} runs) would find "
        f"{100 * then:.1f} points instead of {100 * now:.1f}: "
        f"`seeds: {{baseline: {more.baseline_seeds}, others: {design.seeds}}}`"
    )
