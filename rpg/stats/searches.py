"""What a search by trials shows: how good its best gets with more trials, and how wide the good
settings lie."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.stats import qmc

from rpg.stats.estimates import t_quantile

ENOUGH = 4
"""Trials per trial of a budget that an interval takes."""
POINTS = 12
"""The good region is measured at 2 ** POINTS points."""


def expected_best(values: ArrayLike) -> np.ndarray:
    """Expected highest of k of these n values, drawn without replacement, for k = 1 .. n: (..., n)
    from (..., n).

    The sum over the sorted x_(i) of C(i-1, k-1) / C(n, k) x_(i): Dodge et al. 2019, "Show Your
    Work" (arXiv 1909.03004), without the bias of drawing from the empirical distribution (Tang et
    al. 2020, arXiv 2004.13705).
    """
    ranked = np.sort(np.asarray(values, float), axis=-1)
    drawn = np.arange(1, ranked.shape[-1] + 1)
    rank = drawn[:, None]
    ways = np.where(rank >= drawn, special.binom(rank - 1, drawn - 1), 0.0)
    all_ways = special.binom(len(drawn), drawn)
    return np.asarray(ranked @ (ways / all_ways))


class Effort(NamedTuple):
    """What variants (rows) are expected to reach with k = 1, 2, ... trials (columns), and half of
    its 95 % intervals."""

    best: np.ndarray
    half: np.ndarray
    """NaN from a quarter of the trials on: no interval holds where the best of all trials decides.
    """

    def lead(self, trials: int) -> tuple[int, float, float]:
        """The variant that is expected to reach most with this many trials, how far it is ahead of
        the next, and half of the 95 % interval of that."""
        column = self.best[:, trials - 1]
        halves = self.half[:, trials - 1]
        first, second = np.argsort(-column, kind="stable")[:2]
        half = np.hypot(halves[first], halves[second])
        return int(first), float(column[first] - column[second]), float(half)


def effort(values: Sequence[np.ndarray], most: int) -> Effort:
    """From the trials of each variant (two at least), to `most` trials or as far as all have as
    many."""
    most = min(most, *map(len, values))
    best = np.zeros((len(values), most))
    halves = np.full((len(values), most), np.nan)
    for row, each in enumerate(values):
        best[row] = expected_best(each)[:most]
        few = min(most, max(1, len(each) // ENOUGH))
        halves[row, :few] = jackknife(each, few)
    return Effort(best, halves)


def jackknife(values: np.ndarray, most: int) -> np.ndarray:
    """Half of the 95 % intervals of the expected best of k = 1 .. `most` < n trials: Student's,
    with the jackknife's variance over trials, which errs to the safe side (Efron & Stein 1981;
    `python -m benchmarks.expected_best`)."""
    n = len(values)
    without_one = np.stack([np.delete(values, at) for at in range(n)])
    best = expected_best(without_one)[:, :most]
    variance = (n - 1) ** 2 / n * best.var(axis=0, ddof=1)
    return np.asarray(t_quantile(n - 1) * np.sqrt(variance))


def good_region(places: np.ndarray, good: np.ndarray, choices: Mapping[int, int]) -> float:
    """Share of the searched space whose nearest trial is `good` (n,), by the trials' `places` (n,
    fields) in [0, 1].

    A field of `choices` {column: how many} has the number of the choice as its place, which is near
    to itself alone.
    """
    points = qmc.Sobol(places.shape[1], seed=0).random_base2(POINTS)
    square = np.zeros((len(points), len(places)))
    for column, place in enumerate(places.T):
        if column in choices:
            square += np.floor(points[:, column, None] * choices[column]) != place
        else:
            square += (points[:, column, None] - place) ** 2
    return float(good[square.argmin(axis=1)].mean())
