"""A verdict for these problems is given or refused for its own reasons."""

import math

import numpy as np
import pytest

from rpg import stats
from rpg.report.verdicts import differences_of


def answers(variants=2, seeds=3, problems=40, seed=0):
    """Scores (1, V, S, P) that differ between seeds and problems."""
    rng = np.random.default_rng(seed)
    chances = rng.uniform(0.2, 0.8, (1, 1, 1, problems))
    return rng.binomial(8, np.broadcast_to(chances, (1, variants, seeds, problems))) / 8


def judged(scores, clusters=None):
    family = stats.family([scores], clusters=[clusters])
    [difference] = differences_of(family, family.comparisons, stats.ERROR)
    return family, difference


def test_two_seeds_give_an_interval_for_these_problems_too():
    family, difference = judged(answers(seeds=2))
    assert difference.verdict == difference.these_verdict == "too few seeds"
    assert math.isnan(difference.p)
    assert math.isnan(difference.p_corrected)
    for scope, low, high in (
        (stats.OTHERS, difference.low, difference.high),
        (stats.THESE, difference.these_low, difference.these_high),
    ):
        expected = [bound.item() for bound in family.intervals(stats.ERROR, scope=scope)]
        assert [low, high] == pytest.approx(expected)
        assert low < difference.difference < high


def test_one_seed_gives_an_interval_for_other_problems_alone():
    _, difference = judged(answers(seeds=1))
    assert difference.verdict == difference.these_verdict == "too few seeds"
    assert difference.low < difference.difference < difference.high
    assert math.isnan(difference.these_low)
    assert math.isnan(difference.these_high)


def test_problems_of_few_clusters_have_a_verdict_for_themselves():
    _, difference = judged(answers(), clusters=[at % 5 for at in range(40)])
    assert difference.verdict == "too few problems move"
    assert math.isnan(difference.low)
    assert difference.these_verdict == "within noise"
    assert difference.these_low < difference.difference < difference.these_high


def test_where_too_few_problems_move_there_is_no_interval_of_either_kind():
    scores = np.ones((1, 2, 3, 40))
    scores[0, :, :, :8] = answers(problems=8)[0]
    _, difference = judged(scores)
    assert difference.verdict == difference.these_verdict == "too few problems move"
    bounds = [difference.low, difference.high, difference.these_low, difference.these_high]
    assert np.isnan(bounds).all()
