import pytest
import torch

import rpg
from rpg.losses.aggregation import Counts, aggregate

MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
LOSS = torch.tensor([[1.0, 2.0, 3.0, float("nan")], [5.0, float("inf"), 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])


def test_modes_by_hand():
    """Row sums 6 (three tokens) and 5 (one token); the third response is empty and does not count."""
    assert [aggregate(LOSS, MASK, mode).item() for mode in MODES] == pytest.approx(
        [11 / 4, 11 / 2, 7 / 2, 11 / 8]
    )


def test_horizon_replaces_the_width():
    counts = Counts.of(MASK, horizon=10)
    assert (counts.tokens, counts.sequences) == (4, 2)
    assert aggregate(LOSS, MASK, "seq-mean-token-sum-norm", counts).item() == pytest.approx(11 / 20)


@pytest.mark.parametrize("mode", MODES)
def test_micro_batches_add_up(mode):
    counts = Counts.of(MASK)
    parts = [aggregate(LOSS[i : i + 1], MASK[i : i + 1], mode, counts) for i in range(3)]
    torch.testing.assert_close(sum(parts), aggregate(LOSS, MASK, mode))


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_average_is_zero(mode):
    assert aggregate(LOSS, torch.zeros_like(MASK), mode) == 0


def test_unknown_mode():
    with pytest.raises(ValueError, match="loss_agg_mode 'mean'"):
        aggregate(LOSS, MASK, "mean")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["rpg-urkl", "rpg-reinforce-fkl", "grpo", "gspo", "cispo", "rloo"])
def test_policy_loss_micro_batches_add_up_to_the_same_gradient(name, mode):
    g = torch.Generator().manual_seed(0)
    lp = -torch.rand(6, 5, generator=g, dtype=torch.float64)
    data = {
        "old_log_prob": -torch.rand(6, 5, generator=g, dtype=torch.float64),
        "ref_log_prob": -torch.rand(6, 5, generator=g, dtype=torch.float64),
        "advantages": torch.randn(6, 1, generator=g, dtype=torch.float64).expand(6, 5),
        "response_mask": torch.rand(6, 5, generator=g) < 0.7,
    }
    algo = rpg.algorithm(name, loss_agg_mode=mode)
    counts = Counts.of(data["response_mask"])
    whole = lp.clone().requires_grad_()
    out = rpg.policy_loss(algo, log_prob=whole, **data)
    out.loss.backward()
    split, losses, weights, kls = lp.clone().requires_grad_(), [], [], []
    for rows in (slice(0, 1), slice(1, 4), slice(4, 6)):
        part = rpg.policy_loss(
            algo, log_prob=split[rows], counts=counts, **{k: v[rows] for k, v in data.items()}
        )
        part.loss.backward()
        losses.append(part.loss.item())
        weights.append(part.weight)
        kls.append(part.metrics["kl_policy_to_ref"] * part.weight)
    torch.testing.assert_close(split.grad, whole.grad, rtol=1e-12, atol=1e-15)
    assert sum(losses) == pytest.approx(out.loss.item(), rel=1e-12)
    assert sum(weights) == out.weight == counts.tokens
    assert sum(kls) / out.weight == pytest.approx(out.metrics["kl_policy_to_ref"], rel=1e-12)
