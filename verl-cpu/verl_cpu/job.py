"""What a job's configuration and environment say on a CPU, whatever its overrides are. Needs
neither verl nor torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from safetensors import safe_open

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    # verl's queue: more than there are cores is a warning for every response
    "TQ_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; vLLM would take half of the memory
    # by default it stays on one core, whatever backend.threads says
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""Environment of a job's processes; what is set already stays."""

_OVERRIDES: dict[str, Any] = {
    "actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    "actor_rollout_ref.model.use_remove_padding": False,  # packed sequences need flash attention
    "actor_rollout_ref.actor.strategy": "fsdp2",  # FSDP 1 needs a GPU
    "actor_rollout_ref.ref.strategy": "fsdp2",
    "actor_rollout_ref.actor.use_torch_compile": False,
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
    "actor_rollout_ref.ref.use_torch_compile": False,
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile": False,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
    "actor_rollout_ref.rollout.free_cache_engine": False,
    "actor_rollout_ref.rollout.enforce_eager": True,
    "actor_rollout_ref.rollout.enable_sleep_mode": False,  # frees GPU memory
}


def overrides(model: str) -> dict[str, Any]:
    """verl's settings on a CPU, by dotted key, for a job that starts from the model in the folder
    `model`."""
    bucket = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
    return _OVERRIDES | {bucket: _bucket_megabytes(model)}


def _bucket_megabytes(model: str) -> int:
    """MiB of shared memory through which vLLM gets new weights: the largest weight of a model has
    to fit, in float32.

    (On GPUs a larger one is sent in another way:
    verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py:140.) A model that is not in a
    local folder gets verl's own 2 GiB.
    """
    sizes = []
    for file in Path(model).glob("*.safetensors"):
        with safe_open(file, "numpy") as weights:
            names = weights.keys()
            sizes += [math.prod(weights.get_slice(name).get_shape()) for name in names]
    return max(16, math.ceil(4 * max(sizes) / 2**20)) if sizes else 2048
