"""Estimates with honest intervals, from few seeds and problems. Formulas and their limits:
docs/statistics.md.

Scores are arrays (S, P): one row per seed, one column per problem, each entry the share of right
samples. Several benchmarks are a list of such arrays with the same seeds ("strata"): their estimate
is the plain mean of the benchmarks' means.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

LEVEL = 0.95


class Estimate(NamedTuple):
    """A mean, its standard error, degrees of freedom and 95 % interval (NaN where nothing can be
    said)."""

    mean: float
    standard_error: float
    df: float
    low: float
    high: float
    seeds: int
    problems: int


def pass_at_k(samples: ArrayLike, correct: ArrayLike, k: int) -> np.ndarray:
    """Unbiased chance that at least one of k samples is right, per problem: 1 - C(n-c, k) / C(n,
    k).

    `samples` n and `correct` c are (P,) counts with n >= k >= 1, else ValueError. Chen et al. 2021
    (arXiv 2107.03374), eq. 1.
    """
    n = np.asarray(samples, float)
    c = np.asarray(correct, float)
    if k < 1 or (n < k).any() or (c > n).any() or (c < 0).any():
        raise ValueError(
            f"pass@{k} needs at least {k} samples per problem and 0 <= correct <= samples"
        )
    index = np.arange(k)[:, None]
    return np.asarray(1 - np.prod(np.maximum(n - c - index, 0) / (n - index), axis=0))


def majority_at_k(answers: Sequence[str | None], correct: Sequence[bool]) -> float:
    """Chance that a problem's most frequent answer is right, ties broken at random; None does not
    vote."""
    votes: dict[str, list[bool]] = {}
    for answer, right in zip(answers, correct, strict=True):
        if answer is not None:
            votes.setdefault(answer, []).append(right)
    if not votes:
        return 0.0
    top = max(map(len, votes.values()))
    return float(np.mean([np.mean(right) for right in votes.values() if len(right) == top]))


def t_quantile(df: ArrayLike) -> np.ndarray:
    """Two-sided 95 % quantile of Student's t, NaN where df < 1."""
    df = np.asarray(df, float)
    return np.where(df >= 1, special.stdtrit(np.maximum(df, 1), (1 + LEVEL) / 2), np.nan)


def accuracy(strata: Sequence[ArrayLike]) -> Estimate:
    """Mean accuracy of a variant, with the standard error of `crossed` and Wilson's (1927) interval
    for as many independent trials; Clopper and Pearson's for as many trials as there are problems
    if all samples agree.
    """
    estimate = crossed(strata)
    mean = estimate.mean
    error = estimate.standard_error
    if error == 0 and mean in (0.0, 1.0):
        slack = 1 - ((1 - LEVEL) / 2) ** (1 / estimate.problems)
        low = 0.0 if mean == 0 else 1 - slack
        high = slack if mean == 0 else 1.0
    elif error > 0 and 0 < mean < 1:
        center, half = _wilson(mean, error, quantile=float(t_quantile(estimate.df)))
        low = center - half
        high = center + half
    else:
        low = estimate.low
        high = estimate.high
    return estimate._replace(low=max(0.0, low), high=min(1.0, high))


def _wilson(mean: float, error: float, quantile: float) -> tuple[float, float]:
    """Centre and half width of Wilson's interval for the number of independent trials that would
    have this standard error."""
    spread = mean * (1 - mean)
    weight = (quantile * error) ** 2 / spread  # quantile^2 / number of trials
    center = (mean + weight / 2) / (1 + weight)
    half = math.sqrt(weight * (spread + weight / 4)) / (1 + weight)
    return center, half


class Components(NamedTuple):
    """Of the mean of scores (..., S, P): its variance due to problems, to seeds and to their
    interaction (which the other two contain), and for problems and interaction the sum of v^2 / df
    over benchmarks (Satterthwaite)."""

    mean: np.ndarray
    problems: np.ndarray
    seeds: np.ndarray
    both: np.ndarray
    problems_spread: np.ndarray
    both_spread: np.ndarray


def components(strata: Sequence[np.ndarray]) -> Components:
    """Variance components of the plain mean of benchmarks' means, from an array (..., S, P_b) for
    each benchmark; NaN where a benchmark has one problem.

    Crossed random effects, see Brennan, Generalizability Theory (2001), ch. 3. Problems are never
    pooled across benchmarks: the spread between benchmarks is no noise.
    """
    size = strata[0].shape[-2]
    parts = len(strata)
    per_seed = np.asarray(sum(array.mean(axis=-1) for array in strata)) / parts
    nothing = np.zeros(per_seed.shape[:-1])
    problems = nothing
    problems_spread = nothing
    both = nothing
    both_spread = nothing
    for array in strata:
        count = array.shape[-1]
        of_seeds = array.mean(axis=-1, keepdims=True)
        of_problems = array.mean(axis=-2, keepdims=True)
        whole = of_problems.mean(axis=-1, keepdims=True)

        squares = ((of_problems - whole) ** 2).sum(axis=(-2, -1))
        with np.errstate(invalid="ignore"):  # NaN for one problem
            variance = squares / np.float64(count - 1)
        part = variance / count / parts**2
        problems = problems + part
        problems_spread = problems_spread + part**2 / max(count - 1, 1)

        interaction = array - of_problems - of_seeds + whole
        df = max((size - 1) * (count - 1), 1)
        part = (interaction**2).sum(axis=(-2, -1)) / df / (size * count) / parts**2
        both = both + part
        both_spread = both_spread + part**2 / df

    seeds = np.zeros(per_seed.shape[:-1])
    if size > 1:
        seeds = per_seed.var(axis=-1, ddof=1) / size
    return Components(
        mean=per_seed.mean(axis=-1),
        problems=problems,
        seeds=seeds,
        both=both,
        problems_spread=problems_spread,
        both_spread=both_spread,
    )


def problems_df(problems: ArrayLike) -> float:
    """Satterthwaite's degrees of freedom of the mean of benchmarks of these sizes whose problems
    all vary alike."""
    count = np.asarray(problems, float)
    return float((1 / count).sum() ** 2 / (1 / (count**2 * np.maximum(count - 1, 1e-9))).sum())


def crossed(strata: Sequence[ArrayLike]) -> Estimate:
    """Mean of benchmark means with the standard error of a two-way random-effects model, seeds x
    problems.

    `strata` holds one (S, P_b) array per benchmark b, rows being the same seeds; ValueError for
    other shapes. Degrees of freedom after Satterthwaite (1946).
    """
    arrays = [np.asarray(array, float) for array in strata]
    seeds = _seeds_of(arrays)
    problems = sum(array.shape[1] for array in arrays)
    parts = components(arrays)

    both_ways = parts.problems + parts.seeds - parts.both
    variance = float(max(both_ways, parts.problems, parts.seeds))
    seeds_spread = parts.seeds**2 / max(seeds - 1, 1)
    spread = float(parts.problems_spread + parts.both_spread + seeds_spread)
    df = float(problems - len(arrays))
    if spread > 0:
        df = max(1.0, variance**2 / spread)

    mean = float(parts.mean)
    error = math.sqrt(variance)
    half = float(t_quantile(df)) * error
    return Estimate(
        mean=mean,
        standard_error=error,
        df=df,
        low=mean - half,
        high=mean + half,
        seeds=seeds,
        problems=problems,
    )


def _seeds_of(arrays: Sequence[np.ndarray]) -> int:
    """The number of seeds, the same in every array (S, P)."""
    are_tables = all(array.ndim == 2 and array.size > 0 for array in arrays)
    seeds = {len(array) for array in arrays} if are_tables else set()
    if len(seeds) != 1:
        raise ValueError(
            "expected non-empty arrays (seeds, problems) with the same number of seeds"
        )
    return seeds.pop()
