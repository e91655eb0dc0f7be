"""The run whose model the tests evaluate."""

from rpg.config.spec import RunSpec

SPEC = RunSpec.model_validate(
    {
        "task": {"type": "chain", "tiers": {"easy": 2}, "train_problems": 2000},
        # Heads of 32 dimensions: vLLM's attention on CPUs has no smaller ones.
        "model": {"heads": 2, "kv_heads": 1, "warm_start": {"behaviour_steps": 60}},
    }
)
