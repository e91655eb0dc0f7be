"""Inside vLLM's workers: keep linear layers so that their weights can be replaced.

vLLM's CPU build repacks the weights of a linear layer after loading and drops the original; verl, which loads the new
policy's weights into a live model after every step, then fails and waits for ever.
"""

from __future__ import annotations

import torch
import vllm.model_executor.layers.utils as layer_utils
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


def _plain_linear(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = lambda x, weight, bias: torch.nn.functional.linear(x, weight, bias)


layer_utils.dispatch_cpu_unquantized_gemm = _plain_linear


class WorkerExtension(vLLMColocateWorkerExtension):
    """verl's, in a module that makes the replacement when vLLM imports it."""
