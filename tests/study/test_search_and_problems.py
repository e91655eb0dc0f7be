"""What trials and scores of problems say, against enumeration and planted truth."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import trim_mean

from rpg import stats
from rpg.stats import over_problems, searches
from rpg.stats.variance_components import SAMPLING, TOGETHER, variance_components


def test_expected_best_is_the_mean_over_all_subsets():
    values = np.random.default_rng(0).random((2, 7))
    for row, expected in zip(values, searches.expected_best(values), strict=True):
        best = [np.mean([max(each) for each in combinations(row, k)]) for k in range(1, 8)]
        assert expected == pytest.approx(best)


def test_intervals_of_the_expected_best_cover_up_to_a_quarter_of_the_trials():
    rng = np.random.default_rng(0)
    truth = [rng.beta(5, 1.5, (20_000, k)).max(axis=1).mean() for k in range(1, 7)]

    hits = []
    for _ in range(150):
        scattered = rng.beta(5, 1.5, 24)
        constant = np.full(24, 0.1)
        effort = searches.effort([scattered, constant], 24)
        assert np.isnan(effort.half[0, 6:]).all()
        assert effort.half[1, :6] == pytest.approx(0)
        hits.append(abs(effort.best[0, :6] - truth) <= effort.half[0, :6])

    coverage = np.mean(hits, axis=0)
    assert (coverage >= 0.86).all(), coverage


def test_who_wins_depends_on_the_number_of_trials():
    """One variant is always good, the other seldom very good."""
    steady = np.full(12, 0.5)
    rare = np.array([0.9] + [0.1] * 11)
    effort = searches.effort([steady, rare, np.zeros(20)], 30)
    assert [effort.lead(k)[0] for k in (1, 12)] == [0, 1]
    _, lead, half = effort.lead(1)
    assert lead == pytest.approx(0.5 - rare.mean())
    assert half == pytest.approx(stats.t_quantile(11) * rare.std(ddof=1) / np.sqrt(12))
    assert effort.best.shape == (3, 12)
    assert np.isnan(effort.lead(12)[2])


def test_the_good_region_is_what_lies_nearest_to_good_trials():
    line = np.array([[0.1], [0.5], [0.9]])
    assert searches.good_region(line, np.array([False, True, False]), {}) == pytest.approx(
        0.4, abs=0.01
    )
    # A third of the choices, and there the half on the side of the good trial.
    places = np.array([[0, 0.25], [0, 0.75], [1, 0.5], [2, 0.5]])
    share = searches.good_region(places, np.array([True, False, False, False]), {0: 3})
    assert share == pytest.approx(1 / 6, abs=0.01)


def scores(rng, seeds, problems, shift=0.0, samples=4):
    """Of trainings whose seeds differ by 0.3 logits, on problems that differ by 1.2."""
    logits = shift + rng.normal(0, 1.2, problems) + rng.normal(0, 0.3, (seeds, 1))
    return rng.binomial(samples, 1 / (1 + np.exp(-logits))) / samples


def test_summaries_over_problems_are_those_of_their_definition():
    rng = np.random.default_rng(0)
    first = scores(rng, 4, 24, 0.5)
    other = scores(rng, 4, 24)
    assert over_problems.interquartile_mean(first).mean == pytest.approx(
        trim_mean(first, 0.25, axis=None)
    )
    wins = [
        (a > b) + (a == b) / 2
        for i, j in product(range(4), repeat=2)
        for a, b in zip(first[i], other[j], strict=True)
    ]
    assert over_problems.probability_of_improvement(first, other).mean == pytest.approx(
        np.mean(wins)
    )
    same = over_problems.probability_of_improvement(first, first)
    assert same.mean == 0.5
    assert same.low <= 0.5 <= same.high
    always = over_problems.probability_of_improvement(np.ones((4, 24)), np.zeros((4, 24)))
    assert always.mean == 1 and 0.5 < always.low < always.high == 1, (
        "other problems might not show it"
    )
    near = over_problems.interquartile_mean(np.where(np.arange(24) < 7, 0.5, np.ones((4, 1))))
    assert near.high == 1 < 2 * near.mean - near.low, "an interval ends where scores do"
    alike = over_problems.interquartile_mean(np.where(np.arange(24) < 3, 1.0, np.zeros((4, 1))))
    assert alike.mean == 0
    assert np.isnan(alike.low)
    assert np.isnan(alike.high)


@pytest.mark.component
def test_intervals_over_problems_cover():
    rng = np.random.default_rng(1)
    # Another seed for each problem: an average over seeds, too.
    logits = rng.normal(0, 1.2, 400_000) + rng.normal(0, 0.3, 400_000)
    answers = rng.binomial(4, 1 / (1 + np.exp(-logits))) / 4
    level = trim_mean(answers, 0.25)
    drawn = (scores(rng, 3, 60) for _ in range(300))
    estimates = map(over_problems.interquartile_mean, drawn)
    assert np.mean([each.low <= level <= each.high for each in estimates]) > 0.9


@pytest.mark.component
def test_ranks_hold_together_and_tell_what_can_be_told():
    rng = np.random.default_rng(0)

    def ranks(*shifts):
        """Of three variants with five seeds each, on 120 problems with four answers."""
        problems = rng.normal(0, 1, 120)
        of_seeds = rng.normal(0, 0.1, (3, 5, 1))
        logits = np.array(shifts)[:, None, None] + problems + of_seeds
        drawn = rng.binomial(4, 1 / (1 + np.exp(-logits))) / 4
        return over_problems.ranks([drawn])

    # The first is the worst; the second and the third are equal, so that either may be the best.
    last = 0
    first_two = 0
    for _ in range(60):
        worst, *others = ranks(0.0, 2.0, 2.0)
        last += (worst.low, worst.high) == (3, 3)
        first_two += sum(rank.low <= 1 and rank.high >= 2 for rank in others)
    assert last > 0.95 * 60
    assert first_two > 0.93 * 120

    untold = 0
    for _ in range(60):
        equal = ranks(0.0, 0.0, 0.0)
        untold += all((rank.low, rank.high) == (1, 3) for rank in equal)
        places = tuple(sorted(rank.place for rank in equal))
        assert places in {(1, 2, 3), (1, 1, 3), (1, 2, 2), (1, 1, 1)}
    assert untold >= 0.93 * 60


def test_two_variants_far_apart_are_the_first_and_the_second():
    rng = np.random.default_rng(0)
    drawn = np.stack([scores(rng, 3, 50, shift) for shift in (0.0, 5.0)])
    assert over_problems.ranks([drawn]) == [(2, 2, 2), (1, 1, 1)]


def test_two_seeds_exclude_no_rank():
    rng = np.random.default_rng(0)
    drawn = np.stack([scores(rng, 2, 50, shift) for shift in (0.0, 5.0)])
    assert [(one.low, one.high) for one in over_problems.ranks([drawn])] == [(1, 2), (1, 2)]
    assert over_problems.ranks([scores(rng, 3, 50, 0.0)[None]]) == [(1, 1, 1)], (
        "alone it is the first"
    )


@pytest.mark.component
@pytest.mark.parametrize("samples", [1, 4])
def test_planted_variance_components_are_found(samples):
    """Unbiased: the mean of many estimates is what was planted, within four of its standard
    errors."""
    rng = np.random.default_rng(samples)
    studies = 400
    planted = {"initial model": 0.05**2, "seed": 0.08**2, "problem": 0.12**2, TOGETHER: 0.04**2}
    found = []
    for _ in range(studies):
        sizes = (3, 1, 1), (1, 4, 1), (1, 1, 40), (3, 4, 40)
        draws = zip(planted.values(), sizes, strict=True)
        chance = 0.5 + sum(rng.normal(0, variance**0.5, size) for variance, size in draws)
        cells = rng.binomial(samples, np.clip(chance, 0, 1)) / samples
        found.append(variance_components(cells, samples, ["initial model", "seed", "problem"]))
    answers = 0.25 - sum(planted.values())
    expected = planted | {SAMPLING: answers}
    if samples == 1:
        expected[f"{TOGETHER} and {SAMPLING}"] = expected.pop(TOGETHER) + expected.pop(SAMPLING)
    assert list(found[0]) == list(expected)
    for name, truth in expected.items():
        values = np.array([each[name] for each in found])
        assert values.mean() == pytest.approx(truth, abs=4 * values.std() / studies**0.5 + 2e-4), (
            name
        )


def test_one_level_is_no_sample():
    with pytest.raises(ValueError, match="at least two levels of seed, problem"):
        variance_components(np.zeros((1, 30)), 4, ["seed", "problem"])
