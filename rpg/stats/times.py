"""Times to something that some runs have not reached when they ended: censored, never left out."""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy  # scipy.stats takes two seconds: it is loaded where there are times to compare

_EXACT = 4_000
"""Rearrangements up to which a test goes through all of them; of more it draws this many."""


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
    times = np.array([*a.reached, *a.unfinished, *b.reached, *b.unfinished])
    first = len(a.reached) + len(a.unfinished)
    has_reached = np.zeros(len(times), bool)
    has_reached[: len(a.reached)] = True
    has_reached[first : first + len(b.reached)] = True

    observed = np.arange(len(times)) < first
    others = _rearrangements(len(times), first)
    values = _logrank(times, has_reached, np.vstack([observed, others]))
    margin = 1e-9 * max(1.0, abs(values[0]))  # rearrangements as far away as the observed one
    extremes = [(values >= values[0] - margin).mean(), (values <= values[0] + margin).mean()]
    return float(min(1.0, 2 * min(extremes)))


@functools.lru_cache(maxsize=8)  # every variant of a sweep is compared with its baseline
def _rearrangements(runs: int, first: int) -> np.ndarray:
    """(M, runs), true for those in the first group: all but the observed one, or a sample."""
    if math.comb(runs, first) <= _EXACT:
        groups = np.zeros((math.comb(runs, first), runs), bool)
        for row, chosen in enumerate(itertools.combinations(range(runs), first)):
            groups[row, list(chosen)] = True
        return groups[1:]  # the first combination is the observed one
    ranks = np.random.default_rng(0).random((_EXACT, runs)).argsort(axis=1)
    return ranks < first


def _logrank(times: np.ndarray, has_reached: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The log-rank statistic of each row of `groups` (M, runs): reached in the first group less
    expected, over its standard deviation; 0 where that is 0, as where all reach it at one time."""
    moments = np.unique(times[has_reached])
    at_risk = times >= moments[:, None]  # (moments, runs)
    reaches = has_reached & (times == moments[:, None])
    total = at_risk.sum(axis=1)
    reached = reaches.sum(axis=1)
    share = groups @ at_risk.T.astype(float) / total  # of those at risk, in the first group
    excess = (groups @ reaches.T.astype(float) - reached * share).sum(axis=1)
    spread = reached * (total - reached) / np.maximum(total - 1, 1)
    variance = (share * (1 - share) * spread).sum(axis=1)
    deviation = np.sqrt(variance)
    statistic: np.ndarray = np.zeros_like(excess)
    np.divide(excess, deviation, out=statistic, where=deviation > 0)
    return statistic
