"""Times to something that some runs have not reached when they ended: censored, never left out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy  # scipy.stats takes two seconds: it is loaded where there are times to compare

_EXACT = 4_000
"""Rearrangements up to which a test goes through all of them."""


class Times(NamedTuple):
    """When runs reached something (`reached`), or how far they came without it (`unfinished`)."""

    reached: tuple[float, ...]
    unfinished: tuple[float, ...] = ()

    @property
    def data(self) -> scipy.stats.CensoredData:
        return scipy.stats.CensoredData(uncensored=self.reached, right=self.unfinished)


def median_time(times: Times) -> float | None:
    """The Kaplan-Meier estimate of the time by which half of such runs have reached it; None where
    too few have."""
    if not times.reached:
        return None
    survival = scipy.stats.ecdf(times.data).sf
    half = survival.quantiles[survival.probabilities <= 0.5 + 1e-12]
    return float(half[0]) if len(half) else None


def compare_times(a: Times, b: Times) -> float:
    """p of the log-rank test that both have the same times, two-sided, by rearranging runs between
    the two: exact for few runs, where the normal approximation is not."""
    if not a.reached and not b.reached:
        return 1.0
    x = [(time, 1.0) for time in a.reached] + [(time, 0.0) for time in a.unfinished]
    y = [(time, 1.0) for time in b.reached] + [(time, 0.0) for time in b.unfinished]
    runs = np.array([*x, *y])
    numbers = np.arange(len(runs))

    def statistic(first: np.ndarray, second: np.ndarray) -> float:
        return _logrank(runs[first.astype(int)], runs[second.astype(int)])

    result = scipy.stats.permutation_test(
        (numbers[: len(x)], numbers[len(x) :]),
        statistic,
        permutation_type="independent",
        n_resamples=_EXACT,
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def _logrank(first: np.ndarray, second: np.ndarray) -> float:
    with np.errstate(invalid="ignore", divide="ignore"):  # nobody reaches it, or all at one time
        tested = scipy.stats.logrank(_of(first), _of(second))
    return float(np.nan_to_num(tested.statistic))


def _of(rows: np.ndarray) -> scipy.stats.CensoredData:
    has_reached = rows[:, 1] > 0
    return scipy.stats.CensoredData(uncensored=rows[has_reached, 0], right=rows[~has_reached, 0])
