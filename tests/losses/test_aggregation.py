import pytest
import torch

from rpg.losses.aggregation import Counts, aggregate
from rpg.losses.policy_loss import weighted_likelihood

MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
LOSS = torch.tensor(
    [[1.0, 2.0, 3.0, float("nan")], [5.0, float("inf"), 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
)
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])


def test_each_average_is_what_hand_counting_gives():
    """Row sums 6 (three tokens) and 5 (one token); the third response is empty and does not
    count."""
    losses = [aggregate(LOSS, MASK, mode).item() for mode in MODES]
    assert losses == pytest.approx([11 / 4, 11 / 2, 7 / 2, 11 / 8])


def test_horizon_replaces_the_width():
    counts = Counts.of(MASK, horizon=10)
    assert (counts.tokens, counts.sequences, weighted_likelihood(LOSS, 2 * MASK, MASK, counts)) == (
        4,
        2,
        5.5,
    )
    assert aggregate(LOSS, MASK, "seq-mean-token-sum-norm", counts).item() == pytest.approx(11 / 20)


def test_an_unknown_average_is_refused():
    with pytest.raises(ValueError, match="loss_agg_mode 'mean'"):
        aggregate(LOSS, MASK, "mean")
