"""Rollouts that vLLM draws inside the embedded trainer."""

import pytest

from rpg.backends.local.trainer import Trainer
from tests.evaluation.small_model import WITHOUT_VLLM
from tests.tiny import make_spec, whole_and_resumed

pytestmark = [
    pytest.mark.component,
    pytest.mark.skipif(bool(WITHOUT_VLLM), reason=str(WITHOUT_VLLM)),
]
HEAD = {"heads": 1, "kv_heads": 1}  # of 32 dimensions: vLLM's attention on CPUs has no smaller ones
FAST = {"optimizer": {"learning_rate": 3e-3}}
CORRECTED = {
    "name": "rpg-urkl",
    "dynamic_sampling": False,
    "rollout_correction": {"type": "truncate"},
}


@pytest.mark.parametrize(
    "change", [{}, {"staleness": 1, "stop": "3", "sampler": {"dtype": "int8"}}]
)
def test_every_step_draws_from_its_policy_and_a_killed_run_ends_with_the_same_bits(
    tmp_path, monkeypatch, change
):
    """vLLM's log-probabilities are those of the policy that samples, up to rounding, also once that
    has moved; and loss and weights know which they are."""
    gaps = []
    make_experience = Trainer._experience

    def watched(self, graded, sampler):
        batch = graded.samples.batch
        exact = sampler.log_probs(batch, 0.8).detach()
        experience = make_experience(self, graded, sampler)
        ratio = (experience.old_log_prob - graded.samples.log_prob).exp().clamp(max=2)
        assert experience.rollout_weights[batch.mask].allclose(ratio[batch.mask])
        gaps.append(float((graded.samples.log_prob - exact).abs().max()))
        return experience

    monkeypatch.setattr(Trainer, "_experience", watched)
    rollout = {"engine": "vllm", "temperature": 0.8, **change}
    spec = make_spec(model=HEAD, algorithm=CORRECTED, training=FAST, rollout=rollout)
    whole, _ = whole_and_resumed(tmp_path, "vllm", spec, 1, 2)
    rows = whole.read_metrics()
    assert len(gaps) == 6
    assert max(gaps) < 2e-5
    assert min(row["kl_old_to_policy"] for row in rows) > 1e-3, (
        "a policy that does not move shows nothing"
    )
    kl = [row["kl_sampler_to_policy"] for row in rows]
    assert max(kl) < 1e-9 if not change else min(kl[1:]) > 1e-4
