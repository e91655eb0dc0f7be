"""Masks, gates and means of ratios, against plain formulas: values and metrics, and gradients by
their autograd."""

import pytest
import torch

import rpg
from rpg.losses.policy_loss import rollout_weights
from tests.losses import oracle


@pytest.fixture
def data():
    """Log-probabilities of policies that differ by a factor of up to four; one response has an
    advantage of zero."""
    g = torch.Generator().manual_seed(0)
    log_prob, old = -0.05 - 1.4 * torch.rand(2, 40, 6, generator=g, dtype=torch.float64)
    advantages = torch.randn(40, 1, generator=g, dtype=torch.float64)
    advantages[0] = 0
    return {
        "log_prob": log_prob.clone().requires_grad_(),
        "old_log_prob": old,
        "advantages": advantages.expand(40, 6),
        "response_mask": torch.arange(6) < torch.randint(1, 7, (40, 1), generator=g),
    }


def mean_log_ratio(data):
    mask = data["response_mask"]
    total = ((data["log_prob"] - data["old_log_prob"]) * mask).sum(-1, keepdim=True)
    return total / mask.sum(-1, keepdim=True)


def check(algo, data, plain, **fractions):
    """`plain` is the loss of each token (B, T), or of each response (B, 1); `fractions` are tokens
    (B, T) bool."""
    out = rpg.policy_loss(algo, **data)
    mask = data["response_mask"]
    plain = plain[mask].mean() if plain.shape == mask.shape else plain.mean()
    assert out.loss.item() == pytest.approx(plain.item(), rel=1e-12)
    found, meant = (oracle.gradient(value, data["log_prob"]) for value in (out.loss, plain))
    torch.testing.assert_close(found, meant, rtol=1e-11, atol=1e-15)
    share = lambda tokens: tokens[mask].double().mean().item()  # noqa: E731
    shares = {f"clip_fraction_{name}": share(tokens) for name, tokens in fractions.items()}
    assert {name: out.metrics[name] for name in shares} == pytest.approx(shares, rel=1e-12)
    return out.metrics


@pytest.mark.parametrize(
    ("low", "high", "always"),
    [(0.1, 0.15, False), (None, 0.05, False), (0.1, None, True), (0.05, 0.1, True)],
)
@pytest.mark.parametrize("by", ["tv", "kl", "ratio", "response"])
@pytest.mark.parametrize("clipped", [True, False])
def test_a_mask_silences_what_moved_too_far(data, clipped, by, low, high, always):
    """DPPO's and prime-rl's: the penalty on log² w stays, and what is masked counts as clipped
    once."""
    log_prob = data["log_prob"]
    old = data["old_log_prob"]
    A = data["advantages"]
    pi = log_prob.detach().exp()
    was = old.exp()
    w = (log_prob - old).exp()
    moved = {
        "tv": pi - was,
        "kl": (pi - was).sign()
        * (was * (was / pi).log() + (1 - was) * ((1 - was) / (1 - pi)).log()),
        "ratio": w.detach() - 1,
        "response": mean_log_ratio(data).detach().expand(40, 6),
    }[by]
    up = (moved > (torch.inf if high is None else high)) & (always | (A > 0))
    down = (moved < (-torch.inf if low is None else -low)) & (always | (A <= 0))
    settings = {
        "mask": {"by": by, "low": low, "high": high, "always": always},
        "drift_penalty": 0.05,
    }
    if clipped:
        algo = rpg.algorithm("dapo", clip={"low": 0.2, "high": 0.28, "c": 1.5}, **settings)
        plain = oracle.plain_dual_clip(w, A, 0.2, 0.28, 1.5)
        cut = (A >= 0) & (w >= 1.28), (A < 0) & (w <= 0.8), (A < 0) & (w >= 1.5)
    else:
        algo = rpg.algorithm("cispo", clip=None, **settings)
        plain = -w.detach() * A * log_prob
        cut = (up & False,) * 3
    silent = up | down
    plain = torch.where(silent, 0, plain) + 0.05 * (log_prob - old) ** 2
    upper, lower, dual = (x & ~silent for x in cut)
    assert up[data["response_mask"]].any() or down[data["response_mask"]].any()
    check(algo, data, plain, upper=upper | up, lower=lower | down, dual=dual)


def test_cispo_bounds_the_weight_and_silences_nothing(data):
    w = (data["log_prob"] - data["old_log_prob"]).exp().detach()
    plain = -w.clamp(0.9, 1.3) * data["advantages"] * data["log_prob"]
    algo = rpg.algorithm("cispo", clip={"low": 0.1, "high": 0.3})
    check(algo, data, plain, upper=w > 1.3, lower=w < 0.9)


@pytest.mark.parametrize("clip", [{"low": 0.3, "high": 0.2, "c": None}, None])
def test_gmpo_clips_each_token_and_takes_their_geometric_mean(data, clip):
    A = data["advantages"]
    mask = data["response_mask"]
    log_w = data["log_prob"] - data["old_log_prob"]
    low = clip["low"] if clip else torch.inf
    high = clip["high"] if clip else torch.inf
    bounded = torch.where(A < 0, log_w.clamp(min=-low), log_w.clamp(max=high))
    lengths = mask.sum(-1, keepdim=True)
    w = ((bounded * mask).sum(-1, keepdim=True) / lengths).exp()

    metrics = check(
        rpg.algorithm("gmpo", clip=clip),
        data,
        -w * A[:, :1],
        upper=(A >= 0) & (log_w > high),
        lower=(A < 0) & (log_w < -low),
    )

    assert metrics["ratio_mean"] == pytest.approx(w.mean().item(), rel=1e-12)


@pytest.mark.parametrize(("surrogate", "apart"), [("gspo", 0), ("gspo_joint", 1)])
def test_gspo_clips_the_geometric_mean(data, surrogate, apart):
    """As in its paper's eq. 5: the mean over a response of what its ratio makes of each token;
    gspo_joint is that, too, where the advantages of tokens differ."""
    w = mean_log_ratio(data).exp()
    mask = data["response_mask"]
    A = data["advantages"]
    A = A + apart * (torch.arange(6) - 2.5)
    tokens = torch.maximum(-w * A, -w.clamp(0.9, 1.2) * A)
    plain = (tokens * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    silent = torch.where(A < 0, w < 0.9, w > 1.2)
    algo = rpg.algorithm("gspo", surrogate=surrogate, clip={"low": 0.1, "high": 0.2})
    metrics = check(
        algo, data | {"advantages": A}, plain, upper=silent & (w > 1), lower=silent & (w < 1)
    )
    assert metrics["ratio_max"] == pytest.approx(w.max().item(), rel=1e-12)


@pytest.mark.parametrize("at", ["old", "current"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_kl_in_the_advantages_is_a_constant(data, estimator, at):
    old = data["old_log_prob"]
    w = (data["log_prob"] - data["old_log_prob"]).exp()
    ref = old.roll(1, 0)
    d = (old if at == "old" else data["log_prob"].detach()) - ref
    A = data["advantages"] - 0.5 * {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() - 1 + d}[estimator]
    settings = {"beta": 0.5, "kl": {"type": "advantage", "estimator": estimator, "at": at}}
    algo = rpg.algorithm("grpo", loss_agg_mode="token-mean", **settings)
    check(algo, data | {"ref_log_prob": ref}, torch.maximum(-w * A, -w.clamp(0.8, 1.2) * A))


def test_a_kl_in_the_loss_with_its_score(data):
    """NeMo-RL's factor is 1 and has a gradient."""
    log_prob = data["log_prob"]
    ref = data["old_log_prob"].roll(1, 0)
    plain = (log_prob - log_prob.detach()).exp() * (log_prob - ref) ** 2 / 2 - data[
        "advantages"
    ] * log_prob
    kl = {"type": "loss", "estimator": "k2", "weighted": "score"}
    algo = rpg.algorithm("reinforce", kl=kl, beta=1.0, loss_agg_mode="token-mean")
    check(algo, data | {"ref_log_prob": ref}, plain)


def test_a_sigmoid_gate_is_sapos(data):
    A = data["advantages"]
    w = (data["log_prob"] - data["old_log_prob"]).exp()
    tau = torch.where(A > 0, 2.0, 3.0).double()
    algo = rpg.algorithm(
        "sapo", gate={"positive": 2.0, "negative": 3.0}, loss_agg_mode="token-mean"
    )
    check(algo, data, -4 / tau * torch.sigmoid(tau * (w - 1)) * A)


@pytest.mark.parametrize("by_probability", [True, False])
def test_a_quadratic_gate_is_drpos_and_spos(data, by_probability):
    """The penalty of UniRL's ar_drpo.py at e6abe053, with its options."""
    A = data["advantages"]
    old = data["old_log_prob"]
    w = (data["log_prob"] - old).exp()
    weight = old.exp() if by_probability else torch.ones_like(old)
    gate = {"epsilon": 0.7, "by_probability": by_probability}
    algo = rpg.algorithm("drpo", gate=gate)
    check(algo, data, -A * w + A.abs() * weight * (w - 1) ** 2 / (2 * 0.7))


def test_a_quadratic_gate_without_the_advantage_is_the_ratios_variance(data):
    """On samples of old, whose ratios have mean 1; R2VPO's primal step at a fixed multiplier."""
    A = data["advantages"]
    w = (data["log_prob"] - data["old_log_prob"]).exp()
    algo = rpg.algorithm("r2vpo", gate={"epsilon": 0.2})
    check(algo, data, -w * A + 2.5 * (w - 1) ** 2)


def test_a_kl_to_go_is_taken_from_the_token_on(data):
    """FRPO: after the rewards were normalised; tokens after the end of a response do not count."""
    old = data["old_log_prob"]
    mask = data["response_mask"]
    ref = old.roll(1, 0)
    apart = torch.where(mask, old - ref, 0)
    to_go = torch.stack([apart[:, t:].sum(-1) for t in range(6)], -1)
    A = data["advantages"] - 0.5 * to_go
    w = (data["log_prob"] - old).exp()
    plain = torch.maximum(-w * A, -w.clamp(0.8, 1.2) * A)
    algo = rpg.algorithm("frpo", beta=0.5, loss_agg_mode="token-mean")
    check(algo, data | {"ref_log_prob": ref}, plain)


def test_a_centred_kl_is_vopds():
    """As the advantage of holi-lab/vOPD's opd_trainer.py at 9edcf856 with use_baseline; over all
    tokens of a vocabulary it is the gradient of the reverse KL, at any drift."""
    generator = torch.Generator().manual_seed(3)
    draws = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    logits = draws[0].clone().requires_grad_()
    log_pi = logits.log_softmax(-1)
    old = draws[1].log_softmax(-1)
    log_q = draws[2].log_softmax(-1)
    kl = oracle.kl(log_pi, log_q)
    advantage = -(log_pi - log_q - kl).detach()
    w = (log_pi - old).exp()

    algo = rpg.algorithm("vopd")
    out = rpg.policy_loss(
        algo,
        log_prob=log_pi[:, None],
        old_log_prob=old[:, None],
        advantages=torch.zeros(7, 1, dtype=torch.float64),
        response_mask=torch.ones(7, 1),
        ref_log_prob=log_q[:, None],
        token_kl=kl.expand(7)[:, None],
    )

    assert out.loss.item() == pytest.approx((-w * advantage).mean().item(), rel=1e-12)
    slopes = oracle.gradient(out.loss, log_pi) * 7
    found = oracle.gradient((old.exp() * slopes * log_pi).sum(), logits)
    torch.testing.assert_close(found, oracle.gradient(kl, logits), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("setting", [{"estimator": "k3"}, {"at": "old"}, {"to_go": True}])
def test_what_is_centred_is_k1_of_the_trained_policy(setting):
    with pytest.raises(rpg.AlgorithmError, match="centred"):
        rpg.algorithm("vopd", kl=setting)


def _left_by_second_moment(squares, high):
    """The rule of AReaL's actor.py at cbff54d6: from the largest on, until the mean of the rest is
    below `high`; the smallest stays."""
    order = sorted(range(len(squares)), key=lambda i: -squares[i])
    while len(order) > 1 and sum(squares[i] for i in order) / len(order) >= high:
        del order[0]
    return set(order)


@pytest.mark.parametrize("high", [0.04, 0.3, 1e-9, 50.0])
def test_the_most_stale_tokens_of_a_rollout_are_dropped(high):
    generator = torch.Generator().manual_seed(1)
    old, sampler = 0.6 * torch.randn(2, 30, 4, generator=generator, dtype=torch.float64)
    mask = torch.arange(4) < torch.arange(30)[:, None] % 4 + 1
    algo = rpg.algorithm("m2po", rollout_correction={"high": high})

    found = rollout_weights(
        algo.rollout_correction, old_log_prob=old, sampler_log_prob=sampler, response_mask=mask
    )

    log_ratios = (old - sampler)[mask]
    kept = _left_by_second_moment((log_ratios**2).tolist(), high)
    meant = [x.exp().item() if i in kept else 0.0 for i, x in enumerate(log_ratios)]
    assert found[mask].tolist() == pytest.approx(meant)
    assert not found[~mask].any()


def test_a_gamma_gate_is_vespos(data):
    A = data["advantages"]
    mask = data["response_mask"]
    W = ((data["log_prob"] - data["old_log_prob"]) * mask).sum(-1, keepdim=True).exp().detach()
    weight = torch.where(A < 0, W**1.5 * (0.75 * (1 - W)).exp(), W**0.5 * (0.25 * (1 - W)).exp())
    algo = rpg.algorithm("vespo", gate={"positive": (0.5, 0.25), "negative": (1.5, 0.75)})
    metrics = check(algo, data, -weight * A * data["log_prob"])
    assert metrics["ratio_max"] == pytest.approx(W.max().item(), rel=1e-12)


@pytest.mark.parametrize("by", ["k1", "k2", "k3"])
@pytest.mark.parametrize("level", ["token", "sum", "mean", "all"])
def test_samples_of_a_sampler_that_was_too_far_are_rejected(level, by):
    generator = torch.Generator().manual_seed(0)
    old, sampler = 0.6 * torch.randn(2, 60, 4, generator=generator, dtype=torch.float64)
    mask = torch.arange(4) < torch.arange(60)[:, None] % 4 + 1
    high = {"k1": 1.5, "k2": 0.2, "k3": 0.2}[by]
    setting = {"type": "reject", "level": level, "by": by, "low": 0.7, "high": high}
    found = rollout_weights(
        rpg.algorithm("grpo", rollout_correction=setting).rollout_correction,
        old_log_prob=old,
        sampler_log_prob=sampler,
        response_mask=mask,
    )

    def fits(x):
        return bool(0.7 <= x.exp() <= high if by == "k1" else x <= high)

    for row, (d, weights) in enumerate(zip(old - sampler, found.expand(60, 4), strict=True)):
        measure = {"k1": d, "k2": d**2 / 2, "k3": d.exp() - 1 - d}[by][mask[row]]
        if level in ("sum", "mean"):
            measure = getattr(measure, level)().expand(len(measure))
        kept = [fits(x) for x in measure]
        kept = [all(kept)] * len(kept) if level == "all" else kept
        assert weights[mask[row]].tolist() == kept
    assert 0.05 < found.mean() < 0.95
