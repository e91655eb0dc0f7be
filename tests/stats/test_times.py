"""Times to an accuracy, with runs that have not reached it."""

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


def test_p_is_the_share_of_all_rearrangements_that_differ_as_much():
    a = Times(reached=(3.0, 5.0, 6.0), unfinished=(9.0,))
    b = Times(reached=(7.0, 8.0), unfinished=(9.0, 9.0))
    runs = [(3, 1), (5, 1), (6, 1), (9, 0), (7, 1), (8, 1), (9, 0), (9, 0)]

    def statistic(chosen):
        groups = []
        for inside in (True, False):
            rows = [run for place, run in enumerate(runs) if (place in chosen) is inside]
            reached = [time for time, event in rows if event]
            groups.append(CensoredData(reached, right=[time for time, event in rows if not event]))
        return logrank(*groups).statistic

    all_ways = [statistic(set(chosen)) for chosen in combinations(range(8), 4)]
    above = np.mean([value >= all_ways[0] - 1e-9 for value in all_ways])
    below = np.mean([value <= all_ways[0] + 1e-9 for value in all_ways])
    assert len(all_ways) == 70
    assert compare_times(a, b) == pytest.approx(min(1.0, 2 * min(above, below)))


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
