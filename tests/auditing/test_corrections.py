"""What corrections for another sampler optimise, exactly, ours and those of other trainers; and the
weights themselves."""

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from rpg.auditing import peers, pinned
from rpg.auditing.moments import batch_slopes, inputs_of, moments
from rpg.auditing.objectives import gradients
from rpg.auditing.shipped import CORRECTION_WORDS as WORDS
from rpg.auditing.shipped import corrections, corrections_markdown
from rpg.auditing.studies import CORRECTIONS, UNCLIPPED, correction_study
from rpg.auditing.subjects import spread
from rpg.auditing.worlds import world
from rpg.catalogue import AlgorithmError, RejectedSamples, algorithm
from rpg.losses.policy_loss import rollout_weights

OURS = "token, sampler's prefixes"
OLDS = "token, old's prefixes"
WHOLE = "response"


@pytest.fixture(scope="module")
def found():
    return {(b.name, b.setting): b for b in correction_study()}


def test_each_correction_is_exact_for_what_it_says_and_only_unbounded_ones_are(found):
    exact = {
        key for key, bend in found.items() if bend.bias < 1e-10 and abs(bend.scale - 1) < 1e-10
    }
    assert exact == {("none: exact ratio", OURS), ("no bound, sequence", OLDS)}
    assert {name for name, _ in found} == set(CORRECTIONS)


def test_bounds_trade_noise_for_bias(found):
    free = found["no bound, sequence", OLDS]
    cut = found["truncate 2, sequence", OLDS]
    assert cut.noise < 0.8 * free.noise
    assert 0.05 < cut.bias < found["ignore", OLDS].bias


def planted(name, rate=0.5):
    """A sampler of the audit's world: the policy before one step of gradient ascent, or the policy
    rounded to bfloat16."""
    w = world()
    if name == "merged in bfloat16":
        return w.old.bfloat16().double()
    step = gradients(w, w.old, w.old, "sequence")["reward"]
    return w.old - rate * step.view_as(w.old)


def mean_step(sampler, setting):
    """The expected first step of a rollout from this sampler, by enumeration of all responses."""
    w = world()
    drawn = replace(w, old=sampler)
    correction = algorithm("grpo", rollout_correction=setting).rollout_correction
    inputs = inputs_of(w, w.old, w.old, spread(w, w.old))
    inputs["rollout_weights"] = rollout_weights(
        correction,
        old_log_prob=w.log_probs(w.old),
        sampler_log_prob=w.log_probs(sampler),
        response_mask=w.mask,
    )
    return moments(drawn, w.old, batch_slopes(UNCLIPPED, inputs)).mean


@pytest.mark.parametrize("name", ["one update old", "merged in bfloat16"])
def test_a_planted_gap_is_corrected_exactly_without_a_cap(name):
    """At the start of a step, where tokens and whole responses have one objective."""
    sampler = planted(name)
    assert float((sampler - world().old).abs().max()) > 1e-4, "no gap"
    whole = {"type": "truncate", "level": "sequence", "cap": 1e300}
    found = {
        label: mean_step(sampler, setting)
        for label, setting in {
            "ignored": "ignore",
            "uncapped, sequence": whole,
            "default": {"type": "truncate"},
        }.items()
    }
    exact = gradients(world(), world().old, world().old, "sequence")["reward"]
    off = {label: float((step - exact).norm() / exact.norm()) for label, step in found.items()}
    print(f"{name}: " + ", ".join(f"{label} {value:.2g}" for label, value in off.items()))
    assert off["uncapped, sequence"] < 1e-6 < off["ignored"]
    assert off["default"] < 10 * off["ignored"]


def test_a_sampler_that_is_old_needs_no_correction():
    bends = correction_study(apart=0.0)
    assert {b.bias < 1e-10 for b in bends if b.setting == OLDS} == {True}
    assert len({round(b.noise, 10) for b in bends}) == 1


def test_weights_by_hand():
    old = torch.tensor([[-1.0, -1.0, 9.0], [-2.0, 9.0, 9.0]])
    sampler = torch.tensor([[-2.0, -0.5, 9.0], [-1.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])

    def weights(**setting):
        correction = algorithm("grpo", rollout_correction=setting).rollout_correction
        return rollout_weights(
            correction, old_log_prob=old, sampler_log_prob=sampler, response_mask=mask
        )

    e = torch.e
    assert weights(type="none") is None
    assert weights(type="ignore") is None
    cut = weights(type="truncate", cap=2.0)
    torch.testing.assert_close(cut[mask != 0], torch.tensor([2.0, e**-0.5, e**-1]))
    whole = weights(type="truncate", level="sequence", cap=2.0)
    torch.testing.assert_close(whole, torch.tensor([[e**0.5], [e**-1]]))
    masked = weights(type="mask", low=0.5, high=2.0)
    torch.testing.assert_close(masked[mask != 0], torch.tensor([0.0, e**-0.5, 0.0]))
    masked = weights(type="mask", level="sequence", low=0.5, high=2.0)
    torch.testing.assert_close(masked, torch.tensor([[e**0.5], [0.0]]))


def test_a_mistake_names_the_field_and_what_it_takes():
    with pytest.raises(AlgorithmError, match=r"rollout_correction\.type: 'cut'.*truncate"):
        algorithm("grpo", rollout_correction="cut")
    with pytest.raises(AlgorithmError, match=r"rollout_correction\.cap"):
        algorithm("grpo", rollout_correction={"type": "truncate", "cap": 0.5})
    with pytest.raises(
        AlgorithmError, match=r"correction\.hight is not a field.*did you mean 'high'"
    ):
        algorithm("grpo", rollout_correction={"type": "mask", "hight": 3})


PAGE = (Path(__file__).parents[2] / "docs/losses/sampler.md").read_text()
DOCUMENTED = PAGE[PAGE.index(f"| {' | '.join(WORDS)}") :].split("\n\n")[0].splitlines()


def differences():
    """Settings whose row is not that of the page, of what can be measured here."""
    rows, absent = corrections()
    measured = corrections_markdown(rows).splitlines()
    shown = [line for line in DOCUMENTED if not (absent and line.startswith("| verl |"))]
    assert [line.split(" | ")[:2] for line in measured] == [line.split(" | ")[:2] for line in shown]
    return [
        line.split(" | ")[1] for line, other in zip(measured, shown, strict=True) if line != other
    ]


def test_page_has_what_trainers_correct():
    assert differences() == []
    assert len({line.split(" | ")[0] for line in DOCUMENTED[2:]}) >= 7


def moved_bound(monkeypatch):
    pins = pinned.trainers()
    moved = replace(pins["slime"].corrections["use_tis"], bound=(0.0, 1.9))
    pins["slime"].corrections["use_tis"] = moved
    monkeypatch.setattr(pinned, "trainers", lambda: pins)
    return "use_tis"


def moved_preset(monkeypatch):
    config = pytest.importorskip("verl.trainer.config.algorithm", reason="verl is not installed")
    preset = config.RolloutCorrectionConfig(rollout_is="token", rollout_is_threshold=3.0)
    monkeypatch.setattr(config.RolloutCorrectionConfig, "decoupled_token_is", lambda: preset)
    return "decoupled_token_is"


@pytest.mark.parametrize("plant", [moved_bound, moved_preset])
def test_a_moved_bound_turns_the_table_red(monkeypatch, plant):
    changed = plant(monkeypatch)
    assert differences() == [changed]


def test_formulas_weigh_as_ours_and_as_verl():
    """Of the same mathematics, on numbers that no world has."""
    old, sampler = 0.7 * torch.randn(
        2, 50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    given = {"old_log_prob": old, "sampler_log_prob": sampler, "response_mask": torch.ones(50, 4)}
    given["response_mask"][::3, 2:] = 0

    def weights(trainer, name):
        return pinned.weights(pinned.trainers()[trainer].corrections[name], **given)

    def ours(**setting):
        correction = algorithm("grpo", rollout_correction=setting).rollout_correction
        return rollout_weights(correction, **given) * given["response_mask"]

    torch.testing.assert_close(weights("slime", "use_tis"), ours(type="truncate", cap=2.0))
    masked = ours(type="mask", level="sequence", low=0, high=3)
    torch.testing.assert_close(weights("trl", "default (sequence_mask)"), masked)
    kept = ours(type="reject", level="mean", low=0.5, high=5.0) * ours(type="truncate", cap=1e9)
    torch.testing.assert_close(weights("openrlhf", "is_correction_enable, seq-mask-tis"), kept)
    pytest.importorskip("verl", reason="verl is not installed")
    theirs = {name: how for name, _, how in peers.verl_corrections()}["decoupled_token_icepop"][1](
        **given
    )
    torch.testing.assert_close(weights("openrlhf", "is_correction_enable, icepop"), theirs)


def test_defaults_of_trl_are_those_that_are_pinned():
    config = pytest.importorskip(
        "trl.trainer.grpo_config", reason="TRL is not installed"
    ).GRPOConfig
    shipped = {entry.name: entry.default for entry in fields(config)}
    mode, low, high = (
        shipped[f"vllm_importance_sampling_{key}"] for key in ("mode", "clip_min", "clip_max")
    )
    correction = pinned.trainers()["trl"].corrections[f"default ({mode})"]
    assert shipped["vllm_importance_sampling_correction"]
    assert (correction.weight, *correction.keep) == ("sequence", low or 0, high or math.inf)


@pytest.mark.parametrize(
    ("level", "verl", "most"),
    [("token", "token", 0.1), ("sum", "seq_sum", 0.7), ("mean", "seq_mean", 0.12)],
)
@pytest.mark.parametrize("by", ["k1", "k2", "k3"])
def test_rejection_is_that_of_verl_with_reciprocal_bounds_of_k1(level, verl, most, by):
    helper = pytest.importorskip(
        "verl.trainer.ppo.rollout_corr_helper", reason="verl is not installed"
    )
    generator = torch.Generator().manual_seed(3)
    old = torch.randn(80, 6, generator=generator, dtype=torch.float64) / 2 - 1
    sampler = old + torch.randn(80, 6, generator=generator, dtype=torch.float64) / 2
    mask = torch.ones_like(old)
    bounds = {"low": 1 / 1.25, "high": 1 / 0.4} if by == "k1" else {"high": most}
    setting = RejectedSamples(level=level, by=by, **bounds)

    kept = rollout_weights(
        setting, old_log_prob=old, sampler_log_prob=sampler, response_mask=mask
    ).expand_as(old)
    threshold = "0.4_1.25" if by == "k1" else str(most)
    theirs, _ = helper.compute_rollout_rejection_mask(
        old - sampler, mask, f"{verl}_{by}", threshold
    )

    assert torch.equal(kept.double(), theirs.double())
    assert 0 < kept.mean() < 1
