"""Differences of several variants to one baseline, tested and bounded as one family. Why this test and no other:
docs/statistics.md; how it performs: `python -m benchmarks.error_rates`.

A difference is the mean over the same seeds and problems. Given the spreads of the seeds of both variants it is about
normal; what makes the test hard is that three seeds hardly show a spread. Two routes estimate it:

*together*: every variant has a spread of its own, but a priori these resemble each other; so the spreads of all variants
inform each (Bayes' rule on a grid). The baseline's resembles them least, because its seeds are in all differences.
*alone*: only the differences of this variant to the baseline, seed by seed, as in a t test.

In both, what the sampled answers alone would make seeds differ is known and spreads cannot be less. The p-value is the
smaller of the two, each divided by a share (`_SHARES`). Everything is computed for many families at once (first axis), as
simulations need it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

ERROR = 0.05
"""Share of families of equal variants in which any is called better or worse."""
MINIMUM_SEEDS = 3
"""Fewer give a difference and an interval, but no verdict: two seeds do not show how much seeds differ."""

_GRID = np.linspace(math.log(1e-3), math.log(1e3), 20)
"""Logarithms of a spread's variance, relative to the mean of all: where posteriors are evaluated."""
_RESEMBLANCE = (0.3, 1.0, 2.5)
"""How far the logarithms of variances may lie apart (standard deviations), equally likely a priori."""
_RESEMBLANCE_BASELINE = 2.5
_AGAINST_ZERO = 0.2, 0.35
"""Power of spread / (spread + noise) in the prior, together and alone: 0 would expect seeds that do not differ."""
CROWDING = 0.1
"""Power of the number of differences by which p-values grow: of many, the routes agree less often."""
_EDGE = 0.15
"""Share of the largest possible variance of problems that intervals assume near 0 and 1 (`Family`)."""
_SHARES = {3: (0.9, 0.65), 5: (0.65, 0.85), 10: (0.45, 1.0)}
"""Seeds -> share of the level for the routes together and alone; their sum exceeds 1 because they agree so often."""


class Family(NamedTuple):
    """What is known about N families of m differences: normal mixtures (N, m, K) for their errors on both routes.

    `excess` is the variance due to the choice of problems, with its degrees of freedom. Near 0 and 1 few problems carry a
    difference d, and others might not show it: there the variance is at least `edge` d (1 - d). `seeds` counts those
    that variant and baseline share.
    """

    difference: np.ndarray
    together: tuple[np.ndarray, np.ndarray]
    alone: tuple[np.ndarray, np.ndarray]
    excess: np.ndarray
    excess_df: np.ndarray
    edge: np.ndarray
    seeds: np.ndarray

    def p_values(self, truth: np.ndarray | float = 0.0) -> np.ndarray:
        """Two-sided p-values (N, m) of the hypotheses that the differences are `truth`, not corrected for their number."""
        size = np.abs(self.difference - truth)
        excess = np.maximum(self.excess, self.edge * np.abs(truth) * (1 - np.abs(truth)))
        together, alone = (self._tail(*route, size, excess) for route in (self.together, self.alone))
        shares = [
            np.interp(self.seeds, list(_SHARES), share) for share in zip(*_SHARES.values(), strict=True)
        ]
        p_values = np.minimum(together / shares[0], alone / shares[1])
        p_values *= (
            max(1.0, self.difference.shape[1] / 2) ** 0.1
        )  # many differences: the routes agree less often
        return np.asarray(np.where(self.seeds > 1, np.minimum(p_values, 1.0), together))

    def intervals(self, error: float) -> tuple[np.ndarray, np.ndarray]:
        """Bounds (N, m) within [-1, 1]: the truths whose p-value is at least `error`."""
        bounds = []
        for end in (-1.0, 1.0):
            inside, outside = self.difference, np.full_like(self.difference, end)
            outside = np.where(
                self.p_values(outside) < error, outside, inside
            )  # bisected, unless the end is inside
            whole = outside == inside
            for _ in range(26):
                middle = (inside + outside) / 2
                kept = self.p_values(middle) >= error
                inside, outside = np.where(kept, middle, inside), np.where(kept, outside, middle)
            bounds.append(np.where(whole, end, inside))
        return bounds[0], bounds[1]

    def _tail(
        self, weights: np.ndarray, variances: np.ndarray, size: np.ndarray, excess: np.ndarray
    ) -> np.ndarray:
        total = variances + excess[..., None]
        with np.errstate(divide="ignore", invalid="ignore"):
            square = np.where(size[..., None] > 0, size[..., None] ** 2 / total, 0.0)
            df = self.excess_df[..., None] * np.minimum(total / excess[..., None], 1e6) ** 2
            df = np.where(excess[..., None] > 0, df, 1e12)
            # Student's tail by Wallace's (1959) normal transformation, within one per cent where it matters here
            normal = np.sqrt(df * np.log1p(square / df)) * (8 * df + 1) / (8 * df + 3)
        return np.asarray((weights * 2 * special.ndtr(-normal)).sum(-1))


def family(strata: Sequence[np.ndarray], present: np.ndarray | None = None) -> Family:
    """From scores (N, V, S, P) per benchmark, the baseline first; `present` (V, S) says which seeds a variant has.

    Scores of absent seeds are ignored. Every variant needs a seed in common with the baseline, else ValueError.
    """
    arrays = [np.asarray(array, float) for array in strata]
    number, variants, seeds = arrays[0].shape[:3]
    present = np.ones((variants, seeds), bool) if present is None else np.asarray(present, bool)
    shared = present[1:] & present[0]
    if variants < 2 or not shared.any(axis=1).all():
        raise ValueError("every variant needs a seed that the baseline has too")
    parts = [_pair([a[:, [0, v + 1]][:, :, row] for a in arrays]) for v, row in enumerate(shared)]
    difference, problems, own, noise, excess_df = (
        np.stack(values, axis=1) for values in zip(*parts, strict=True)
    )
    counts = shared.sum(axis=1)
    excess = np.maximum(problems - noise, 0.0)
    means = [array.mean(axis=3) for array in arrays]
    shares = [(mean * present).sum(axis=2) / present.sum(axis=1) for mean in means]  # accuracies (N, V)
    rooms = [_edge((share[:, 1:] + share[:, :1]) / 2) for share in shares]
    edge = (
        np.sum([room / a.shape[3] for room, a in zip(rooms, arrays, strict=True)], axis=0) / len(arrays) ** 2
    )
    if counts.max() == 1:  # nothing is known about seeds: the error is that of problems
        nothing = np.ones((number, variants - 1, 1)), np.zeros((number, variants - 1, 1))
        return Family(difference, nothing, nothing, problems, excess_df, edge, counts)
    level = np.mean([share * (1 - share) for share in shares], axis=0)
    all_seeds = posterior_together(
        np.mean(means, axis=0), noise_of_answers(arrays, present), level, present, counts
    )
    return Family(difference, all_seeds, posterior_alone(own, noise, counts), excess, excess_df, edge, counts)


def _pair(arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Of (N, 2, S, P): difference, its variance due to problems, to seeds and to neither, df of the first; all (N,)."""
    size, parts = arrays[0].shape[2], len(arrays)
    per_seed: np.ndarray = np.zeros(())
    v_problems: np.ndarray = np.zeros(())
    v_noise: np.ndarray = np.zeros(())
    spread: np.ndarray = np.zeros(())
    for array in arrays:
        scores = array[:, 1] - array[:, 0]
        count = scores.shape[2]
        by_seed, by_problem = scores.mean(axis=2), scores.mean(axis=1)
        v = by_problem.var(axis=1, ddof=1) / count / parts**2 if count > 1 else np.full(len(scores), np.nan)
        per_seed, v_problems = per_seed + by_seed / parts, v_problems + v
        spread = spread + v**2 / max(count - 1, 1)
        if size > 1 and count > 1:
            rest = scores - by_seed[..., None] - by_problem[:, None] + by_seed.mean(axis=1)[:, None, None]
            v_noise = v_noise + (rest**2).sum(axis=(1, 2)) / (
                (size - 1) * (count - 1) * size * count * parts**2
            )
    own = per_seed.var(axis=1, ddof=1) / size if size > 1 else np.zeros(len(per_seed))
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(spread > 0, v_problems**2 / spread, 1.0)
    return per_seed.mean(axis=1), v_problems, own, v_noise + np.zeros(len(per_seed)), df


def _edge(accuracy: np.ndarray) -> np.ndarray:
    return np.asarray(_EDGE * (1 - 4 * accuracy * (1 - accuracy)))


def noise_of_answers(arrays: list[np.ndarray], present: np.ndarray) -> np.ndarray:
    """Variance (N, V) of one seed's mean that the answers alone would make: interaction of seeds and problems.

    What the variants of a seed have in common is taken out first, as it cancels in differences.
    """
    whole = present.all(axis=0)
    size, parts, variants = int(whole.sum()), len(arrays), len(present)
    total = np.zeros((len(arrays[0]), variants))
    if size < 2:
        return total
    for array in arrays:
        scores = array[:, :, whole]
        scores = scores - scores.mean(axis=1, keepdims=True)
        rest = scores - scores.mean(axis=2, keepdims=True) - scores.mean(axis=3, keepdims=True)
        rest = rest + scores.mean(axis=(2, 3), keepdims=True)
        count = scores.shape[3]
        total += (rest**2).sum(axis=(2, 3)) / ((size - 1) * max(count - 1, 1) * count * parts**2)
    mean = total.sum(axis=1, keepdims=True) / (variants - 1)
    if variants == 2:
        return np.asarray(np.repeat(mean, 2, axis=1))
    return np.asarray(np.maximum((total - mean / variants) / (1 - 2 / variants), mean / 10))


def posterior_alone(own: np.ndarray, noise: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of each difference's variance from its own seeds."""
    scale = np.maximum(np.maximum(own, noise), 1e-300)[..., None]
    spread = scale * np.exp(np.linspace(math.log(1e-4), math.log(1e3), 40))
    total = spread + noise[..., None]
    freedom = np.maximum(counts - 1, 1)[:, None]
    likelihood = -0.5 * freedom * (np.log(total / scale) + own[..., None] / total)
    return _normalised(likelihood + _AGAINST_ZERO[1] * np.log(spread / total)), total


def posterior_together(
    means: np.ndarray, noise: np.ndarray, level: np.ndarray, present: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of each difference's variance from the spreads of the seeds of all variants.

    Spreads resemble each other in logits: accuracies' spreads are in proportion to `level` (N, V), accuracy times its
    complement. Seeds are centred on what all variants share, variants weighted by their posterior precisions.
    """
    relative = np.maximum(level / np.maximum(level.max(axis=1, keepdims=True), 1e-300), 0.03) ** 2
    precision = np.broadcast_to(1.0 / len(present), means.shape[:2])
    squares, freedom = shared_out(means, precision, present)
    scale = np.maximum(squares.sum(axis=1) / (freedom * relative).sum(axis=1), noise.mean(axis=1))
    scale = np.maximum(scale, 1e-300)[:, None, None]
    spread = scale * np.exp(_GRID) * relative[..., None]
    total = spread + noise[..., None]  # (N, V, T)
    others = np.concatenate([_kernel(width) for width in _RESEMBLANCE], axis=1)
    first = np.concatenate([_kernel(max(width, _RESEMBLANCE_BASELINE)) for width in _RESEMBLANCE], axis=1)
    usual = scale[:, 0] * np.exp(_GRID)
    prior = _AGAINST_ZERO[0] * np.log(usual / (usual + noise.mean(axis=1)[:, None]))
    for step in range(4):
        likelihood = -0.5 * (freedom[..., None] * np.log(total / scale) + squares[..., None] / total)
        likelihood = np.exp(likelihood - likelihood.max(axis=2, keepdims=True))
        evidence = likelihood @ others
        evidence[:, 0] = likelihood[:, 0] @ first
        common = _normalised(np.log(evidence).sum(axis=1) + np.tile(prior, len(_RESEMBLANCE)))
        if step < 3:
            posterior = likelihood * ((common[:, None] / evidence) @ others.T)
            squares, freedom = shared_out(means, (posterior / total).sum(axis=2), present)
    weights, variances = [], []
    for v, count in enumerate(counts, start=1):
        joint = ((first * (common / evidence[:, 0] / evidence[:, v])[:, None]) @ others.T) * (
            likelihood[:, 0, :, None] * likelihood[:, v, None, :]
        )
        weights.append(joint.reshape(len(means), -1))
        variances.append(((total[:, 0, :, None] + total[:, v, None, :]) / count).reshape(len(means), -1))
    return np.stack(weights, axis=1), np.stack(variances, axis=1)


def shared_out(
    means: np.ndarray, precision: np.ndarray, present: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of squares (N, V) of what the seeds' shared part leaves, and their degrees of freedom."""
    weights = precision[..., None] * present
    own = present / present.sum(axis=1, keepdims=True)
    rest = np.where(present, means, 0.0)
    rest = rest - (rest * own).sum(axis=2, keepdims=True)
    share = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    for _ in range(1 if present.all() else 8):
        rest = rest - (share * rest).sum(axis=1, keepdims=True)
        rest = np.where(present, rest - (rest * own).sum(axis=2, keepdims=True), 0.0)
    taken = (share * own).sum(axis=2)
    freedom = np.maximum(present.sum(axis=1) - 1, 0) * (1 - taken)
    return (rest**2).sum(axis=2), freedom


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
    worst = np.maximum.accumulate(np.minimum(ranked * left, 1.0), axis=-1) if p_values.size else ranked
    corrected = np.empty_like(p_values)
    np.put_along_axis(corrected, order, worst, axis=-1)
    return corrected
