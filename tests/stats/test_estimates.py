"""Estimates agree with hand computation, with scipy, and with what they promise when the truth is
known."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rpg import stats


def test_pass_at_k_by_counting_subsets():
    n, c = 7, 3
    right = [1] * c + [0] * (n - c)
    for k in range(1, n + 1):
        subsets = list(combinations(right, k))
        expected = sum(any(subset) for subset in subsets) / len(subsets)
        assert stats.pass_at_k([n], [c], k)[0] == pytest.approx(expected)
    assert stats.pass_at_k([4, 4], [0, 4], 4).tolist() == [0, 1]


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_pass_at_k_refuses_what_it_cannot_know(n, c, k):
    with pytest.raises(ValueError, match="pass@"):
        stats.pass_at_k([n, 9], [c, 0], k)


@pytest.mark.parametrize(
    ("answers", "correct", "expected"),
    [
        (["1", "1", "2"], [True, True, False], 1),
        (["2", "2", "1"], [False, False, True], 0),
        (["1", "2"], [True, False], 0.5),
        ([None, None, "1"], [False, False, True], 1),
    ],
)
def test_majority_at_k_is_the_most_frequent_answer(answers, correct, expected):
    assert stats.majority_at_k(answers, correct) == expected


def test_the_crossed_mean_has_the_variance_and_degrees_worked_out_by_hand():
    table = np.array([[1, 2, 3], [3, 2, 7], [2, 5, 3], [0, 1, 1]])
    rest = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    parts = [table.mean(0).var(ddof=1) / 3, table.mean(1).var(ddof=1) / 4, (rest**2).sum() / 6 / 12]
    variance = parts[0] + parts[1] - parts[2]
    df = variance**2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 3 + parts[2] ** 2 / 6)
    found = stats.crossed([table])
    assert (found.mean, found.standard_error) == pytest.approx((table.mean(), math.sqrt(variance)))
    assert found.df == pytest.approx(df)


@pytest.mark.parametrize("table", [[[1, 0], [2, 3]], [[1, 2], [0, 3]]], ids=["seeds", "problems"])
def test_no_interaction_takes_the_variance_below_that_of_seeds_or_problems(table):
    """V of the one kind is 1, of the other 0, of their interaction 1/4: 1 + 0 - 1/4 is below the
    first alone."""
    assert stats.crossed([table]).standard_error == pytest.approx(1.0)


def test_benchmarks_weigh_the_same_and_their_spread_is_no_noise():
    easy, hard = np.full((2, 50), 0.9), np.full((2, 10), 0.1)
    found = stats.crossed([easy, hard])
    assert found.mean == pytest.approx(0.5)
    assert found.standard_error == pytest.approx(0)
    assert found.problems == 60


def test_when_nothing_varies_the_interval_is_that_of_a_proportion():
    found = stats.accuracy([np.ones((2, 40))])
    assert (found.mean, found.high) == (1, 1)
    assert found.low == pytest.approx(
        scipy_stats.binomtest(40, 40).proportion_ci(0.95, "exact").low
    )
    found = stats.accuracy([np.zeros((1, 40))])
    assert found.high == pytest.approx(
        scipy_stats.binomtest(0, 40).proportion_ci(0.95, "exact").high
    )


def test_one_problem_says_nothing_about_others():
    assert stats.accuracy([[[0.5], [0.5]]])[3:5] == (0.0, 1.0)


def test_the_interval_of_right_and_wrong_answers_is_wilsons():
    """One sample of each of many problems is a plain proportion."""
    for right in (3, 100, 399):
        found = stats.accuracy([[np.arange(400) < right]])
        expected = scipy_stats.binomtest(right, 400).proportion_ci(0.95, "wilson")
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=0.01)


@pytest.mark.parametrize("strata", [[], [[[]]], [[1, 2]], [[[1, 2]], [[1], [2]]]])
def test_arrays_that_are_no_seeds_by_problems_are_refused(strata):
    with pytest.raises(ValueError, match="seeds"):
        stats.crossed(strata)


def share(function, repeats=1500):
    rng = np.random.default_rng(7)
    return np.mean([function(rng) for _ in range(repeats)])


def scores(rng, seeds, problems, k, seed_spread, problem_spread=1.2):
    """Mean@k scores (S, P) from the logistic model: problems differ, seeds differ, samples are coin
    flips."""
    logits = rng.normal(0, problem_spread, problems) + rng.normal(0, seed_spread, (seeds, 1))
    return rng.binomial(k, 1 / (1 + np.exp(-logits))) / k


# Seeds that differ as much as problems make the mean differ; two seeds are the hardest case. The
# bounds are those that docs/statistics.md promises.
@pytest.mark.component
@pytest.mark.parametrize(
    ("seeds", "problems", "k", "spread", "low"),
    [(1, 30, k, 0.0, 0.93) for k in (1, 8, 32)]
    + [(2, 50, 8, spread, low) for spread, low in ((0.0, 0.95), (0.2, 0.93), (0.6, 0.87))]
    + [(3, 50, 8, 0.2, 0.94), (3, 50, 8, 0.6, 0.91), (5, 50, 8, 0.6, 0.92)],
)
def test_intervals_over_seeds_and_problems_cover(seeds, problems, k, spread, low):
    """With one seed, resampling problems covers; the binomial standard error of all samples would
    not."""

    def covers(rng):
        found = stats.accuracy([scores(rng, seeds, problems, k, spread)])
        return found.low <= 0.5 <= found.high

    assert low < share(covers) < (0.97 if seeds == 1 else 0.995)
