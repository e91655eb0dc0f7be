"""vLLM's rollout server on a CPU."""

from __future__ import annotations

import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica


class VllmServer(vLLMHttpServer):
    """Its workers load our extension."""

    def _get_worker_extension_cls(self) -> str:
        return "rpg.backends.verl.cpu.vllm_weights.WorkerExtension"


class VllmReplica(vLLMReplica):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(VllmServer)
