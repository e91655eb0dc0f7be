"""Inside vLLM's workers: keep linear layers so that their weights can be replaced.

vLLM's CPU build repacks the weights of a linear layer after loading and drops the original; verl,
which loads the new policy's weights into a live model after every step, then fails and never ends.
"""

from __future__ import annotations

from typing import Any

import torch
import vllm.model_executor.layers.utils as layer_utils
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


def _keep_weight(layer: torch.nn.Module, *_: Any, **__: Any) -> None:
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]  # vLLM's attribute, no submodule


layer_utils.dispatch_cpu_unquantized_gemm = _keep_weight


class WorkerExtension(vLLMColocateWorkerExtension):
    """verl's, in a module that makes the replacement when vLLM imports it."""
