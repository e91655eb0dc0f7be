"""What every loss of the catalogue is exact for, and facts about losses that the audit has to
find."""

import functools
import importlib.metadata
import io
import json
from pathlib import Path

import pytest
import torch

import rpg
from rpg.auditing import EXACT, audit_catalogue, peers
from rpg.auditing.measure import exact_gradients
from rpg.auditing.moments import moments
from rpg.auditing.objectives import Objective, gradients, terms
from rpg.auditing.subjects import Scene, from_algorithm
from rpg.auditing.worlds import world
from rpg.catalogue import DIVERGENCES, override

TOKEN, RESPONSE = (str(Objective(level, "none")) for level in ("token", "sequence"))
TOKEN_FKL, RESPONSE_FKL = (str(Objective(level, "fkl")) for level in ("token", "sequence"))
TOKEN_RKL, RESPONSE_RKL = (str(Objective(level, "rkl")) for level in ("token", "sequence"))
RELEASED = ("fkl", "rkl", "ufkl", "urkl")


def _token(divergence):
    forward = ("fkl", "ufkl")
    reverse = ("rkl", "urkl")
    known = {**dict.fromkeys(forward, TOKEN_FKL), **dict.fromkeys(reverse, TOKEN_RKL)}
    return known.get(divergence) or str(Objective("token", DIVERGENCES[divergence].normalised))


# name -> (exact at any drift when nothing is clipped, exact at drift 0)
CLAIMS = {
    # the divergence itself, whatever the style
    **{f"rpg-{s}{d}": ([_token(d)],) * 2 for s in ("", "reinforce-") for d in DIVERGENCES},
    **{f"rpg-{d} (released)": ([_token(d)],) * 2 for d in RELEASED},
    # the scripts whose KL is never added
    **{f"rpg-reinforce-{d} (released)": ([TOKEN], [TOKEN, RESPONSE]) for d in RELEASED},
    # k3 without the ratio: on-policy the *forward* KL, off-policy nothing
    "grpo": ([], [TOKEN_FKL]),
    "grpo (released)": ([], [TOKEN_FKL]),
    "grpo-corrected": ([TOKEN_RKL], [TOKEN_RKL]),
    "dapo (released)": ([TOKEN], [TOKEN, RESPONSE]),
    **{name: ([TOKEN], [TOKEN, RESPONSE]) for name in "dr-grpo dapo cispo dppo-tv dppo-kl".split()},
    **{name: ([TOKEN], [TOKEN, RESPONSE]) for name in "prime-rl ipo grpo-passk maxrl m2po".split()},
    # a KL in the reward, with a return to go, reaches the states too; off-policy it is old's KL,
    # not pi's
    **{name: ([], [RESPONSE_RKL]) for name in ("reinforce-pp", "rloo", "ppo", "frpo")},
    "reinforce-pp-baseline": ([], [TOKEN_RKL]),
    # k1 in the loss: its gradient averages to nothing
    "reinforce-pp (released)": ([], [TOKEN, RESPONSE]),
    "reinforce-pp-baseline (released)": ([], [TOKEN, RESPONSE]),
    **{
        name: ([], [TOKEN, RESPONSE])
        for name in "gpg gspo gmpo sapo opo luspo vespo dro drpo r2vpo tpo reinforce".split()
    },
    # distillation, without the reward; a JSD is none of the objectives
    **{name: ([TOKEN_RKL],) * 2 for name in ("opd", "vopd", "opd-rkl")},
    "opd-fkl": ([TOKEN_FKL],) * 2,
    **{name: ([], []) for name in ("opd-jsd", "gkd")},
    "minillm": ([], [RESPONSE_RKL]),
}


@pytest.fixture(scope="module")
def report():
    return audit_catalogue(peers=False)


def test_every_entry_has_a_claim(report):
    assert {result.name for result in report.losses} == set(CLAIMS)
    assert set(rpg.algorithms()) <= set(CLAIMS)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_loss_has_the_objective_that_the_catalogue_claims(report, name):
    always, on_policy = CLAIMS[name]
    result = report[name]
    assert list(result.exact_off_policy) == always
    assert list(result.exact_on_policy) == on_policy
    for point in result.points:
        if not point.clipped and point.drift > 0:
            assert all(point.bias[objective] <= EXACT for objective in always)
        if not always and point.drift >= 0.2 and point.reference == "third":
            assert min(point.bias.values()) > 0.01  # measured, not small


def test_clipping_has_a_price(report):
    for result in report.losses:
        point = result.point(0.4, clipped=True)
        if point is not None:
            assert min(point.bias.values()) > 0.01


def test_token_ratios_are_biased_for_whole_responses_and_the_others_are_not(report):
    for result in report.levels:
        divergence, level = result.name.split()
        target = _token(divergence).replace("token", "sequence")
        biases = [p.bias[target] for p in result.points if not p.clipped and p.drift > 0]
        if level == "token":
            assert 0.05 < result.point(0.2).bias[target] < 0.5
        else:
            assert max(biases) <= EXACT
            assert result.exact_off_policy == (target,)


@pytest.mark.parametrize("drift", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("divergence", RELEASED)
def test_prefix_is_less_noisy_than_sequence(report, divergence, drift):
    token = report[f"{divergence} token"].point(drift).variance
    prefix = report[f"{divergence} prefix"].point(drift).variance
    sequence = report[f"{divergence} sequence"].point(drift).variance
    assert token < prefix < sequence


def test_normalised_and_unnormalised_forms_differ_in_variance_only(report):
    for normalised, unnormalised in (("rpg-fkl", "rpg-ufkl"), ("rpg-rkl", "rpg-urkl")):
        a, b = report[normalised], report[unnormalised]
        assert a.exact_off_policy == b.exact_off_policy
        for drift in (0.0, 0.1):
            assert (
                b.point(drift, reference="old").variance < a.point(drift, reference="old").variance
            )


@pytest.mark.component
def test_urkl_is_weighted_k3(report):
    """Same expectation and same variance, because they have the same gradient sample by sample."""
    entries = rpg.algorithm("rpg-urkl", clip=None), rpg.algorithm("grpo-corrected", clip=None)
    subjects = (from_algorithm(override(algo, loss_agg_mode="token-mean"), 0.3) for algo in entries)
    slopes = [Scene.of(subject, world(), 0.5).slopes(subject.loss) for subject in subjects]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-15)


def weighted_reverse_kl(sign=1.0, scale=1.0, kl=0.3):
    """RPG-RKL, whose slope is the reverse KL's where all three numbers are the defaults."""

    def loss(log_prob, old_log_prob, advantages, response_mask, ref_log_prob):
        ref = old_log_prob if ref_log_prob is None else ref_log_prob
        w = (log_prob - old_log_prob).exp()
        value = -sign * scale * w * advantages + kl * w * (log_prob - ref)
        return torch.where(response_mask, value, 0).sum() / response_mask.sum()

    return loss


def test_a_loss_with_the_right_gradient_is_exact():
    report = rpg.audit(weighted_reverse_kl(), beta=0.3, name="right")
    assert report["right"].exact_off_policy == (TOKEN_RKL,)


@pytest.mark.parametrize("fault", [{"sign": -1.0}, {"scale": 0.99}, {"kl": 0.29}])
def test_a_loss_with_a_wrong_sign_scale_or_kl_is_exact_for_nothing(fault):
    result = rpg.audit(weighted_reverse_kl(**fault), beta=0.3, name="wrong")["wrong"]
    assert result.exact_off_policy == ()
    assert result.exact_on_policy == ()


def test_means_per_response_are_found_to_be_biased():
    def summed(log_prob, old_log_prob, advantages, response_mask, ref_log_prob):
        value = (log_prob - old_log_prob).exp() * advantages
        return -torch.where(response_mask, value, 0).sum(-1).mean()

    assert rpg.audit(summed, per_token=False)["summed"].exact_off_policy == (TOKEN,)
    assert rpg.audit(summed, per_token=True)["summed"].exact_off_policy == ()


def test_mistakes_in_a_callable_are_raised():
    def broken(log_prob, old_log_prob, advantages, response_mask, ref_log_prob):
        return log_prob.meen()

    with pytest.raises(AttributeError, match="meen"):
        rpg.audit(broken)


def test_a_loss_that_mixes_its_batch_is_measured_over_all_batches_of_two():
    """The expectation over pairs of responses is a sum over 8 x 8 pairs, differentiated through
    the policy itself."""

    def mixed(log_prob, old_log_prob, advantages, response_mask, ref_log_prob):
        centred = advantages[:, 0] - advantages[:, 0].mean()
        return -(torch.where(response_mask, log_prob, 0).sum(-1) * centred).mean()

    w = world(vocabulary=2, length=3, seed=0)
    logits = w.policy(0.0).requires_grad_()
    probability = w.probabilities(w.old)
    log_prob = w.log_probs(logits).sum(-1)
    surrogate = 0.0
    for i in range(8):
        for j in range(8):
            # The mean over the two responses of log_prob times (reward - mean reward).
            value = (w.rewards[i] - w.rewards[j]) / 2 * (log_prob[i] - log_prob[j]) / 2
            surrogate = surrogate + probability[i] * probability[j] * value
    (enumerated,) = torch.autograd.grad(surrogate, logits)
    half = 0.5 * gradients(w, w.policy(0.0), w.ref, "sequence")["reward"]
    assert torch.allclose(enumerated.flatten(), half, atol=1e-12), "half of the reward's gradient"

    result = rpg.audit(mixed, per_token=False)["mixed"]
    assert result.batch == 2
    assert result.point(0.0).bias[RESPONSE] == pytest.approx(0.5)


def test_expected_gradient_against_finite_differences():
    """Objectives and scores against a second method."""
    w = world(vocabulary=2, length=2, seed=3)
    logits = w.policy(0.4).requires_grad_()
    for level in ("token", "sequence"):
        stacked = functools.partial(
            lambda level, x: torch.stack([*terms(w, x, w.ref, level).values()]), level
        )
        assert torch.autograd.gradcheck(stacked, logits)
        exact = gradients(w, logits, w.ref, level)
        jacobian = torch.autograd.functional.jacobian(stacked, logits).flatten(1)
        torch.testing.assert_close(torch.stack([*exact.values()]), jacobian)
        for kl, weight in (("none", 0.0), ("fkl", 0.3), ("rkl", 0.3)):
            expected = exact["reward"] - weight * exact.get(kl, exact["reward"])
            assert torch.equal(
                exact_gradients(w, 0.4, True, 0.3, True)[str(Objective(level, kl))], expected
            )


def test_moments_against_autograd():
    w = world(vocabulary=3, length=2, seed=1, eos=True)
    assert w.mask.sum(-1).tolist() == [1, 2, 2, 2, 2, 2, 2]
    logits = w.policy(0.3).requires_grad_()
    slope = (
        torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * w.mask
    )
    sums = (w.log_probs(logits) * slope).sum(-1)
    each = [-torch.autograd.grad(value, logits, retain_graph=True)[0].flatten() for value in sums]
    each = torch.stack(each)
    p = w.probabilities(w.old)
    found = moments(w, logits.detach(), slope)
    torch.testing.assert_close(found.mean, p @ each)
    covariance = (each - p @ each).T @ torch.diag(p) @ (each - p @ each)
    assert found.variance == pytest.approx(covariance.trace().item())


def test_the_probabilities_of_all_responses_of_a_world_add_up_to_one():
    for eos in (False, True):
        w = world(vocabulary=3, length=4, eos=eos)
        assert w.probabilities(w.old).sum().item() == pytest.approx(1.0, abs=1e-12)
        tokens = (w.probabilities(w.old) @ w.mask.sum(-1).double()).item()
        assert w.state_weights(w.old).sum().item() == pytest.approx(tokens, abs=1e-12)
        assert (w.probabilities(w.old) @ w.rewards).item() == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="at most 2,000 responses"):
        world(vocabulary=9)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_baselines_scale_the_gradient_as_their_formulas_say(report, size):
    results = {(one.name, one.setting): one for one in report.studies}
    others = results["mean of the others (RLOO)", f"group of {size}"]
    assert others.scale == pytest.approx(1.0, abs=1e-12)
    assert others.bias < EXACT
    mean = results["group mean (RPG, Dr. GRPO)", f"group of {size}"]
    assert mean.scale == pytest.approx(1 - 1 / size, abs=1e-12)
    assert mean.bias < EXACT


def test_dividing_by_the_std_of_a_group_turns_the_gradient(report):
    """It weighs prompts by their difficulty. In groups of two all stds are equal: only the scale
    changes."""
    results = {(one.name, one.setting): one for one in report.studies}
    assert results["group mean and std (GRPO, DAPO)", "group of 16"].bias > 0.05
    assert results["group mean and std (GRPO, DAPO)", "group of 2"].bias < 1e-10


def test_which_averages_over_tokens_are_unbiased(report):
    results = {b.name: b for b in report.studies if b.study == "aggregation"}
    assert results["seq-mean-token-sum"].scale == pytest.approx(1.0, abs=1e-12)
    for unbiased in ("seq-mean-token-sum", "seq-mean-token-sum-norm", "token-mean"):
        assert results[unbiased].bias < EXACT
    assert results["seq-mean-token-mean"].bias > 0.05  # GRPO's length bias


@pytest.mark.component
def test_the_report_of_an_audit_has_all_losses_as_json_and_as_a_table(report):
    from rich.console import Console

    data = json.loads(report.to_json())
    assert data["format"] == 1
    assert len(data["losses"]) == len(report.losses) + len(report.levels)
    columns = {
        "loss",
        "source",
        "drift",
        "clipped",
        "level",
        "divergence",
        "bias",
        "variance",
        "exact",
    }
    assert columns <= set(data["rows"][0])
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report.table())
    text = console.export_text()
    for name in rpg.algorithms():
        assert name in text
    assert "token R−βRKL" in text
    assert "Aggregation" in text
    console.print(rpg.audit(rpg.algorithm("rpg-reinforce-urkl", ratio="prefix")).table())
    assert "rpg-reinforce-urkl by drift" in console.export_text()


def test_absent_peers_are_named(monkeypatch):
    monkeypatch.setattr(peers, "version", lambda name: importlib.metadata.version(f"no-{name}"))
    subjects, absent = peers.installed(0.3)
    assert subjects == []
    assert absent == {"verl": "not installed", "trl": "not installed"}


DOCS = Path(__file__).parents[2] / "docs"


def test_documented_figures_are_the_measured_ones(report):
    assert report.markdown() in (DOCS / "audit.md").read_text()
    levels = (DOCS / "losses" / "ratio-levels.md").read_text()
    for divergence, level, *cells in report.level_rows():
        assert len(cells) == 4
        assert f"| `{divergence}` | {level} | {' | '.join(cells)} |" in levels
    advantages = (DOCS / "losses" / "advantages.md").read_text()
    results = [b for b in report.studies if b.study == "advantage"]
    for name in dict.fromkeys(b.name for b in results):
        if name.startswith(("no baseline", "batch mean (")):
            continue
        rows = (b for b in results if b.name == name)
        cells = [f"{b.scale:.3f}, {'0' if b.bias <= EXACT else f'{b.bias:.1%}'}" for b in rows]
        assert f"| {name.partition(' (')[0]} | {' | '.join(cells)} |" in advantages


def test_documented_peers_are_the_measured_ones():
    pytest.importorskip("verl", reason="the peers' table needs verl and TRL")
    pytest.importorskip("trl", reason="the peers' table needs verl and TRL")
    report = audit_catalogue()
    text = (DOCS / "audit.md").read_text()
    if {"verl 0.9.1", "trl 1.16.0"} <= {r.source for r in report.losses}:
        assert report.markdown("verl") in text
        assert report.markdown("trl") in text
