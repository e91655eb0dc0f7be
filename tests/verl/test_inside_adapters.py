"""Low-rank adapters in verl's engine: only they are trained, and who takes the model's weights gets
them merged."""

from pathlib import Path

import pytest
import torch

from rpg.backends.verl.overrides import Paths, plan
from rpg.config.errors import ConfigError
from rpg.errors import UserError
from tests.specs import load_run
from tests.tiny import make_trainer
from tests.verl.inside import (
    an_experience,
    as_verl,
    make_spec,
    make_worker,
    verl_config,
    verl_update,
)
from tests.verl.test_gpu_resources import VLLM
from tests.verl.test_launch_overrides import CHAIN

WEIGHTS = "model.safetensors"

pytestmark = pytest.mark.usefixtures("cpu_verl")


@pytest.fixture
def sampled(home):
    """A rollout of the model without adapters: (responses, log-probabilities, advantages)."""
    experience = an_experience(make_trainer(make_spec(), home))
    return experience.batch, experience.old_log_prob, experience.advantages


def worker_with(model, tmp_path, **lora):
    changes = {"model": {"lora": {"rank": 4, "alpha": 8, **lora}}}
    spec = make_spec({"type": "verl"}, training={"optimizer": {"learning_rate": 1e-2}}, **changes)
    return make_worker(
        verl_config(spec, model, tmp_path, max_tokens_per_gpu=32)
    )  # many micro-batches


def log_probs(worker, batch, **asked):
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    data = as_verl(batch)
    tu.assign_non_tensor(data, compute_loss=False, calculate_entropy=False, **asked)
    output = worker.compute_log_prob(data)
    return torch.cat(
        list(response_from_nested(output["log_probs"], data["response_mask"]).unbind())
    )


def rows(values, batch):
    return torch.cat([row[:n] for row, n in zip(values, batch.lengths.tolist(), strict=True)])


@pytest.mark.system
def test_what_is_trained_samples_is_exported_merged_and_comes_back(model, sampled, tmp_path):
    from transformers import AutoModelForCausalLM

    batch, old, advantages = sampled
    worker = worker_with(model, tmp_path)
    module = worker.actor.engine.module
    before = {name: value.full_tensor().clone() for name, value in module.named_parameters()}
    torch.testing.assert_close(log_probs(worker, batch), rows(old, batch), rtol=0, atol=2e-5)
    verl_update(worker, batch, old, advantages)
    moved = {
        name
        for name, value in module.named_parameters()
        if not value.full_tensor().equal(before[name])
    }
    assert moved and all(".lora_" in name for name in moved), "the model's own weights stay"

    now = log_probs(worker, batch)
    assert (now - rows(old, batch)).abs().max() > 1e-2
    reference = log_probs(worker, batch, no_lora_adapter=True)
    torch.testing.assert_close(reference, rows(old, batch), rtol=0, atol=2e-5)

    weights, configuration = worker.actor.engine.get_per_tensor_param(base_sync_done=True)
    served = dict(weights)
    assert configuration is None, "to the servers it is a model like any other"
    worker.save_checkpoint(str(tmp_path / "actor"))
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "actor" / "huggingface")
    theirs = dict(exported.named_parameters())
    assert set(served) == set(theirs)
    for name, value in served.items():
        assert value.equal(theirs[name]), name
    worker.save_weights(str(tmp_path / "alone"))
    assert not list((tmp_path / "alone").glob("*.pt")), "no state of a training"
    alone, whole = (tmp_path / name / "huggingface" for name in ("alone", "actor"))
    assert (alone / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    ids = [list(batch.prompts[0]) + batch.tokens[0][: batch.lengths[0]].tolist()]
    logits = exported(torch.tensor(ids)).logits[0].log_softmax(-1)
    first = logits[len(batch.prompts[0]) - 1, batch.tokens[0, 0]]
    torch.testing.assert_close(first, now[0], rtol=0, atol=2e-5)

    verl_update(worker, batch, old, -advantages)
    worker.load_checkpoint(str(tmp_path / "actor"))
    assert log_probs(worker, batch).equal(now)


@pytest.mark.system
def test_a_reference_that_is_renewed_is_the_adapters_of_then(model, sampled, tmp_path):
    batch, old, advantages = sampled
    worker = worker_with(model, tmp_path, targets=["q_proj", "down_proj"])
    verl_update(worker, batch, old, advantages)
    then = log_probs(worker, batch)
    worker.renew_reference()
    verl_update(worker, batch, old, -advantages)
    assert (log_probs(worker, batch) - then).abs().max() > 1e-2
    assert log_probs(worker, batch, no_lora_adapter=True).equal(then)
    worker.save_reference(str(tmp_path / "reference"))
    worker.kept = None
    assert not log_probs(worker, batch, no_lora_adapter=True).equal(then)
    after = log_probs(worker, batch)
    worker.load_reference(str(tmp_path / "reference"))
    assert log_probs(worker, batch, no_lora_adapter=True).equal(then)
    assert log_probs(worker, batch).equal(after), "the policy stays what it was"
    with pytest.raises(UserError, match="no reference policy in it"):
        worker.load_reference(str(tmp_path / "nothing"))


def test_adapters_are_asked_for_by_verls_own_settings():
    spec = load_run(CHAIN, {**VLLM, "model.lora": {"rank": 8, "targets": ["q_proj"]}})
    told = plan(spec, Paths("/m", Path("t"), (), Path("s"), Path("l"))).overrides
    name = "actor_rollout_ref.model"
    assert (told[f"{name}.lora_rank"], told[f"{name}.lora_alpha"]) == (8, 32)
    assert told[f"{name}.target_modules"] == ["q_proj"]
    assert told[f"{name}.lora.merge"] is True
    assert "hf_model" not in told["actor_rollout_ref.actor.checkpoint.save_contents"]
    with pytest.raises(
        ConfigError, match=r"lora_rank: cannot be set here; set model\.lora\.rank instead"
    ):
        load_run(CHAIN, {**VLLM, "backend.verl": {"actor_rollout_ref.model.lora_rank": 4}})
