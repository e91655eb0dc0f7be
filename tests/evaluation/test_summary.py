"""Numbers of an evaluation against brute force, and their intervals against simulation."""

import itertools

import numpy as np
import pytest

from rpg.evaluation.summary import summarise


def rows(correct, extracted=None, tokens=None, truncated=None):
    """Samples from a (problems, k) table."""
    correct = np.asarray(correct)
    return [
        {
            "problem_id": f"p{i}",
            "correct": bool(correct[i, j]),
            "extracted": extracted[i][j] if extracted else str(bool(correct[i, j])),
            "tokens": tokens[i][j] if tokens else 10,
            "truncated": truncated[i][j] if truncated else False,
        }
        for i in range(correct.shape[0])
        for j in range(correct.shape[1])
    ]


def test_by_hand():
    correct = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    extracted = [["7", "8", "8", None], ["1/2", "0.5", "3", "4"], [None, None, None, None]]
    found = summarise(
        rows(correct, extracted, [[1, 2, 3, 6], [4, 4, 4, 4], [8, 8, 8, 8]], [[0, 0, 0, 1]] * 3)
    )
    assert found.problems == 3 and found.k == 4
    assert found.mean_at_k.mean == pytest.approx(3 / 12)
    assert found.mean_at_k.standard_error == pytest.approx(np.std([0.25, 0.5, 0], ddof=1) / 3**0.5)
    assert found.pass_at_k.mean == pytest.approx(2 / 3)
    assert found.majority_at_k.mean == pytest.approx(
        1 / 3
    )  # 1/2 and 0.5 vote together; no answer does not vote
    assert found.response_tokens.mean == pytest.approx((3 + 4 + 8) / 3)
    assert found.truncation_rate.mean == pytest.approx(0.25)


def test_unequal_numbers_of_samples_are_refused():
    with pytest.raises(ValueError, match=r"same number of samples, found \[1, 2\]"):
        summarise(rows([[1, 0], [0, 1]])[:-1])
    with pytest.raises(ValueError, match="no samples"):
        summarise([])


def test_the_error_of_the_mean_is_that_of_drawing_problems_anew():
    """Against the exact distribution of the mean over all ways to draw three problems out of three, with repetition."""
    values = np.array([0.0, 0.25, 1.0])
    table = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    draws = [np.mean(d) for d in itertools.product(values, repeat=3)]
    assert summarise(rows(table)).mean_at_k.standard_error == pytest.approx(np.std(draws) * (3 / 2) ** 0.5)


@pytest.mark.parametrize("shape", [(0.6, 0.9), (0.3, 0.3)], ids=["as published", "easy and hard problems"])
def test_intervals_cover_the_truth_at_their_rate(shape):
    """30 problems of random difficulty, 32 samples each: the 95 % interval holds the mean in 93 to 97 % of 2,000 draws."""
    rng = np.random.default_rng(0)
    truth, hits, trials = shape[0] / sum(shape), 0, 2000
    for _ in range(trials):
        difficulty = rng.beta(*shape, size=30)
        right = rng.binomial(32, difficulty)
        table = np.arange(32) < right[:, None]
        found = _mean_only(table)
        hits += found.low <= truth <= found.high
    assert 0.93 < hits / trials < 0.97


def _mean_only(table):
    from rpg.stats import accuracy

    return accuracy([[table.mean(axis=1)]])


def test_the_simulated_interval_is_the_summarys():
    table = np.random.default_rng(1).random((30, 32)) < 0.4
    assert summarise(rows(table)).mean_at_k == _mean_only(table)
