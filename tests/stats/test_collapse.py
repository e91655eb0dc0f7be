"""Seeds that collapsed, and how often a seed is called that."""

import numpy as np
import pytest

from rpg import stats


def test_a_seed_at_zero_beside_two_alike_is_named():
    accuracies = {
        "a": {0: 0.41, 1: 0.44, 2: 0.43},
        "b": {0: 0.52, 1: 0.0, 2: 0.5},
        "c": {0: 0.39, 1: 0.36, 2: 0.4},
    }
    (found,) = stats.collapsed(accuracies)
    assert (found.variant, found.seed, found.accuracy) == ("b", 1, 0.0)
    assert found.siblings == pytest.approx(0.51)


def test_two_collapsed_seeds_do_not_hide_each_other():
    accuracies = {name: {seed: 0.4 + 0.01 * seed for seed in range(4)} for name in ("a", "b", "c")}
    accuracies["a"][2] = accuracies["b"][0] = 0.02
    found = stats.collapsed(accuracies)
    assert {(each.variant, each.seed) for each in found} == {("a", 2), ("b", 0)}


@pytest.mark.component
def test_seeds_that_merely_differ_are_not_named():
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(1000):
        values = 0.4 + 0.08 * rng.standard_normal((5, 3))
        alarms += bool(
            stats.collapsed({str(v): dict(enumerate(row)) for v, row in enumerate(values)})
        )
    assert alarms <= 20


def test_a_seed_with_more_than_half_of_its_siblings_accuracy_has_not_collapsed():
    accuracies = {name: {0: 0.40, 1: 0.41, 2: 0.42} for name in ("a", "b", "c")}
    accuracies["b"][1] = 0.23

    assert stats.collapsed(accuracies) == []


def test_a_variant_without_two_siblings_is_not_judged():
    assert stats.collapsed({"a": {0: 0.5, 1: 0.0}}) == []


def test_the_share_of_collapsed_seeds_has_clopper_and_pearsons_interval():
    assert stats.share_collapsed(0, 3) == pytest.approx((0.0, 1 - 0.025 ** (1 / 3)))
    assert stats.share_collapsed(1, 3) == pytest.approx((0.0084, 0.9057), abs=1e-3)
    assert stats.share_collapsed(3, 3) == pytest.approx((0.025 ** (1 / 3), 1.0))
