"""Summaries of scores (seeds, problems) that a mean hides, with the intervals of `crossed`, and
ranks with intervals.

Interquartile mean, probability of improvement and performance profile are those of Agarwal et al.
2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (arXiv 2108.13264),
sec. 4, with problems for tasks. Each is written as the mean of one number per seed and problem (its
influence), since one training answers all problems (docs/studies.md).
"""

from typing import NamedTuple

import numpy as np
from scipy import stats as distributions

from rpg.stats.comparisons import ERROR, family, holm
from rpg.stats.estimates import Estimate, accuracy, crossed
from rpg.stats.verdicts import MINIMUM_SEEDS


def interquartile_mean(scores: np.ndarray) -> Estimate:
    """Mean of the middle half of all scores (S, P); without an interval where that half is all
    alike."""
    middle = float(distributions.trim_mean(scores, 0.25, axis=None))
    inside = np.clip(scores, *np.quantile(scores, (0.25, 0.75)))
    estimate = crossed([middle + 2 * (inside - inside.mean())])
    if not inside.std():
        return estimate._replace(low=np.nan, high=np.nan)
    return estimate._replace(low=max(0.0, estimate.low), high=min(1.0, estimate.high))


def probability_of_improvement(scores: np.ndarray, other: np.ndarray) -> Estimate:
    """Chance that a training scores higher than one of the `other` variant on the same problem, a
    tie counting half.

    Both (S, P), rows being the same seeds; any seed of the one is compared with any of the other.
    """
    wins = (np.sign(scores[:, None] - other[None]) + 1) / 2  # (S, S, P)
    return accuracy([wins.mean(axis=1) + wins.mean(axis=0) - wins.mean(axis=(0, 1))])


class Rank(NamedTuple):
    """The place of a variant by its mean, 1 the highest, and the places it may have."""

    place: int
    low: int
    high: int


def ranks(strata: list[np.ndarray]) -> list[Rank]:
    """From scores (V, S, P) per benchmark. All intervals together hold the true ranks in 95 % of
    studies.

    All pairs of variants are tested as one family (Mogstad et al. 2024, "Inference for Ranks",
    Review of Economic Studies 91). With fewer than three seeds every place is possible.
    """
    means = np.mean([array.mean(axis=(1, 2)) for array in strata], axis=0)
    variants = len(means)
    different = _pairs_that_differ(strata)
    above = means[:, None] > means
    result = []
    for at in range(variants):
        higher = above[:, at]
        lower = above[at]
        surely_higher = int((different[at] & higher).sum())
        surely_lower = int((different[at] & lower).sum())
        rank = Rank(
            place=1 + int(higher.sum()), low=1 + surely_higher, high=variants - surely_lower
        )
        result.append(rank)
    return result


def _pairs_that_differ(strata: list[np.ndarray]) -> np.ndarray:
    """Whether two variants differ, (V, V), all pairs being one family."""
    variants, seeds = strata[0].shape[:2]
    p = np.ones((variants, variants))
    if seeds >= MINIMUM_SEEDS and variants > 1:
        for baseline in range(variants):
            others = [variant for variant in range(variants) if variant != baseline]
            order = [baseline, *others]
            compared = family([array[None, order] for array in strata])
            p[baseline, others] = compared.p_values()[0]
    either = np.maximum(p, p.T)  # either of a pair may be the baseline
    pairs = np.triu_indices(variants, 1)
    corrected = np.ones_like(p)
    corrected[pairs] = holm(either[pairs])
    return np.asarray(np.minimum(corrected, corrected.T) <= ERROR)
