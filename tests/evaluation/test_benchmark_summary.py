"""Numbers of an evaluation against brute force, and their intervals against simulation."""

import itertools
import json

import numpy as np
import pytest
from scipy.special import comb
from scipy.stats import betabinom

from rpg.evaluation.benchmark_summary import summarise


def rows(correct, extracted=None, tokens=None, truncated=None):
    """Samples from a (problems, k) table."""
    correct = np.asarray(correct)
    return [
        {
            "problem_id": f"p{i}",
            "correct": bool(correct[i, j]),
            "extracted": extracted[i][j] if extracted is not None else str(bool(correct[i, j])),
            "tokens": tokens[i][j] if tokens is not None else 10,
            "truncated": truncated[i][j] if truncated is not None else False,
        }
        for i in range(correct.shape[0])
        for j in range(correct.shape[1])
    ]


def test_the_summary_is_what_hand_counting_gives():
    correct = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    extracted = [["7", "8", "8", None], ["1/2", "0.5", "3", "4"], [None, None, None, None]]
    tokens = [[1, 2, 3, 6], [4, 4, 4, 4], [8, 8, 8, 8]]
    found = summarise(rows(correct, extracted, tokens, [[0, 0, 0, 1]] * 3))
    assert found.problems == 3
    assert found.k == 4
    assert found.mean_at_k.mean == pytest.approx(3 / 12)
    assert found.mean_at_k.standard_error == pytest.approx(np.std([0.25, 0.5, 0], ddof=1) / 3**0.5)
    assert found.pass_at_k.mean == pytest.approx(2 / 3)
    # 1/2 and 0.5 vote together; no answer does not vote.
    assert found.majority_at_k.mean == pytest.approx(1 / 3)
    assert found.response_tokens.mean == pytest.approx((3 + 4 + 8) / 3)
    assert found.truncation_rate.mean == pytest.approx(0.25)


def test_unequal_numbers_of_samples_are_refused():
    with pytest.raises(ValueError, match=r"same number of samples, found \[1, 2\]"):
        summarise(rows([[1, 0], [0, 1]])[:-1])
    with pytest.raises(ValueError, match="no samples"):
        summarise([])


def test_the_error_of_the_mean_is_that_of_drawing_problems_anew():
    """Against the exact distribution of the mean over all ways to draw three problems out of three,
    with repetition."""
    values = np.array([0.0, 0.25, 1.0])
    table = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    draws = [np.mean(d) for d in itertools.product(values, repeat=3)]
    assert summarise(rows(table)).mean_at_k.standard_error == pytest.approx(
        np.std(draws) * (3 / 2) ** 0.5
    )


SHAPE = (0.6, 0.9)  # of difficulties, as published
PROBLEMS = 30
K = 16


def draw(rng):
    """Rows of problems whose difficulty is drawn anew: right or one wrong answer, lengths with a
    level per problem."""
    difficulty = rng.beta(*SHAPE, size=(PROBLEMS, 1))
    correct = rng.random((PROBLEMS, K)) < difficulty
    level = rng.lognormal(5.0, 0.5, (PROBLEMS, 1))
    tokens = rng.poisson(level, (PROBLEMS, K))
    truncated = rng.random((PROBLEMS, K)) < rng.beta(2.0, 8.0, (PROBLEMS, 1))
    return rows(correct, tokens=tokens, truncated=truncated)


def truths():
    """What the estimates estimate, exactly: c of K samples are right with the beta-binomial
    probability."""
    c = np.arange(K + 1)
    chance = betabinom(K, *SHAPE).pmf(c)
    found = {n: chance @ (1 - comb(K - c, n) / comb(K, n)) for n in (1, 4, K)}
    majority = chance @ np.where(c * 2 == K, 0.5, c * 2 > K)
    return found, {
        "majority_at_k": majority,
        "response_tokens": np.exp(5.0 + 0.125),
        "truncation_rate": 0.2,
    }


@pytest.mark.system
def test_intervals_cover_the_truth_at_their_rate():
    """Of 500 draws, 95 % intervals hold the truth in 95 % of cases, up to what their number lets
    one see."""
    rng = np.random.default_rng(0)
    trials = 500
    pass_at, others = truths()
    hits = dict.fromkeys((*pass_at, *others), 0)
    naive = 0
    for _ in range(trials):
        found = summarise(draw(rng))
        for n, truth in pass_at.items():
            hits[n] += found.pass_at[n].low <= truth <= found.pass_at[n].high
        for name, truth in others.items():
            estimate = getattr(found, name)
            hits[name] += estimate.low <= truth <= estimate.high
        mean = found.mean_at_k.mean
        naive += abs(mean - pass_at[1]) <= 1.96 * (mean * (1 - mean) / (PROBLEMS * K)) ** 0.5
    rates = {name: count / trials for name, count in hits.items()}
    assert all(0.92 <= rate <= 0.985 for rate in rates.values()), rates
    assert naive / trials < 0.75, (
        "with samples instead of problems resampled, this test would have to fail"
    )


def test_pass_at_every_power_of_two():
    assert list(summarise(rows([[1, 0, 0, 0]])).pass_at) == [1, 2, 4]
    found = summarise(rows([[1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]]))
    assert list(found.pass_at) == [1, 2, 4, 6]
    assert found.pass_at[1].mean == pytest.approx(found.mean_at_k.mean)
    assert found.pass_at[6] == found.pass_at_k
    draws = [
        [any(group[i] for i in s) for s in itertools.combinations(range(6), 2)]
        for group in ([1, 0, 0, 0, 0, 0], [0] * 6, [1, 1, 1, 0, 0, 0])
    ]
    assert found.pass_at[2].mean == pytest.approx(np.mean(draws))


def test_a_summary_survives_a_round_trip_through_json():
    found = json.loads(json.dumps(summarise(rows([[1, 0], [0, 0], [1, 1]])).as_json()))
    assert found["mean_at_k"]["mean"] == pytest.approx(0.5)
    assert found["pass_at"]["2"]["problems"] == 3
