"""Differences between models of one training each, from several sampled answers per problem.

Of other problems of the kind nothing changes: that is the test of `comparisons` with one seed. At
the problems at hand only sampled answers vary, so their variance takes the place of the seeds'.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from rpg.stats import many_to_one
from rpg.stats.comparisons import ERROR, OTHERS, Family, Part, family
from rpg.stats.power import POWER


@dataclass(frozen=True)
class Answers:
    """Scores of N tables on one benchmark; the first of V models is the baseline."""

    means: np.ndarray
    """Mean score (N, V, P) of a model's samples of a problem."""
    variances: np.ndarray
    """Variance (N, V, P) of these means over other samples; NaN where there is one sample."""
    samples: np.ndarray
    """Samples (V, P) per problem."""


def answers_of(right: ArrayLike, samples: ArrayLike) -> Answers:
    """From counts of right answers (N, V, P) among so many samples (V, P)."""
    counts = np.asarray(samples, float)
    means = np.asarray(right, float) / counts
    free = np.where(counts > 1, counts - 1, np.nan)
    return Answers(means, means * (1 - means) / free, counts)


def sampled_family(
    strata: Sequence[Answers], clusters: Sequence[Sequence[object] | None] = ()
) -> Family:
    """Families of differences between models. What seeds are in `rpg.stats.family`, samples are
    here: a verdict for these problems is about other samples, and takes two of every problem.
    """
    tables = [each.means[:, :, None] for each in strata]
    whole = replace(family(tables, clusters=clusters), sampled=True)
    sampling = _sampling(strata)
    added = np.maximum(whole.of_problems.variance - sampling.variance, 0.0)
    if np.isnan(sampling.variance).any():
        return replace(whole, of_seeds=replace(sampling, variance=np.zeros_like(added)))
    of_problems = replace(whole.of_problems, variance=added)
    return replace(whole, of_seeds=sampling, of_problems=of_problems, repeated=True)


def _sampling(strata: Sequence[Answers]) -> Part:
    """Variance of the differences over other samples, with Satterthwaite's (1946) degrees of
    freedom: a problem at which all samples agree counts for none."""
    variance = np.zeros(())
    spread = np.zeros(())
    for each in strata:
        scale = len(strata) * each.means.shape[-1]
        parts = each.variances / scale**2
        squares = parts**2 / np.maximum(each.samples - 1, 1)
        variance = variance + parts.sum(axis=-1)
        spread = spread + squares.sum(axis=-1)
    both = variance[:, 1:] + variance[:, :1]
    squares = spread[:, 1:] + spread[:, :1]
    df = np.ones_like(both)
    np.divide(both**2, squares, out=df, where=squares > 0)
    return Part(both, np.maximum(df, 1.0))


def smallest_found(family: Family, scope: str = OTHERS, samples: float = 1.0) -> np.ndarray:
    """About the smallest differences (N, m) that are found in 80 % of such comparisons, if so many
    times as many samples are drawn."""
    of_samples = replace(family.of_seeds, variance=family.of_seeds.variance / samples)
    error = replace(family, of_seeds=of_samples).variance(scope)
    p = many_to_one.alone_p(ERROR, family.comparisons, family.correlation)
    quantiles = special.stdtrit(error.df, 1 - p / 2) + special.stdtrit(error.df, POWER)
    return np.asarray(np.minimum(quantiles * np.sqrt(error.variance), 1.0))


def problems_needed(family: Family, problems: int, difference: float) -> np.ndarray:
    """About how many problems (N, m) like these find a difference in 80 % of comparisons."""
    return np.asarray(np.ceil(problems * (smallest_found(family) / difference) ** 2))


def samples_needed(family: Family, difference: float, scope: str = OTHERS) -> np.ndarray:
    """How many times as many samples (N, m) find it with these problems; infinite where none do."""
    found = np.full(family.difference.shape, np.inf)
    for factor in 2.0 ** np.arange(10, -0.1, -0.25):
        enough = smallest_found(family, scope, factor) <= difference
        found = np.where(enough, factor, found)
    return found
