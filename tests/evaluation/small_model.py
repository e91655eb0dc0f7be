"""The run whose model the tests evaluate, and whether vLLM is here to do it."""

import pytest

from rpg.config.run_spec import RunSpec
from rpg.evaluation.engines.protocol import Request

KNOWS_SOME = {"target_accuracy": 0.3, "consolidation_steps": 0, "behaviour_steps": 20}
SPEC = RunSpec.model_validate(
    {
        "task": {"type": "chain", "tiers": {"easy": 2}, "train_problems": 2000},
        # Heads of 32 dimensions: vLLM's attention on CPUs has no smaller ones.
        "model": {"heads": 2, "kv_heads": 1, "warm_start": KNOWS_SOME},
    }
)

try:
    import vllm  # noqa: F401

    WITHOUT_VLLM = None
except ImportError as error:
    WITHOUT_VLLM = (
        f"vllm is not installed ({error}); docs/evaluation.md says how to run this test on a CPU"
    )


def requests_for(problems, count):
    return [Request(p.prompt, (0, "evaluation", p.id, k)) for p in problems for k in range(count)]


_NEEDS_VLLM = pytest.mark.skipif(bool(WITHOUT_VLLM), reason=str(WITHOUT_VLLM))
VLLM = pytest.param("vllm", marks=[pytest.mark.component, _NEEDS_VLLM])
