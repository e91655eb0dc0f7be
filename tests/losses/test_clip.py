"""RPG-Style Clip, branch by branch: hand-computed numbers and gradients (paper.md section 5,
Algorithms 1, 2)."""

import math
from itertools import product

import pytest
import torch

import rpg
from tests.losses import oracle

LOW = 0.2
HIGH = 0.28
C = 3.0
BETA = 0.5


def one(algo, w, reward, log_ref=None):
    """Value and gradient of one token with ratio w."""
    lp = torch.tensor([[math.log(w) - 1.0]], dtype=torch.float64, requires_grad=True)
    full = lambda x: torch.full((1, 1), x, dtype=torch.float64)  # noqa: E731
    given = {"old_log_prob": full(-1.0), "advantages": full(reward), "response_mask": full(1.0)}
    given |= {} if log_ref is None else {"ref_log_prob": full(log_ref)}
    out = rpg.policy_loss(algo, log_prob=lp, **given)
    return out.loss.item(), oracle.gradient(out.loss, lp).item(), out.metrics


def rpg_clip(divergence, style, gradient="exact"):
    clip = {"low": LOW, "high": HIGH, "c": C}
    if style == "differentiable":
        clip["gradient"] = gradient
    return rpg.algorithm(oracle.name(divergence, style), beta=BETA, clip=clip)


def test_urkl_reinforce_by_hand():
    """Value and slope of each branch of Algorithm 2: A = R - 0.5 log w where ref is old, log pi =
    -1 + log w."""
    for (w, reward), numbers in {
        (1.2, 1.0): (0.8917659, -1.0906071),  # A = 1 - 0.5 ln 1.2 = 0.908839
        (1.5, 1.0): (0.5802073, 0.0),  # upper: (1.28 - 0.75 ln 1.5) (1 - ln 1.5)
        (0.5, 1.0): (1.1399737, -0.6732868),  # small, and A >= 0: PPO leaves it alone
        (0.7, -1.0): (-0.9159778, 0.0),  # lower
        (2.0, -1.0): (-0.8263998, 2.6931472),  # A = -1 - 0.5 ln 2
        (3.5, -1.0): (1.3124301, 0.0),  # dual
    }.items():
        assert one(rpg_clip("urkl", "reinforce"), w, reward)[:2] == pytest.approx(numbers, abs=1e-6)


def test_branch_is_on_the_regularised_advantage():
    """R = 0.1 > 0, but A = 0.1 - 0.5 ln 2 < 0. A decides, so w = 2 is not clipped, as in released
    code."""
    _, slope, metrics = one(rpg_clip("urkl", "reinforce"), 2.0, 0.1)
    assert metrics["clip_fraction"] == 0
    assert slope == pytest.approx(0.4931472, abs=1e-7)  # -2 (0.1 - 0.5 ln 2)


GRID = [
    *product((0.3, 0.7, 0.79, 0.81, 1.0, 1.27, 1.29, 2.0, 2.9, 3.1, 6.0), (-2.0, -0.3, 0.2, 2.0))
]


BOUNDS = {"upper": 1 + HIGH, "lower": 1 - LOW, "dual": C}


def bound_that_cuts(w, A):
    """The bound that silences a token of ratio w and regularised advantage A, or None."""
    if A >= 0:
        return "upper" if w >= 1 + HIGH else None
    if w >= C:
        return "dual"
    return "lower" if w <= 1 - LOW else None


@pytest.mark.parametrize("log_ref", [None, -1.4])
@pytest.mark.parametrize("divergence", oracle.DIVERGENCES)
def test_algorithm_2_on_a_grid(divergence, log_ref):
    """What is silent reports its bound times R and C_KL = w (A - R), which has no bound."""
    old = torch.tensor(-1.0, dtype=torch.float64)
    ref = old if log_ref is None else torch.tensor(log_ref, dtype=torch.float64)
    seen = set()
    for w, r in GRID:
        lp = old + math.log(w)
        A = oracle.regularised_advantage(divergence, lp, old, ref, r, BETA).item()
        cut = bound_that_cuts(w, A)
        seen.add((cut, A >= 0))

        value, grad, metrics = one(rpg_clip(divergence, "reinforce"), w, r, log_ref=log_ref)

        assert grad == pytest.approx(-w * A if cut is None else 0.0, abs=1e-12)
        bounded_reward = BOUNDS.get(cut, w) * r
        kl = w * (A - r)
        assert value == pytest.approx(-(bounded_reward + kl) * lp.item(), abs=1e-12)
        assert metrics["clip_fraction"] == (cut is not None)
        for name in BOUNDS:
            assert metrics[f"clip_fraction_{name}"] == (name == cut)
    assert seen == {
        (None, True),
        (None, False),
        ("upper", True),
        ("lower", False),
        ("dual", False),
    }


@pytest.mark.parametrize("log_ref", [None, -1.4])
@pytest.mark.parametrize("mode", ["through", "detached", "exact"])
@pytest.mark.parametrize("divergence", oracle.DIVERGENCES)
def test_algorithm_1_on_a_grid(divergence, mode, log_ref):
    """Autograd through `max(-wA, -clip(w) A)` and `-cA`: literally, with A constant, and exact."""
    old = torch.tensor(-1.0, dtype=torch.float64)
    ref = old if log_ref is None else torch.tensor(log_ref, dtype=torch.float64)
    for w, r in GRID:
        lp = (old + math.log(w)).requires_grad_()
        A = oracle.regularised_advantage(divergence, lp, old, ref, r, BETA)
        if mode == "detached":
            A = A.detach()
        if mode == "exact" and bound_that_cuts(w, A) is None:
            loss = oracle.plain_rpg(divergence, "differentiable", lp, old, ref, r, BETA)
        else:
            loss = oracle.plain_dual_clip((lp - old).exp(), A, LOW, HIGH, C)

        value, grad, _ = one(rpg_clip(divergence, "differentiable", mode), w, r, log_ref=log_ref)

        assert grad == pytest.approx(oracle.gradient(loss, lp).item(), abs=1e-12)
        assert value == pytest.approx(loss.item(), abs=1e-12)


def test_through_cancels_a_forward_kl():
    """Why `exact` is the default: -w A = -w R - beta v for FKL, whose KL part is constant in the
    policy."""
    without_kl = rpg.algorithm("rpg-fkl", beta=0.0, clip={"low": LOW, "high": HIGH, "c": C})
    expected = one(without_kl, 1.1, 1.0)[1]
    assert one(rpg_clip("fkl", "differentiable", "through"), 1.1, 1.0)[1] == expected
    assert one(rpg_clip("fkl", "differentiable", "exact"), 1.1, 1.0)[1] != expected


@pytest.mark.parametrize(
    ("w", "advantage", "value", "slope"),
    [
        (1.2, 2.0, -2.4, -2.4),
        (1.5, 2.0, -2.56, 0.0),  # -1.28 A
        (0.5, -2.0, 1.6, 0.0),  # -0.8 A
        (2.0, -2.0, 4.0, 4.0),
        (5.0, -2.0, 6.0, 0.0),  # -3 A: the dual clip
    ],
)
def test_ppo_dual_clip_by_hand(w, advantage, value, slope):
    algo = rpg.algorithm("dapo", "released", clip={"c": 3.0})
    assert one(algo, w, advantage)[:2] == pytest.approx((value, slope))


def test_without_c_ppo_has_no_dual_clip():
    assert one(rpg.algorithm("dapo"), 5.0, -2.0)[:2] == pytest.approx((10.0, 10.0))


@pytest.mark.parametrize("ratio", ["prefix", "sequence"])
@pytest.mark.parametrize("style", oracle.STYLES)
def test_sequence_clip_uses_the_product(style, ratio):
    """Two tokens at ratio 1.2 each: every token is inside, the response (1.44) is not."""
    lp = torch.full((1, 2), -1 + math.log(1.2), dtype=torch.float64, requires_grad=True)
    old = torch.full((1, 2), -1.0, dtype=torch.float64)
    for level, silent in (("token", False), (ratio, True)):
        algo = rpg.algorithm(oracle.name("urkl", style), ratio=level, beta=0.0)
        out = rpg.policy_loss(
            algo,
            log_prob=lp,
            old_log_prob=old,
            advantages=torch.ones(1, 2),
            response_mask=torch.ones(1, 2),
        )
        assert (oracle.gradient(out.loss, lp).abs().max() == 0) == silent
        assert out.metrics["clip_fraction_upper"] == silent
        assert out.metrics["ratio_max"] == pytest.approx(1.44 if silent else 1.2)
