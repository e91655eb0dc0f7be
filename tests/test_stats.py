"""Estimates agree with hand computation, with scipy, and with what they promise when the truth is known."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rpg import stats


def test_pass_at_k_by_counting_subsets():
    from itertools import combinations

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
        stats.pass_at_k([n], [c], k)


@pytest.mark.parametrize(
    ("answers", "correct", "expected"),
    [
        (["1", "1", "2"], [True, True, False], 1),
        (["2", "2", "1"], [False, False, True], 0),
        (["1", "2"], [True, False], 0.5),
        ([None, None, "1"], [False, False, True], 1),
        ([None, None], [False, False], 0),
    ],
)
def test_majority(answers, correct, expected):
    assert stats.majority_at_k(answers, correct) == expected


def test_seed_interval_is_students():
    values = [0.2, 0.5, 0.35]
    found = stats.seed_interval(values)
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found.mean == pytest.approx(0.35)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert math.isnan(stats.seed_interval([0.3]).low) and stats.seed_interval([0.3]).mean == 0.3
    assert math.isnan(stats.seed_interval([]).mean)


def test_one_seed_is_a_t_test_over_problems():
    rng = np.random.default_rng(0)
    differences = rng.normal(0.1, 0.3, (1, 20))
    found = stats.compare([differences + 0.5], [np.full((1, 20), 0.5)])
    expected = scipy_stats.ttest_1samp(differences[0], 0)
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_crossed_by_hand():
    # seeds [[1, 2, 3], [3, 2, 7]]: problem means 2, 2, 5; seed means 2, 4; mean 3
    found = stats.crossed([[[1, 2, 3], [3, 2, 7]]])
    v_problems = 3 / 3  # variance of (2, 2, 5) is 3
    v_seeds = 2 / 2  # variance of (2, 4) is 2
    rest = np.array([[0, 1, -1], [0, -1, 1]])
    v_both = (rest**2).sum() / 2 / 6
    variance = v_problems + v_seeds - v_both
    assert found.mean == 3
    assert found.standard_error == pytest.approx(math.sqrt(variance))
    assert found.df == pytest.approx(variance**2 / (v_problems**2 / 2 + v_seeds**2 / 1 + v_both**2 / 2))


@pytest.mark.parametrize("table", [[[1, 0], [2, 3]], [[1, 2], [0, 3]]], ids=["seeds", "problems"])
def test_no_interaction_takes_the_variance_below_that_of_seeds_or_problems(table):
    """V of the one kind is 1, of the other 0, of their interaction 1/4: 1 + 0 - 1/4 is below the first alone."""
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
    assert found.low == pytest.approx(scipy_stats.binomtest(40, 40).proportion_ci(0.95, "exact").low)
    found = stats.accuracy([np.zeros((1, 40))])
    assert found.high == pytest.approx(scipy_stats.binomtest(0, 40).proportion_ci(0.95, "exact").high)


def test_an_accuracy_stays_within_its_range():
    found = stats.accuracy([[[1, 1, 1, 0], [1, 1, 1, 1]]])
    assert 0 < found.low < found.mean < found.high < 1


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


def test_pairing_refuses_other_problems():
    with pytest.raises(ValueError, match="pairing needs"):
        stats.compare([np.zeros((2, 3))], [np.zeros((2, 4))])


def test_nothing_to_test():
    same = stats.compare([np.full((2, 5), 0.5)], [np.full((2, 5), 0.5)])
    assert (same.difference, same.p) == (0, 1)
    single = stats.compare([[[0.7]]], [[[0.5]]])
    assert math.isnan(single.p) and stats.verdict(single.difference, single.p) == "not testable"


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, math.nan, 0.03]) == pytest.approx(
        [0.03, 0.06, math.nan, 0.06], nan_ok=True
    )
    assert stats.holm([0.6, 0.9]) == [1.0, 1.0]
    assert stats.holm([]) == []


@pytest.mark.parametrize(
    ("difference", "p", "words"),
    [(0.1, 0.01, "better"), (-0.1, 0.01, "worse"), (0.1, 0.06, "within noise"), (0.1, 0.05, "better")],
)
def test_verdict(difference, p, words):
    assert stats.verdict(difference, p) == words


def share(function, repeats=1500):
    rng = np.random.default_rng(7)
    return np.mean([function(rng) for _ in range(repeats)])


def scores(rng, seeds, problems, k, seed_spread, problem_spread=1.2):
    """Mean@k scores (S, P) from the logistic model: problems differ, seeds differ, samples are coin flips."""
    logits = rng.normal(0, problem_spread, problems) + rng.normal(0, seed_spread, (seeds, 1))
    return rng.binomial(k, 1 / (1 + np.exp(-logits))) / k


@pytest.mark.parametrize("k", [1, 8, 32])
def test_mean_at_k_covers_the_mean_over_problems(k):
    """Resampling problems covers; the binomial standard error of all samples would not."""

    def covers(rng):
        found = stats.accuracy([scores(rng, 1, 30, k, 0)])
        return found.low <= 0.5 <= found.high

    assert 0.93 < share(covers) < 0.97


def test_treating_samples_as_independent_would_not_cover():
    def covers(rng):
        array = scores(rng, 1, 30, 32, 0)
        error = math.sqrt(array.mean() * (1 - array.mean()) / (32 * array.size))
        return abs(array.mean() - 0.5) < 1.96 * error

    assert share(covers) < 0.6


# Seeds that differ as much as problems make the mean differ; two seeds are the hardest case. The bounds are
# those bounds are those that docs/statistics.md promises.
@pytest.mark.parametrize(
    ("seeds", "seed_spread", "low"),
    [(2, 0.0, 0.95), (2, 0.2, 0.93), (2, 0.6, 0.87), (3, 0.2, 0.94), (3, 0.6, 0.91), (5, 0.6, 0.92)],
)
def test_the_interval_over_seeds_and_problems_covers(seeds, seed_spread, low):
    def covers(rng):
        found = stats.accuracy([scores(rng, seeds, 50, 8, seed_spread)])
        return found.low <= 0.5 <= found.high

    assert low < share(covers) < 0.995


@pytest.mark.parametrize(
    ("seeds", "spread", "limit"),
    [(1, 0.0, 0.065), (2, 0.0, 0.04), (2, 0.15, 0.08), (2, 0.6, 0.12), (3, 0.15, 0.065), (3, 0.6, 0.08)],
)
def test_equal_variants_are_rarely_called_different(seeds, spread, limit):

    def found(rng):
        problems = rng.normal(0, 1.2, 50)
        arrays = []
        for _ in range(2):
            logits = problems + rng.normal(0, spread, (seeds, 1)) + rng.normal(0, 0.3, 50)
            arrays.append(rng.binomial(8, 1 / (1 + np.exp(-logits))) / 8)
        return stats.compare([arrays[0]], [arrays[1]]).p <= 0.05

    assert share(found) < limit


def test_a_real_difference_is_found():
    def found(rng):
        problems = rng.normal(0, 1.2, 100)
        arrays = [
            rng.binomial(8, 1 / (1 + np.exp(-problems - gain - rng.normal(0, 0.1, (3, 1))))) / 8
            for gain in (0.8, 0)
        ]
        return stats.compare([arrays[0]], [arrays[1]]).p <= 0.05

    assert share(found, 300) > 0.9


def test_holm_keeps_the_family_error():
    def any_found(rng):
        return min(stats.holm(list(rng.random(8)))) <= 0.05

    assert share(any_found, 4000) < 0.06
