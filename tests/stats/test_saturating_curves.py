"""Fits of accuracy over compute: planted curves are covered, and what does not saturate is
refused."""

import numpy as np
import pytest
from scipy import special

from benchmarks.compute_fits import (
    BUDGET,
    CURVES,
    FAR,
    WITHOUT,
    Planted,
    covered,
    study,
    without_saturation,
)
from rpg.stats import saturating_curves


def exact(planted, seeds=3, checkpoints=21):
    """Compute and accuracy without any noise; seeds spend differently."""
    compute = np.linspace(0, BUDGET, checkpoints) * np.linspace(0.9, 1.1, seeds)[:, None]
    return compute, saturating_curves.curve(planted.parameters(), compute)


@pytest.mark.parametrize("name", ["early", "middle", "late", "gradual"])
def test_a_curve_without_noise_is_recovered(name):
    planted = CURVES[name]
    fit = saturating_curves.fit(*exact(planted))
    assert fit.refusal == ""
    assert fit.held_out < 1e-4
    assert fit.asymptote.value == pytest.approx(planted.asymptote, abs=1e-4)
    assert fit.midpoint.value == pytest.approx(planted.midpoint * BUDGET, rel=1e-3)
    assert fit.slope.value == pytest.approx(planted.slope, rel=1e-3)
    share = 1 / (1 + planted.midpoint**planted.slope)  # of the rise, at the end of the budget
    assert fit.budget == pytest.approx(BUDGET)
    assert fit.reached() == pytest.approx((share, share, share), rel=0.05)
    ends = np.array([0.0, FAR * BUDGET])
    expected = saturating_curves.curve(planted.parameters(), ends)
    assert fit.at(ends)[0] == pytest.approx(expected, abs=1e-4)


def test_the_share_reached_is_inside_an_interval_that_is_symmetric_in_its_logit():
    fit = saturating_curves.fit(*study(np.random.default_rng(2), CURVES["early"], 3))
    low, high = fit.reached().low, fit.reached().high
    assert 0 < low < fit.reached().value < high < 1
    logits = special.logit([low, fit.reached().value, high])
    assert logits[1] - logits[0] == pytest.approx(logits[2] - logits[1])


@pytest.mark.component
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_cover_planted_curves(seeds):
    """The whole table: python -m benchmarks.compute_fits."""
    rng = np.random.default_rng(seeds)
    fits = [saturating_curves.fit(*study(rng, CURVES["early"], seeds)) for _ in range(120)]
    hits = np.array([covered(fit, CURVES["early"]) for fit in fits if not fit.refusal])
    assert len(hits) > 110
    assert ((hits.mean(axis=0) > 0.88) & (hits.mean(axis=0) < 0.99)).all(), hits.mean(axis=0)


@pytest.mark.component
@pytest.mark.parametrize("name", WITHOUT)
def test_what_does_not_saturate_is_refused(name):
    rng = np.random.default_rng(0)
    refused = [
        saturating_curves.fit(*without_saturation(rng, name, seeds)).refusal
        for seeds in (3, 10) * 5
    ]
    assert sum(map(bool, refused)) >= 9, refused


def test_a_refusal_says_why_and_gives_no_numbers():
    straight = BUDGET * np.linspace(0, 1, 21) + np.zeros((3, 1))
    noise = np.random.default_rng(0).normal(0, 0.01, (3, 21))
    reasons = {
        "no saturation is in sight": (straight, 0.2 + 0.5 * straight / BUDGET + noise),
        "does not clearly rise": (straight, 0.4 + noise),
        "intervals take 3 seeds": tuple(part[:2] for part in exact(CURVES["early"])),
        "a fit takes at least 5": exact(CURVES["early"], checkpoints=8),
    }
    for reason, data in reasons.items():
        fit = saturating_curves.fit(*data)
        assert reason in fit.refusal
        assert all(np.isnan(part).all() for part in (fit.asymptote, fit.midpoint, fit.slope))
    later = Planted(0.2, 0.7, 0.2, 1.5)
    compute, accuracy = exact(later)
    accuracy[:, 11:] -= 0.1  # what the first half could not know
    assert (
        "predicts the second with an error of"
        in saturating_curves.fit(compute, accuracy + noise).refusal
    )


def test_the_search_begins_at_the_curve_of_the_grid_with_the_least_squares():
    """Against a regression at each place of the grid, on data whose worst point is far away."""
    near = np.log(2.0)
    far = np.log(40.0)
    compute = np.array([2.0, 5.0, 9.0, 14.0, 20.0, 27.0, 34.0, 40.0])
    accuracy = np.array([0.10, 0.14, 0.35, 0.52, 0.31, 0.66, 0.69, 0.72])
    squares = {}
    for midpoint in np.linspace(near - 1, far + 1.5, 16):
        for slope in np.linspace(np.log(0.3), np.log(8), 10):
            share = 1 / (1 + (np.exp(midpoint) / compute) ** np.exp(slope))
            columns = np.column_stack([np.ones_like(share), share])
            (start, rise), *_ = np.linalg.lstsq(columns, accuracy)
            errors = accuracy - start - rise * share
            squares[start, rise, midpoint, slope] = errors @ errors
    expected = min(squares, key=squares.__getitem__)
    found = saturating_curves._best_of_grid(compute, accuracy, near, far)
    assert found == pytest.approx(expected)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="finite arrays"):
        saturating_curves.fit([[0.0, 1.0]], [[0.0, np.nan]])
