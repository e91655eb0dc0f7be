"""The eight RPG losses against the exact gradient of their objective, by enumeration of all
outcomes."""

import pytest
import torch

import rpg
from tests.losses import oracle
from tests.losses.oracle import STYLES, name


def enumerate_loss(algo, log_pi, log_old, log_ref, reward):
    """E_old[gradient] through rpg.policy_loss: one outcome per row, weighted by its share of old's
    mass."""
    n = len(reward)
    out = rpg.policy_loss(
        algo,
        log_prob=log_pi[:, None],
        old_log_prob=log_old[:, None],
        ref_log_prob=None if log_ref is log_old else log_ref[:, None],
        advantages=reward[:, None],
        response_mask=torch.ones(n, 1),
        rollout_weights=n
        * log_old.softmax(0)[:, None],  # turns the mean over rows into an expectation
    )
    return out.loss


@pytest.mark.parametrize("third", [False, True], ids=["ref==old", "three policies"])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("divergence", oracle.DIVERGENCES)
def test_expected_gradient_is_exact(divergence, style, third):
    algo = rpg.algorithm(name(divergence, style), beta=0.7, clip=None)
    for seed in range(5):
        logits, log_old, log_ref, reward = oracle.policies(outcomes=7, seed=seed, third=third)
        log_pi = torch.log_softmax(logits, 0)
        ours = oracle.gradient(enumerate_loss(algo, log_pi, log_old, log_ref, reward), logits)
        exact = -oracle.gradient(oracle.objective(divergence, log_pi, log_ref, reward, 0.7), logits)
        assert exact.norm() > 1e-3
        assert (ours - exact).norm() / exact.norm() < 1e-12


@pytest.mark.parametrize("third", [False, True], ids=["ref==old", "three policies"])
def test_the_four_kl_metrics_are_the_divergences_they_name(third):
    """By enumeration: outcome i has probability i / 10 under old and is i of the ten rows, so a
    mean over rows is E_old. `kl_policy_to_ref` decides when the reference `kl_above` is renewed.
    """
    logits, _, log_ref, reward = oracle.policies(outcomes=4, seed=1)
    outcome = torch.arange(4).repeat_interleave(torch.arange(1, 5))
    log_old = torch.log(torch.arange(1, 5, dtype=torch.float64) / 10)
    log_pi = torch.log_softmax(logits, 0)
    log_ref = log_ref if third else log_old
    given = {"log_prob": log_pi, "old_log_prob": log_old, "advantages": reward}
    given |= {"ref_log_prob": log_ref} if third else {}
    given = {key: value[outcome, None] for key, value in given.items()}
    out = rpg.policy_loss(
        rpg.algorithm("rpg-urkl", beta=0.7), response_mask=torch.ones(10, 1), **given
    )
    policies = {"policy": log_pi, "old": log_old, "ref": log_ref}
    for p, q in (("old", "policy"), ("policy", "old"), ("ref", "policy"), ("policy", "ref")):
        exact = oracle.kl(policies[p], policies[q]).item()
        assert out.metrics[f"kl_{p}_to_{q}"] == pytest.approx(exact, rel=1e-12)
        assert exact > 0.01


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("divergence", ["ufkl", "urkl"])
def test_mass_Z_of_unnormalised_measures(divergence, style):
    """pi and old are measures: old has mass Z, samples come from old / Z, and the mass terms
    matter."""
    g = torch.Generator().manual_seed(1)
    log_pi = torch.randn(6, generator=g, dtype=torch.float64).requires_grad_()
    log_old = torch.randn(6, generator=g, dtype=torch.float64)
    reward = torch.randn(6, generator=g, dtype=torch.float64)
    Z = log_old.exp().sum().item()
    algo = rpg.algorithm(name(divergence, style), beta=0.7, clip=None, kl={"Z": Z})
    ours = oracle.gradient(enumerate_loss(algo, log_pi, log_old, log_old, reward), log_pi)
    exact = -oracle.gradient(oracle.objective(divergence, log_pi, log_old, reward, 0.7), log_pi)
    assert (ours - exact).norm() / exact.norm() < 1e-12


def batch(rows=40, tokens=9, seed=0, third=True, scale=0.5):
    g = torch.Generator().manual_seed(seed)

    def draw():
        return torch.randn(rows, tokens, generator=g, dtype=torch.float64)

    old = -draw().abs()
    mask = torch.arange(tokens) < torch.randint(1, tokens + 1, (rows, 1), generator=g)
    return {
        "log_prob": (old + scale * draw()).requires_grad_(),
        "old_log_prob": old,
        "ref_log_prob": old + scale * draw() if third else None,
        "advantages": draw()[:, :1].expand(rows, tokens).clone(),
        "response_mask": mask,
    }


@pytest.mark.parametrize("third", [False, True])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("divergence", oracle.DIVERGENCES)
def test_every_sample_is_the_plain_formula_under_autograd(divergence, style, third):
    """Of functions of the loss, too: gradient accumulation, loss scaling and auxiliary losses."""
    data = batch(third=third)
    out = rpg.policy_loss(rpg.algorithm(name(divergence, style), beta=0.3, clip=None), **data)
    lp = data["log_prob"]
    olp = data["old_log_prob"]
    mask = data["response_mask"]
    rlp = olp if data["ref_log_prob"] is None else data["ref_log_prob"]
    plain = oracle.plain_rpg(divergence, style, lp, olp, rlp, data["advantages"], 0.3)
    plain = (plain * mask).sum() / mask.sum()
    torch.testing.assert_close(out.loss, plain, rtol=1e-12, atol=1e-15)
    for outer in (lambda x: x, lambda x: -2.5 * x, lambda x: x.square() + x, torch.exp):
        ours, meant = (oracle.gradient(outer(value), lp) for value in (out.loss, plain))
        torch.testing.assert_close(ours, meant, rtol=1e-11, atol=1e-15)


def test_a_reference_of_its_own_cannot_be_forgotten():
    """GRPO's reference is fixed; without its log-probabilities the KL would silently be that to
    `old`."""
    data = batch(third=True)
    forgotten = {**data, "ref_log_prob": None}
    with pytest.raises(ValueError, match=r"ref_log_prob: grpo .* \(reference: fixed\)"):
        rpg.policy_loss(rpg.algorithm("grpo"), **forgotten)
    assert rpg.policy_loss(rpg.algorithm("grpo"), **data).loss.isfinite()
    assert rpg.policy_loss(rpg.algorithm("grpo", reference="old"), **forgotten).loss.isfinite()
    assert rpg.policy_loss(rpg.algorithm("grpo", kl="none"), **forgotten).loss.isfinite()
