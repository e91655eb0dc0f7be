"""One policy, its roundings: what samples, is exported and is evaluated has what the adapters have
learnt, and gaps are measured."""

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from rpg.backends.gaps import kl_and_error
from rpg.backends.local import checkpoints, training_loop
from rpg.backends.local.training_loop import train
from rpg.config.run_spec import RunSpec
from rpg.evaluation.engines.local import LocalEngine
from rpg.models import lora
from rpg.models.decoding import Batch
from rpg.models.initial_policy import initial_policy
from rpg.models.lean_decoding import LeanEngine
from rpg.models.micro_batches import Limits, score
from rpg.models.model_loading import load_pretrained
from rpg.models.policy import Policy
from rpg.models.truncated_sampling import Sampling
from rpg.report.diagnostics import of_training
from tests.local.test_adapters import spec_of
from tests.models.expected import expected_log_probs
from tests.tiny import make_run, make_spec, numbers

RATE = 3e-5
"""Small enough that bfloat16 sums of weights and adapters lose most of what is learnt."""


@pytest.fixture(scope="module")
def start(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    policy = initial_policy(make_spec(), home)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def training(start, steps=3, rate=RATE):
    spec = spec_of(start, "bfloat16").model_dump()
    spec["training"] |= {"steps": steps, "checkpoint_every": steps}
    spec["training"]["optimizer"] |= {"learning_rate": rate}
    return RunSpec.model_validate(spec)


def two_thousand_tokens():
    """Random problems and responses: 64 of 32 tokens."""
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, 16, (64, 32), generator=random)
    prompts = [[1, 5, 6, 7], [1, 8, 9]]
    return Batch(prompts, torch.arange(64) // 32, tokens, torch.full((64,), 32))


def plain(start, weights):
    """A float32 model without adapters with these weights."""
    model, _ = load_pretrained(start)
    model.load_state_dict(weights, strict=False)
    return model


def as_sampled(engine, start, model):
    """The weights that an engine multiplies with, adapters added up in float32."""
    weights = {name: value.float() for name, value in lora.base_weights(model).items()}
    for number, layer in enumerate(engine.layers):
        for part, name in ((layer.output, "self_attn.o_proj"), (layer.down, "mlp.down_proj")):
            whole = part.weight.float()
            if part.adapter is not None:
                down, up, scale = part.adapter
                whole = whole + up.float() @ down.float() * scale
            weights[f"model.layers.{number}.{name}.weight"] = whole
        for parts, names in (
            (layer.qkv, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
            (layer.gate_up, ("mlp.gate_proj", "mlp.up_proj")),
        ):
            for part, name in zip(parts, names, strict=True):
                down, up, scale = part.adapter
                whole = part.weight.float() + up.float() @ down.float() * scale
                weights[f"model.layers.{number}.{name}.weight"] = whole
    return plain(start, weights)


@pytest.fixture(scope="module", params=["autocast", "half weights"])
def trained(request, home, start):
    """(policy at the end, float32 adapters, checkpoint)."""
    name = request.param.replace(" ", "-")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "half weights":
            patch.setattr(RunSpec, "half_weights", lambda spec: True)
        folder = make_run(home, f"roundings-{name}", training(start))
        kept = []
        begin = training_loop._begin
        patch.setattr(training_loop, "_begin", lambda *a: kept.append(begin(*a)) or kept[-1])
        train(folder, home, lambda line: None)
    trainer = kept[0][0]
    return trainer, folder


def change(model, before, rows):
    with torch.no_grad():
        return float((expected_log_probs(model, rows, 1.0) - before).abs().mean())


def test_what_was_learnt_is_in_sampled_exported_and_evaluated_weights(trained, start, home):
    trainer, folder = trained
    policy = trainer.policy
    masters = trainer.optimizer.weights()
    checkpoint = folder.checkpoint(3)
    rows = two_thousand_tokens()
    base = {name: value.float() for name, value in lora.base_weights(policy.model).items()}
    with torch.no_grad():
        before = expected_log_probs(plain(start, base), rows, 1.0)
    expected = change(plain(start, lora.merged(policy.model, masters)), before, rows)
    lost = {k: v.bfloat16().float() for k, v in lora.merged(policy.model, masters).items()}
    rounded = change(plain(start, lost), before, rows)
    assert abs(rounded - expected) > 0.3 * expected, "rounding does not matter here"

    with policy.arithmetic(), torch.no_grad():
        engine = LeanEngine(policy.model, 1)
        engine._read_weights(64)
    evaluated = LocalEngine(Sampling(1.0, 32, 32), bfloat16=True)
    evaluated.load(checkpoint)
    with evaluated.policy.arithmetic(), torch.no_grad():
        of_evaluation = LeanEngine(evaluated.policy.model, 1)
        of_evaluation._read_weights(64)
    base_folder, _ = load_pretrained(start)
    models = {
        "sampled": as_sampled(engine, start, policy.model),
        "exported": AutoModelForCausalLM.from_pretrained(checkpoint),
        "adapters": PeftModel.from_pretrained(base_folder, checkpoint / "adapters"),
        "evaluated": as_sampled(of_evaluation, start, evaluated.policy.model),
    }
    for name, model in models.items():
        if name == "adapters":
            with torch.no_grad():
                start_of = expected_log_probs(load_pretrained(start)[0], rows, 1.0)
            assert change(model, start_of, rows) == pytest.approx(expected, rel=0.05), name
        else:
            assert change(model, before, rows) == pytest.approx(expected, rel=0.05), name
    exact = expected_log_probs(models["exported"], rows, 1.0)
    off = (score(policy, rows, 1.0, Limits(64, 10_000, 10_000)) - exact).abs()
    print(f"learnt {expected:.2g} per token; the bfloat16 scorer is off by {off.mean():.2g}")


def rows_of(folder):
    return [row for row in numbers(folder) if "kl_old_to_new" in row]


def test_a_sampler_of_an_update_ago_is_named(start, home, monkeypatch):
    """Eight steps, since a rule looks at as many; updates large beside bfloat16's rounding."""
    spec = training(start, steps=8, rate=1e-2)
    honest = make_run(home, "gap-honest", spec)
    train(honest, home, lambda line: None)
    assert not named(honest, "kl_sampler_to_policy")

    weights = {}
    sample = Policy.sample

    def stale(policy, *args, **how):
        now = {name: value.detach().clone() for name, value in lora.adapters(policy.model).items()}
        policy.model.load_state_dict(weights or now, strict=False)
        samples = sample(policy, *args, **how)
        policy.model.load_state_dict(now, strict=False)
        weights.update(now)
        return samples

    monkeypatch.setattr(Policy, "sample", stale)
    old = make_run(home, "gap-stale", spec)
    train(old, home, lambda line: None)
    assert named(old, "kl_sampler_to_policy")
    assert (
        rows_of(old)[-1]["kl_sampler_to_policy"] > 3 * rows_of(honest)[-1]["kl_sampler_to_policy"]
    )


def test_weights_that_are_merged_in_bfloat16_are_named(start, home, monkeypatch):
    merged = lora.merged
    monkeypatch.setattr(
        checkpoints,
        "merged",
        lambda *a: {name: value.bfloat16().float() for name, value in merged(*a).items()},
    )
    folder = make_run(home, "gap-merged", training(start, steps=8))
    train(folder, home, lambda line: None)
    assert named(folder, "kl_trained_to_exported")
    measured = [row for row in numbers(folder) if "kl_trained_to_exported" in row]
    assert measured
    assert all(row["kl_trained_to_exported_error"] > 0 for row in measured)


def test_the_gap_of_what_is_evaluated_is_that_of_its_arithmetic(start, home):
    """Adapters are evaluated in bfloat16: the gap is there although no bit of them is lost."""
    folder = make_run(home, "gap-evaluated", training(start))
    train(folder, home, lambda line: None)
    row = numbers(folder)[-1]
    assert 0 < row["kl_trained_to_evaluated"] < 1e-2
    assert row["kl_trained_to_evaluated_error"] > 0
    assert "kl_trained_to_exported" not in row, "adapters are exported in float32"


def named(folder, metric):
    return [f for f in of_training(numbers(folder)) if f.rule == f"apart: {metric}"]


def test_the_error_of_a_kl_is_that_of_its_mean():
    """Against the spread of 400 estimates, each from 50 responses of 8 or fewer tokens."""
    random = torch.Generator().manual_seed(1)
    estimates = []
    errors = []
    for _ in range(400):
        lengths = torch.randint(1, 9, (50, 1), generator=random)
        mask = torch.arange(8) < lengths
        common = torch.randn(50, 1, generator=random)
        kl, error = kl_and_error(0.1 * (common + torch.randn(50, 8, generator=random)), mask)
        estimates.append(kl)
        errors.append(error)
    spread = float(torch.tensor(estimates).std())
    assert sum(errors) / len(errors) == pytest.approx(spread, rel=0.1)
