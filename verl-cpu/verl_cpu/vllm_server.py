"""vLLM's rollout server on a CPU."""

from __future__ import annotations

from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica


class VllmServer(vLLMHttpServer):
    """Its workers load our extension."""

    def _get_worker_extension_cls(self) -> str:
        return "verl_cpu.vllm_worker.WorkerExtension"


class VllmReplica(vLLMReplica):
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(VllmServer)
