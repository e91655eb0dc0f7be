"""Differences of several variants to one baseline, tested and bounded as one family. Why by two
routes, pooled and pairwise: docs/statistics.md; how they perform: `python -m
benchmarks.error_rates`.

Everything is computed for many families at once (first axis), as simulations need it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from rpg.stats.estimates import components, problems_df

ERROR = 0.05
"""Share of families of equal variants in which any is called better or worse."""
MINIMUM_SEEDS = 3
"""Fewer give a difference and an interval, but no verdict: two seeds do not show how much seeds
differ."""

_GRID = np.linspace(math.log(1e-3), math.log(1e3), 20)
"""Logarithms of a spread's variance, relative to the mean of all: where posteriors are evaluated.
"""
_RESEMBLANCE = (0.3, 1.0, 2.5)
"""How far the logarithms of variances may lie apart (standard deviations), equally likely a priori.
"""
_RESEMBLANCE_BASELINE = 2.5
_AGAINST_ZERO = 0.2, 0.35
"""Power of spread / (spread + noise) in the prior, pooled and pairwise: 0 would expect seeds that
do not differ."""
_EDGE = 0.15
"""Share of the largest possible variance of problems that intervals assume near 0 and 1 (`Family`).
"""
_SHARES = {3: (0.9, 0.65, 0.0), 5: (0.65, 0.85, 0.1), 10: (0.35, 1.0, 0.0)}
"""Seeds -> share of the level for the routes pooled and pairwise, whose sum exceeds 1 because they
agree so often; and the power of the number of differences by which p-values grow: with many, a tail
that is a little wrong errs more often."""
_MANY = 10
"""Seeds from which on Satterthwaite's degrees of freedom hold in the tail (with five they do not
for 15 variants)."""
_FEW = 14, 19
"""Degrees of freedom of the problems up to which the subtracted noise counts in those of their
variance, and from which not: from 20 problems on that would cost power and change no level."""
_NOTHING_TO_POOL = 0.85
"""Least share of the pairwise route where it is the only one: with two variants."""

_ROUNDING = 1e-20
"""Variances below this are of rounding: scores are between 0 and 1."""

Mixture = tuple[np.ndarray, np.ndarray, np.ndarray | float]
"""Weights and variances (N, m, K) of normal distributions with mean 0, the error of each
difference; and the variances' degrees of freedom, infinite where the weights say how little is
known."""


class Family(NamedTuple):
    """What is known about N families of m differences: the distributions of their errors on both
    routes.

    `excess` are coefficients a, b, c: if the truth is d, the variance due to the choice of problems
    is a + b d + c d^2. Near 0 and 1 few problems carry a difference, and others might not show it:
    there it is at least `edge` d (1 - d). In any case it is at most `most[0]` - `most[1]` d^2, that
    of problems of which one variant solves all and the other none.
    """

    difference: np.ndarray
    pooled: Mixture
    pairwise: Mixture
    excess: tuple[np.ndarray, np.ndarray, np.ndarray]
    excess_df: np.ndarray
    edge: np.ndarray
    most: tuple[float, float]
    seeds: int
    noise: tuple[np.ndarray | float, np.ndarray | float] = (0.0, 0.0)
    """What `excess` is without, as far as its degrees of freedom count it, and the sum of v^2 / df
    of that."""

    def due_to_problems(self, truth: np.ndarray | float = 0.0) -> np.ndarray:
        """Variance (N, m) of the differences due to the choice of problems, if they are `truth` in
        truth."""
        least = self.edge * np.abs(truth) * (1 - np.abs(truth))
        return np.asarray(np.minimum(np.maximum(self._estimate(truth), least), self._most(truth)))

    def _estimate(self, truth: np.ndarray | float) -> np.ndarray:
        constant, linear, square = self.excess
        return constant + truth * (linear + truth * square)

    def _most(self, truth: np.ndarray | float) -> np.ndarray | float:
        return self.most[0] - self.most[1] * truth**2

    def p_values(self, truth: np.ndarray | float = 0.0) -> np.ndarray:
        """Two-sided p-values (N, m) of the hypotheses that the differences are `truth`, not
        corrected for their number."""
        size = np.abs(self.difference - truth)
        excess = self.due_to_problems(truth)
        observed = np.maximum(excess, self._estimate(truth) + self.noise[0])
        bounded = excess >= self._most(truth)  # a bound is no estimate
        spread = np.where(bounded, 0.0, observed**2 / self.excess_df) + self.noise[1]
        pooled = self._tail(self.pooled, size, excess, spread)
        if self.seeds == 1:
            return pooled
        columns = zip(*_SHARES.values(), strict=True)
        *shares, crowding = (np.interp(self.seeds, list(_SHARES), column) for column in columns)
        pairwise = self._tail(self.pairwise, size, excess, spread)
        differences = self.difference.shape[1]
        if differences == 1:
            return np.asarray(np.minimum(pairwise / max(shares[1], _NOTHING_TO_POOL), 1.0))
        smaller = np.minimum(pooled / shares[0], pairwise / shares[1])
        return np.asarray(np.minimum(smaller * (differences / 2) ** crowding, 1.0))

    def intervals(self, error: float) -> tuple[np.ndarray, np.ndarray]:
        """Bounds (N, m) within [-1, 1]: the truths whose p-value is at least `error`."""
        bounds = []
        for end in (-1.0, 1.0):
            inside, outside = self.difference, np.full_like(self.difference, end)
            whole = self.p_values(outside) >= error
            for _ in range(26):
                middle = (inside + outside) / 2
                kept = self.p_values(middle) >= error
                inside, outside = np.where(kept, middle, inside), np.where(kept, outside, middle)
            bounds.append(np.where(whole, end, inside))
        return bounds[0], bounds[1]

    def _tail(
        self, error: Mixture, size: np.ndarray, excess: np.ndarray, excess_spread: np.ndarray
    ) -> np.ndarray:
        weights, variances, seeds_df = error
        total = variances + excess[..., None]
        with np.errstate(divide="ignore", invalid="ignore"):
            square = np.where(size[..., None] > 0, size[..., None] ** 2 / total, 0.0)
            df = total**2 / (variances**2 / seeds_df + excess_spread[..., None])
            df = np.fmin(df, 1e12)  # also where both are zero
            # Student's tail by Wallace's (1959) normal transformation, within one per cent where it
            # matters here
            normal = np.sqrt(df * np.log1p(square / df)) * (8 * df + 1) / (8 * df + 3)
        return np.asarray((weights * 2 * special.ndtr(-normal)).sum(-1))


def family(strata: Sequence[np.ndarray]) -> Family:
    """From scores (N, V, S, P) per benchmark; the first of V variants is the baseline."""
    arrays = [np.asarray(array, float) for array in strata]
    seeds = arrays[0].shape[2]
    means = np.mean([array.mean(axis=3) for array in arrays], axis=0)
    apart = means[:, 1:] - means[:, :1]
    unshifted, slopes = without_shifts(arrays)
    pairs = [array[:, 1:] - array[:, :1] for array in unshifted]
    pair, square = components(pairs), components(slopes).problems
    moved = [
        array.mean(axis=2, keepdims=True) + slope
        for array, slope in zip(pairs, slopes, strict=True)
    ]
    excess = pair.problems - pair.both, components(moved).problems - pair.problems - square, square
    with np.errstate(divide="ignore", invalid="ignore"):
        excess_df = np.where(pair.problems_spread > 0, pair.problems**2 / pair.problems_spread, 1.0)
    accuracies = [array.mean(axis=(2, 3)) for array in arrays]  # (N, V)
    middles = [(each[:, 1:] + each[:, :1]) / 2 for each in accuracies]
    edge = sum(
        _EDGE * (1 - 4 * p * (1 - p)) / a.shape[3] for p, a in zip(middles, arrays, strict=True)
    )
    edge = edge / len(arrays) ** 2
    # Of problems whose differences lie within [-1, 1]: the largest variance of their mean, over how
    # benchmarks share it.
    problems = np.array([array.shape[3] for array in arrays])
    counted = float(np.interp(problems_df(problems), _FEW, (1.0, 0.0)))
    noise = counted * pair.both, counted * pair.both_spread
    most = float((1 / problems).sum() / len(arrays) ** 2), float(1 / problems.sum())
    difference = apart.mean(axis=2)
    if seeds == 1:  # nothing is known about seeds: the error is that of problems
        nothing = np.ones((*difference.shape, 1)), np.zeros((*difference.shape, 1)), math.inf
        return Family(difference, nothing, nothing, excess, excess_df, edge, most, 1)
    level = np.mean([share * (1 - share) for share in accuracies], axis=0)
    pooled = posterior_pooled(means, noise_of_answers(unshifted), level)
    of_seeds = apart.var(axis=2, ddof=1) / seeds
    if seeds < _MANY:
        pairwise = posterior_pairwise(of_seeds, pair.both, seeds)
    else:
        variances = np.maximum(of_seeds, np.minimum(pair.both, pair.problems))
        with np.errstate(divide="ignore", invalid="ignore"):
            seeds_df = (seeds - 1) * (variances / of_seeds) ** 2
        pairwise = np.ones_like(variances)[..., None], variances[..., None], seeds_df[..., None]
    return Family(difference, pooled, pairwise, excess, excess_df, edge, most, seeds, noise)


def without_shifts(arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Scores without what a shift of the logits of all problems explains of them, and how much it
    moves each problem.

    A shift moves a problem of accuracy p in proportion to p (1 - p); the slopes (N, 1, 1, P) have
    mean 1 over benchmarks. The problems' variance of what is left is that of a ratio estimator
    (Cochran, Sampling Techniques, 1977, ch. 6), which does not grow with the difference itself.
    """
    shares = [array.mean(axis=(1, 2), keepdims=True) for array in arrays]
    slopes = [share * (1 - share) for share in shares]
    mean = np.mean([slope.mean(axis=3, keepdims=True) for slope in slopes], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = [np.where(mean > _ROUNDING, slope / mean, 1.0) for slope in slopes]
    means = np.mean([array.mean(axis=3, keepdims=True) for array in arrays], axis=0)
    return [array - means * slope for array, slope in zip(arrays, slopes, strict=True)], slopes


def noise_of_answers(arrays: list[np.ndarray]) -> np.ndarray:
    """Variance (N, V) of one seed's mean that the answers alone would make: interaction of seeds
    and problems.

    What the variants of a seed have in common is taken out first, as it cancels in differences.
    """
    _, variants, seeds, _ = arrays[0].shape
    total = seeds * components([array - array.mean(axis=1, keepdims=True) for array in arrays]).both
    mean = total.sum(axis=1, keepdims=True) / (variants - 1)
    if variants == 2:
        return np.asarray(np.repeat(mean, 2, axis=1))
    return np.asarray(np.maximum((total - mean / variants) / (1 - 2 / variants), mean / 10))


def posterior_pairwise(observed: np.ndarray, noise: np.ndarray, seeds: int) -> Mixture:
    """Posterior of each difference's variance from its seeds: `observed` variance of their mean,
    and that by answers."""
    scale = np.maximum(np.maximum(observed, noise), _ROUNDING)[..., None]
    spread = scale * np.exp(np.linspace(math.log(1e-4), math.log(1e3), 40))
    total = spread + noise[..., None]
    likelihood = -0.5 * (seeds - 1) * (np.log(total) + observed[..., None] / total)
    return _normalised(likelihood + _AGAINST_ZERO[1] * np.log(spread / total)), total, math.inf


def posterior_pooled(means: np.ndarray, noise: np.ndarray, level: np.ndarray) -> Mixture:
    """Posterior of each difference's variance from the spreads of all variants' seeds; `means` are
    (N, V, S).

    Spreads resemble each other in logits: accuracies' spreads are in proportion to `level` (N, V),
    accuracy times its complement. Seeds are centred on what all variants share, variants weighted
    by their posterior precisions. A variant that is always wrong or always right shows nothing
    about seeds, so it takes no part if three others do.
    """
    seeds = means.shape[2]
    relative = np.maximum(level / np.maximum(level.max(axis=1, keepdims=True), 1e-300), 0.03) ** 2
    varies = level > 0
    part = np.where(varies.sum(axis=1, keepdims=True) < 3, 1.0, varies)
    squares, freedom = shared_out(means, part)
    scale = np.maximum(squares.sum(axis=1) / (freedom * relative).sum(axis=1), noise.mean(axis=1))
    scale = np.maximum(scale, _ROUNDING)[:, None, None]
    spread = scale * np.exp(_GRID) * relative[..., None]
    total = spread + noise[..., None]  # (N, V, T)
    others = np.concatenate([_kernel(width) for width in _RESEMBLANCE], axis=1)
    first = np.concatenate(
        [_kernel(max(width, _RESEMBLANCE_BASELINE)) for width in _RESEMBLANCE], axis=1
    )
    usual = scale[:, 0] * np.exp(_GRID)
    prior = _AGAINST_ZERO[0] * np.log(usual / (usual + noise.mean(axis=1)[:, None]))
    for step in range(4):
        likelihood = -0.5 * (freedom[..., None] * np.log(total) + squares[..., None] / total)
        likelihood = np.exp(likelihood - likelihood.max(axis=2, keepdims=True))
        evidence = likelihood @ others
        evidence[:, 0] = likelihood[:, 0] @ first
        evidence = np.maximum(
            evidence, 1e-290
        )  # a variant unlike all others: some common spreads cannot be
        common = _normalised(np.log(evidence).sum(axis=1) + np.tile(prior, len(_RESEMBLANCE)))
        if step < 3:
            posterior = likelihood * ((common[:, None] / evidence) @ others.T)
            squares, freedom = shared_out(means, part * (posterior / total).sum(axis=2))
    of_baseline = (first * (common / evidence[:, 0])[:, None])[:, None]  # (N, 1, T, common)
    of_variant = others.T * likelihood[:, 1:, None] / evidence[:, 1:, :, None]  # (N, m, common, T)
    weights = (of_baseline @ of_variant) * likelihood[:, :1, :, None]
    variances = (total[:, :1, :, None] + total[:, 1:, None]) / seeds
    shape = (*weights.shape[:2], -1)
    return weights.reshape(shape), variances.reshape(shape), math.inf


def shared_out(means: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of squares (N, V) of what the seeds' shared part leaves, and their degrees of freedom;
    none without precision."""
    share = precision / np.maximum(precision.sum(axis=1, keepdims=True), 1e-300)
    residuals = means - means.mean(axis=2, keepdims=True)
    residuals = residuals - (share[..., None] * residuals).sum(axis=1, keepdims=True)
    has_precision = precision > 0
    return (residuals**2).sum(axis=2) * has_precision, (means.shape[2] - 1) * (
        1 - share
    ) * has_precision


def _kernel(width: float) -> np.ndarray:
    """Column k: how likely a variant's spread is where the common one is the k-th of the grid."""
    density = np.exp(-0.5 * ((_GRID[:, None] - _GRID) / width) ** 2)
    return np.asarray(density / density.sum(axis=0))


def _normalised(logarithms: np.ndarray) -> np.ndarray:
    weights = np.exp(logarithms - logarithms.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def verdict(difference: float, p_corrected: float) -> str:
    """`better`, `worse` or `within noise` at the 5 % level; `not testable` without a p-value."""
    if math.isnan(p_corrected):
        return "not testable"
    if p_corrected > ERROR or difference == 0:
        return "within noise"
    return "better" if difference > 0 else "worse"


def holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's step-down correction (1979) of families (..., m); NaN stays NaN and does not count."""
    p_values = np.asarray(p_values, float)
    order = np.argsort(p_values, axis=-1)  # NaN last
    ranked = np.take_along_axis(p_values, order, axis=-1)
    left = np.isfinite(ranked).sum(axis=-1, keepdims=True) - np.arange(p_values.shape[-1])
    worst = (
        np.maximum.accumulate(np.minimum(ranked * left, 1.0), axis=-1) if p_values.size else ranked
    )
    corrected = np.empty_like(p_values)
    np.put_along_axis(corrected, order, worst, axis=-1)
    return corrected
