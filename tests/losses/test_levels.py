"""Ratio levels: `prefix` and `sequence` are exact for the objective over whole responses; `token`
is not.

The language (3 symbols, 3 tokens, logits per prefix) and its objectives are written here once more,
apart from rpg.auditing, so that the two can be held against each other.
"""

from itertools import product

import pytest
import torch

import rpg
from tests.losses import oracle

V = 3
T = 3
BETA = 0.4
RESPONSES = torch.tensor(list(product(range(V), repeat=T)))
STATES = torch.tensor([[0, 1 + int(y[0]), 1 + V + V * int(y[0]) + int(y[1])] for y in RESPONSES])


def language(seed, third):
    g = torch.Generator().manual_seed(seed)
    old, ref, step = torch.randn(3, 1 + V + V * V, V, generator=g, dtype=torch.float64)
    reward = torch.randn(len(RESPONSES), generator=g, dtype=torch.float64)
    return (old + 0.6 * step).requires_grad_(), old, ref if third else old, reward


def log_probs(logits):
    return torch.log_softmax(logits, -1)[STATES, RESPONSES]


def expected_gradient(algo, logits, old, ref, reward, third):
    """Over responses of old: a weight turns the mean over rows into an expectation."""
    given = {"old_log_prob": log_probs(old), "ref_log_prob": log_probs(ref) if third else None}
    given |= {
        "advantages": reward[:, None].expand(-1, T),
        "response_mask": torch.ones(len(reward), T),
    }
    weights = len(reward) * log_probs(old).sum(-1, keepdim=True).exp()
    out = rpg.policy_loss(algo, log_prob=log_probs(logits), rollout_weights=weights, **given)
    return oracle.gradient(out.loss, logits).flatten()


def make(divergence, style, ratio, **changes):
    how = {"beta": BETA, "clip": None, "loss_agg_mode": "seq-mean-token-sum"}
    return rpg.algorithm(oracle.name(divergence, style), ratio=ratio, **how | changes)


def exact(divergence, logits, ref, reward):
    log_pi = log_probs(logits).sum(-1)
    log_ref = log_probs(ref).sum(-1)
    return -oracle.gradient(
        oracle.objective(divergence, log_pi, log_ref, reward, BETA), logits
    ).flatten()


@pytest.mark.parametrize("third", [False, True], ids=["ref==old", "three policies"])
@pytest.mark.parametrize("style", oracle.STYLES)
@pytest.mark.parametrize("ratio", ["prefix", "sequence"])
@pytest.mark.parametrize("divergence", oracle.DIVERGENCES)
def test_exact_for_whole_responses(divergence, ratio, style, third):
    for seed in range(2):
        logits, old, ref, reward = language(seed, third)
        found = expected_gradient(make(divergence, style, ratio), logits, old, ref, reward, third)
        target = exact(divergence, logits, ref, reward)
        assert (found - target).norm() / target.norm() < 1e-12


@pytest.mark.parametrize("divergence", oracle.DIVERGENCES)
@pytest.mark.parametrize("ratio", ["prefix", "sequence"])
def test_differentiable_form_is_autograd_of_the_plain_formula(ratio, divergence):
    """The response's loss written with products and sums, differentiated by autograd."""
    g = torch.Generator().manual_seed(3)
    mask = torch.tensor(
        [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    ).bool()
    old, ref, lp = -torch.rand(3, 5, 4, generator=g, dtype=torch.float64)
    lp = lp.clone().requires_grad_()
    reward = torch.randn(5, 1, generator=g, dtype=torch.float64)
    log_probs = {"log_prob": lp, "old_log_prob": old, "ref_log_prob": ref}
    given = {"advantages": reward.expand(-1, 4), "response_mask": mask, **log_probs}
    out = rpg.policy_loss(make(divergence, "differentiable", ratio), **given)
    zero = torch.zeros_like(lp)
    a, b, c = (torch.where(mask, x, zero) for x in (lp, old, ref))
    if ratio == "sequence":
        a, b, c = (x.sum(-1, keepdim=True) for x in (a, b, c))
        plain = oracle.plain_rpg(divergence, "differentiable", a, b, c, reward, BETA)[:, 0]
    else:
        w = (a - b).cumsum(-1).exp()
        before = (w / (a - b).exp()).detach()  # products up to the token before
        v = (c - b).cumsum(-1).exp()
        d = a - c
        term = {
            "fkl": -v * a,
            "rkl": w * d,
            "ufkl": before * (a - b).exp() - v - v * d,
            "urkl": w * d - before * (a - b).exp(),
        }[divergence]
        plain = -(a - b).sum(-1).exp() * reward[:, 0] + BETA * (term * mask).sum(-1)
    plain = plain[:4].mean()  # the fifth response is empty and does not count
    assert out.loss.item() == pytest.approx(plain.item(), rel=1e-12)
    ours = oracle.gradient(out.loss, lp)
    meant = oracle.gradient(plain, lp)
    torch.testing.assert_close(ours, meant, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("mode", ["exact", "through", "detached"])
@pytest.mark.parametrize("divergence", oracle.DIVERGENCES)
def test_clipped_differentiable_sequences_are_autograd_of_algorithm_1(divergence, mode):
    g = torch.Generator().manual_seed(5)
    old, ref, lp = -torch.rand(3, 60, 3, generator=g, dtype=torch.float64) * 2
    lp = lp.clone().requires_grad_()
    reward = torch.randn(60, 1, generator=g, dtype=torch.float64)
    clip = {"low": 0.2, "high": 0.3, "c": 3.0, "gradient": mode}
    log_probs = {"log_prob": lp, "old_log_prob": old, "ref_log_prob": ref}
    given = {"advantages": reward.expand(-1, 3), "response_mask": torch.ones(60, 3), **log_probs}
    out = rpg.policy_loss(make(divergence, "differentiable", "sequence", clip=clip), **given)
    a, b, c = (x.sum(-1, keepdim=True) for x in (lp, old, ref))
    w = (a - b).exp()
    A = oracle.regularised_advantage(divergence, a, b, c, reward, BETA)
    plain = oracle.plain_dual_clip(w, A.detach() if mode == "detached" else A, 0.2, 0.3, 3.0)
    alive = torch.where(A >= 0, w < 1.3, (w > 0.8) & (w < 3.0))
    if mode == "exact":
        unclipped = oracle.plain_rpg(divergence, "differentiable", a, b, c, reward, BETA)
        plain = torch.where(alive, unclipped, plain)
    assert 10 < alive.sum() < 50
    assert out.loss.item() == pytest.approx(plain.mean().item(), rel=1e-12)
    ours = oracle.gradient(out.loss, lp)
    meant = oracle.gradient(plain.mean(), lp)
    torch.testing.assert_close(ours, meant, rtol=1e-12, atol=1e-15)
