"""Times to an accuracy, with runs that have not reached it."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import CensoredData, logrank

from benchmarks import times_level
from rpg.stats.times import Times, compare_times, median_time


def test_the_median_is_kaplan_meiers():
    # Survival falls to 3/4 at 10, to 3/4 * 1/2 = 3/8 at 20: one of four left unfinished at 15.
    assert median_time(Times(reached=(10.0, 20.0, 30.0), unfinished=(15.0,))) == 20.0
    assert median_time(Times(reached=(10.0, 20.0, 30.0))) == 20.0
    assert median_time(Times(reached=(10.0,), unfinished=(40.0, 40.0))) is None
    assert median_time(Times(reached=(), unfinished=(40.0,))) is None


COMPARED = {
    "three of four reach it": (Times((3, 5, 6), (9,)), Times((7, 8), (9, 9))),
    "one sooner": (Times((4, 5, 5), (2,)), Times((3, 1, 1, 4))),
    "many at one time": (Times((2, 2), (2,)), Times((2, 3, 3))),
    "some left early": (Times((5, 1), (2,)), Times((3, 4), (1, 2))),
    "one run": (Times((3,), (2,)), Times((4, 4, 1))),
    "times in between": (Times((4, 1, 4), (5,)), Times((5, 2), (1,))),
}


@pytest.mark.parametrize(("a", "b"), COMPARED.values(), ids=list(COMPARED))
def test_p_is_the_share_of_all_rearrangements_that_differ_as_much(a, b):
    """The statistic is SciPy's; with ties, rearrangements as far away differ in their last bits."""
    runs = [*runs_of(a), *runs_of(b)]
    first = len(runs_of(a))
    observed = scipys_statistic(runs, set(range(first)))
    ways = [set(chosen) for chosen in combinations(range(len(runs)), first)]
    statistics = np.array([scipys_statistic(runs, chosen) for chosen in ways])

    above = np.mean(statistics >= observed - 1e-9)
    below = np.mean(statistics <= observed + 1e-9)
    assert len(ways) == math.comb(len(runs), first)
    assert compare_times(a, b) == pytest.approx(min(1.0, 2 * min(above, below)))


def runs_of(times):
    """(time, whether it was reached then) of every run."""
    reached = [(time, True) for time in times.reached]
    unfinished = [(time, False) for time in times.unfinished]
    return reached + unfinished


def scipys_statistic(runs, chosen):
    """SciPy's log-rank statistic where the runs `chosen` are the first group."""
    inside = [run for place, run in enumerate(runs) if place in chosen]
    outside = [run for place, run in enumerate(runs) if place not in chosen]
    return logrank(censored(inside), censored(outside)).statistic


def censored(runs):
    reached = [time for time, is_reached in runs if is_reached]
    unfinished = [time for time, is_reached in runs if not is_reached]
    return CensoredData(reached, right=unfinished)


def test_nobody_reached_it_and_equal_times_are_no_difference():
    never = Times(reached=(), unfinished=(40.0, 40.0, 40.0))
    assert compare_times(never, never) == 1.0
    same = Times(reached=(4.0, 4.0, 4.0))
    assert compare_times(same, same) == 1.0


def test_a_single_run_is_compared_too():
    assert compare_times(Times((3.0,)), Times((4.0, 5.0, 6.0))) == pytest.approx(0.5)


@pytest.mark.parametrize("ties", [None, 8, 3], ids=["no ties", "8 moments", "3 moments"])
@pytest.mark.parametrize(
    "censored",
    [(0.0, 0.0), (0.3, 0.3), (0.0, 0.5), (0.2, 0.8)],
    ids=["none", "alike", "one", "most"],
)
@pytest.mark.parametrize("seeds", [(3, 3), (4, 4), (5, 5), (3, 9)], ids=["3", "4", "5", "3 and 9"])
def test_equal_times_are_called_different_at_most_as_often_as_the_level_says(seeds, censored, ties):
    """Also with ties, and with runs of one variant that are ended sooner: then a rearrangement is
    not what it assumes to be."""
    pairs = 200
    share = times_level.rate(times_level.Cell(seeds, censored, ties), pairs)
    assert not times_level.is_above(share, pairs), share


def test_times_three_times_as_long_are_told_with_five_seeds():
    rng = np.random.default_rng(0)
    pairs = [(rng.lognormal(0, 0.3, 5), rng.lognormal(np.log(3), 0.3, 5)) for _ in range(100)]
    found = [compare_times(Times(tuple(a)), Times(tuple(b))) <= 0.05 for a, b in pairs]
    assert np.mean(found) > 0.9
