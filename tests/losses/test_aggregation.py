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


def test_a_mean_over_the_tokens_of_a_prompt_then_over_prompts():
    """Prompts of three and five tokens with losses 1 and 2: their mean is 1.5, of all tokens 1.625.
    In parts that split both prompts it is the same sum."""
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]])
    group = torch.tensor([4, 9, 4, 9])
    loss = torch.where(group == 4, 1.0, 2.0)[:, None].expand(4, 3)
    counts = Counts.of(mask, group=group)

    whole = aggregate(loss, mask, "prompt-mean", counts)

    assert whole.item() == pytest.approx(1.5)
    assert aggregate(loss, mask, "token-mean").item() == pytest.approx(13 / 8)
    parts = [torch.tensor([0, 1]), torch.tensor([2, 3])]
    sums = [aggregate(loss[rows], mask[rows], "prompt-mean", counts.rows(rows)) for rows in parts]
    assert sum(sums).item() == pytest.approx(1.5)


@pytest.mark.parametrize(
    "counts", [None, Counts.of(MASK), Counts.of(MASK, group=MASK[:, 0]).rows([0])]
)
def test_a_mean_over_prompts_has_to_know_them(counts):
    with pytest.raises(ValueError, match="prompt"):
        aggregate(LOSS, MASK, "prompt-mean", counts)


def test_an_unknown_average_is_refused():
    with pytest.raises(ValueError, match="loss_agg_mode 'mean'"):
        aggregate(LOSS, MASK, "mean")
