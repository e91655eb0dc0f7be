"""Models of one training each are compared by their samples."""

import math

import numpy as np
import pytest
from scipy import stats as distributions

from rpg import stats
from rpg.stats.sampled import answers_of


def family(right, samples, clusters=None):
    counts = np.array(right, float)[None]
    return stats.sampled_family([answers_of(counts, np.array(samples))], [clusters])


def test_with_one_sample_the_p_is_that_of_a_paired_t_test():
    rng = np.random.default_rng(5)
    base = rng.integers(0, 2, 40)
    other = np.where(rng.random(40) < 0.4, 1, base)
    p = family([base, other], np.ones((2, 40))).p_values()[0, 0]
    assert p == pytest.approx(distributions.ttest_rel(other, base).pvalue, rel=1e-12)


def test_for_these_problems_the_variance_is_that_of_the_samples():
    """Three problems of four samples: 1, 2 and 4 right against 3, 2 and 0."""
    fitted = family([[1, 2, 4], [3, 2, 0]], np.full((2, 3), 4))
    quarter, half = 0.25 * 0.75 / 3, 0.5 * 0.5 / 3
    expected = (quarter + half) / 9 + (quarter + half) / 9
    assert fitted.variance(stats.THESE).variance[0, 0] == pytest.approx(expected)
    squares = 2 * (quarter**2 + half**2) / 9**2 / 3
    assert fitted.variance(stats.THESE).df[0, 0] == pytest.approx(expected**2 / squares)


def test_other_problems_are_judged_by_the_spread_of_the_differences():
    rng = np.random.default_rng(6)
    right = rng.binomial(8, rng.random((2, 50)))
    fitted = family(right, np.full((2, 50), 8))
    differences = (right[1] - right[0]) / 8
    assert fitted.variance().variance[0, 0] == pytest.approx(differences.var(ddof=1) / 50)


def test_unequal_numbers_of_samples_count_each_problem_alike():
    fitted = family([[1, 4], [2, 1]], [[2, 4], [2, 4]])
    assert fitted.difference[0, 0] == pytest.approx((1.0 + 0.25) / 2 - (0.5 + 1.0) / 2)


def test_clusters_are_the_units_of_other_problems_only():
    rng = np.random.default_rng(7)
    right = rng.binomial(4, np.repeat(rng.random((2, 12)), 5, axis=1))
    labels = [place // 5 for place in range(60)]
    alone = family(right, np.full((2, 60), 4))
    together = family(right, np.full((2, 60), 4), labels)
    assert together.variance().variance[0, 0] > 2 * alone.variance().variance[0, 0]
    of_samples = [each.variance(stats.THESE).variance[0, 0] for each in (alone, together)]
    assert of_samples[0] == pytest.approx(of_samples[1])


def test_the_problems_that_are_needed_find_the_difference():
    rng = np.random.default_rng(8)
    fitted = family(rng.binomial(4, 0.5, (2, 100)), np.full((2, 100), 4))
    smallest = stats.smallest_found(fitted)[0, 0]
    needed = stats.problems_needed(fitted, 100, smallest / 2)[0, 0]
    assert needed == pytest.approx(400, abs=1)


def test_more_samples_help_as_far_as_samples_vary():
    # Every problem is 1/2 for both models, so that only samples vary.
    even = family(np.full((2, 100), 2), np.full((2, 100), 4))
    smallest = stats.smallest_found(even)[0, 0]
    assert stats.samples_needed(even, smallest / 2)[0, 0] == pytest.approx(4, rel=0.2)
    # Models differ by problems whose samples all agree: samples tell nothing more.
    right = np.array([[4, 0] * 50, [0, 4] * 50])
    sure = family(right, np.full((2, 100), 4))
    assert math.isinf(stats.samples_needed(sure, 0.01)[0, 0])
