"""verl on a machine without a GPU: for continuous integration and laptops, and only when VERL_PLATFORM=cpu asks for it.

verl 0.9.1 knows NVIDIA, AMD and Ascend devices. What it lacks for a CPU is added through its registries where there are
some (platform, engine, rollout server), and by replacing one function where there is none (docs/verl.md lists them).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

ROLLOUT = "rpg_huggingface"
"""Name of our rollout server in verl's config."""

OVERRIDES: dict[str, Any] = {
    "actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    "actor_rollout_ref.model.use_remove_padding": False,  # packed sequences need flash attention
    "actor_rollout_ref.actor.strategy": "fsdp2",  # FSDP 1 wants a GPU
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
"""What verl's config says on a CPU, whatever the job's overrides are; beside it, `bucket`."""

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "TQ_NUM_THREADS": "1",  # verl's queue: more than there are cores is a warning for every response
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; vLLM would take half of the memory
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # by itself it stays on one core (of two), whatever backend.threads says
}
"""Environment of a job's processes on a CPU."""


BUCKET = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"


def bucket(model: str) -> int:
    """MiB of shared memory through which vLLM gets new weights: the largest weight of a model has to fit, in float32.

    (On GPUs a larger one takes another way: verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py:140.) A model
    that is in no local folder gets verl's own 2 GiB.
    """
    from safetensors import safe_open

    sizes = []
    for file in Path(model).glob("*.safetensors"):
        with safe_open(file, "numpy") as weights:
            sizes += [math.prod(weights.get_slice(name).get_shape()) for name in weights.keys()]  # noqa: SIM118 (no mapping: it cannot be iterated)
    return max(16, math.ceil(4 * max(sizes) / 2**20)) if sizes else 2048


def install() -> None:
    """Add everything to verl; called while verl is being imported, in every process of a job."""
    from rpg.backends.verl.cpu import distributed, vllm_names
    from rpg.backends.verl.cpu.platform import CPUPlatform

    vllm_names.install()
    CPUPlatform.install()
    distributed.install()
    _register_rollout_servers()


def _register_rollout_servers() -> None:
    """verl looks a server up twice: by a name for the worker's side, by a loader for the server's."""
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    def ours():
        from rpg.backends.verl.cpu.server import Replica

        return Replica

    def vllm():
        from rpg.backends.verl.cpu.vllm_server import VllmReplica

        return VllmReplica

    _ROLLOUT_REGISTRY[(ROLLOUT, "async")] = "rpg.backends.verl.cpu.server.ServerAdapter"
    RolloutReplicaRegistry.register(ROLLOUT, ours)
    RolloutReplicaRegistry.register("vllm", vllm)
