"""Adds the CPU to verl's registries; loaded while verl is being imported, in every process of a
job."""

from __future__ import annotations

from typing import Any

from verl.plugin.platform import PlatformRegistry

from rpg.backends.verl.overrides import HUGGINGFACE
from verl_cpu import process_group, vllm_version
from verl_cpu.platform import CPUPlatform


def install() -> None:
    """Register the platform and the rollout servers, and replace what has no registry."""
    vllm_version.install()
    PlatformRegistry.register(platform="cpu")(CPUPlatform)
    process_group.install()
    _register_rollout_servers()


def _register_rollout_servers() -> None:
    """verl looks a server up twice: by a name for the worker's side, by a loader for the
    server's."""
    # They look the platform up, which has to be registered.
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY  # noqa: PLC0415 (as above)
    from verl.workers.rollout.replica import RolloutReplicaRegistry  # noqa: PLC0415 (as above)

    def huggingface() -> Any:
        from verl_cpu.rollout_server import Replica  # noqa: PLC0415 (imports verl, which is not imported yet)

        return Replica

    def vllm() -> Any:
        from verl_cpu.vllm_server import VllmReplica  # noqa: PLC0415 (imports vLLM, which few jobs use)

        return VllmReplica

    _ROLLOUT_REGISTRY[(HUGGINGFACE, "async")] = "verl_cpu.rollout_server.ServerAdapter"
    RolloutReplicaRegistry.register(HUGGINGFACE, huggingface)
    RolloutReplicaRegistry.register("vllm", vllm)
