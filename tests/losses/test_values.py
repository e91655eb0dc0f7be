"""Loss, gradient and metrics of every baseline with every KL term, against the plain formula and
its autograd.

In the losses of a batch a wrong value hides where only gradients are compared: these are compared,
too.
"""

from itertools import product

import pytest
import torch

import rpg
from rpg.losses.policy_loss import LossInputs, rollout_weights, weight_metrics
from tests.losses import oracle
from tests.losses.test_exact import batch

BETA = 0.3


def surrogate(name, lp, old, reward):
    """Per token, unclipped (Schulman 2017, eq. 6; MiniMax-M1, eq. 4; Williams 1992)."""
    w = (lp - old).exp()
    return {"dapo": -w * reward, "cispo": -w.detach() * reward * lp, "reinforce": -reward * lp}[
        name
    ]


def penalty(kl, lp, old, ref):
    """Per token; an objective's is the loss of RPG without a reward."""
    w = (lp - old).exp()
    d = lp - ref
    if kl["type"] == "loss":
        value = {"k1": d, "k2": d.square() / 2, "k3": (-d).exp() - 1 + d}[kl["estimator"]]
        return w * value if kl["weighted"] else value
    return oracle.plain_rpg(kl["divergence"], kl["style"], lp, old, ref, 0.0, 1.0)


KLS = [
    *(
        {"type": "loss", "estimator": e, "weighted": w}
        for e, w in product(("k1", "k2", "k3"), (False, True))
    ),
    *(
        {"type": "objective", "divergence": d, "style": s}
        for d, s in product(oracle.DIVERGENCES, ("differentiable", "reinforce"))
    ),
]


@pytest.mark.parametrize("third", [False, True], ids=["ref==old", "three policies"])
@pytest.mark.parametrize("kl", KLS, ids=lambda kl: " ".join(map(str, kl.values())))
@pytest.mark.parametrize("name", ["dapo", "cispo", "reinforce"])
def test_baseline_with_a_kl_term(name, kl, third):
    data = batch(third=third)
    reference = "fixed" if third else "old"
    algo = rpg.algorithm(
        name, beta=BETA, kl=kl, clip=None, reference=reference, loss_agg_mode="token-mean"
    )
    lp = data["log_prob"]
    old = data["old_log_prob"]
    mask = data["response_mask"]
    ref = data["ref_log_prob"] if third else old
    plain = surrogate(name, lp, old, data["advantages"]) + BETA * penalty(kl, lp, old, ref)
    plain = (plain * mask).sum() / mask.sum()
    out = rpg.policy_loss(algo, **data)
    assert out.loss.item() == pytest.approx(plain.item(), rel=1e-12)
    ours = oracle.gradient(out.loss, lp)
    meant = oracle.gradient(plain, lp)
    torch.testing.assert_close(ours, meant, rtol=1e-11, atol=1e-15)


def test_kept_arguments_give_the_same_loss_and_its_slope():
    data = batch(third=True)
    algo = rpg.algorithm("rpg-urkl", beta=BETA)
    log_prob = data.pop("log_prob")
    inputs = LossInputs(**data)
    whole = rpg.policy_loss(algo, log_prob=log_prob, **data).loss
    assert inputs.loss(algo, log_prob).loss.item() == whole.item()
    slope = inputs.slope(algo, log_prob.detach().clone())
    torch.testing.assert_close(slope, oracle.gradient(whole, log_prob), rtol=0, atol=0)


WEIGHTS = torch.tensor([[0.5, 2.0, 9.0], [0.0, 1.5, 2.0]], dtype=torch.float64)
COUNTED = torch.tensor([[1, 1, 0], [1, 1, 1]])


TRUNCATE = {"type": "truncate", "cap": 2.0}
MASK = {"type": "mask", "low": 0.5, "high": 2.0}
OF_SEQUENCES = {"level": "sequence"}


@pytest.mark.parametrize(
    ("setting", "weights", "kept", "bounded"),
    [
        (TRUNCATE, WEIGHTS, [0.5, 2.0, 0.0, 1.5, 2.0], 2 / 5),
        (MASK, WEIGHTS, [0.5, 2.0, 0.0, 1.5, 2.0], 1 / 5),
        (TRUNCATE | OF_SEQUENCES, WEIGHTS[:, 1:2], [2.0, 1.5], 1 / 2),
        (MASK | OF_SEQUENCES, WEIGHTS[:, :1], [0.5, 0.0], 1 / 2),
        (MASK, 0 * WEIGHTS, [0.0] * 5, 1.0),
    ],
)
def test_metrics_of_rollout_weights_by_hand(setting, weights, kept, bounded):
    correction = rpg.algorithm("grpo", rollout_correction=setting).rollout_correction
    squares = sum(weight * weight for weight in kept)
    effective = sum(kept) ** 2 / squares if squares else 0.0

    metrics = weight_metrics(correction, weights, COUNTED)

    assert metrics == pytest.approx(
        {
            "rollout_weight_mean": sum(kept) / len(kept),
            "rollout_weight_ess": effective / len(kept),
            "rollout_weight_bounded": bounded,
        }
    )
    without_tokens = weight_metrics(correction, weights, 0 * COUNTED)
    assert set(without_tokens.values()) == {0.0}


def test_rollout_weights_keep_their_bounds_and_forget_what_is_masked():
    """Ratios at exactly low and high are kept; a masked position has the ratio 1, whatever stands
    there."""
    ratio = torch.tensor([[0.5, 2.0, 3.0, 0.25]], dtype=torch.float64)
    nan = torch.full((1, 1), float("nan"), dtype=torch.float64)
    old = torch.cat([ratio.log(), nan], 1).requires_grad_()
    correction = rpg.algorithm("grpo", rollout_correction="mask").rollout_correction
    given = {"old_log_prob": old, "response_mask": torch.tensor([[1, 1, 1, 1, 0]])}
    weights = rollout_weights(correction, sampler_log_prob=torch.zeros_like(old), **given)
    assert weights.tolist() == [[0.5, 2.0, 0.0, 0.0, 1.0]]
    assert not weights.requires_grad
    for setting in ("mask", {"type": "reject", "level": "all"}):
        correction = rpg.algorithm("grpo", rollout_correction=setting).rollout_correction
        with pytest.raises(FloatingPointError, match=r"sampler_log_prob\[0, 0\] is nan"):
            rollout_weights(correction, sampler_log_prob=nan * torch.zeros_like(old), **given)
