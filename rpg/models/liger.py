"""Log-probabilities by Liger-Kernel (https://github.com/linkedin/Liger-Kernel, Triton), if it is installed, on a GPU.

Its cross entropy, fused with the output layer, is minus our log-probability of each token. Its gradient is right for each
token only since 0.8.5: with `reduction="none"`, earlier versions silently scale the gradients of all tokens by one number
(element_mul_kernel of liger_kernel/ops/fused_linear_cross_entropy.py in 0.8.0), so its parameters are checked first.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

_NEEDED = {"token_grad_output", "chunk_mem_const"}
_REPEATED = 1.25
"""Tokens per position up to which it is used: it computes logits for each token, our code for each position."""


def takes(hidden: Tensor, token: Tensor) -> bool:
    """Whether to use it for the log-probabilities of `token` (C,) from `hidden` (Q, E)."""
    return on_gpu(hidden) and len(token) <= _REPEATED * len(hidden) and _cross_entropy() is not None


def on_gpu(hidden: Tensor) -> bool:
    return hidden.device.type == "cuda"


def chosen_log_prob(hidden: Tensor, weight: Tensor, position: Tensor, token: Tensor, part: int) -> Tensor:
    """Log-probabilities (C,) of `token` (C,) at `position` (C,) under softmax(hidden @ weight.T), float32, differentiable.

    `hidden` (Q, E), `weight` (V, E). About `part` logits are in memory at a time.
    """
    rows = hidden[position]
    multiple = max(1, part // rows.numel())  # its chunk size is a multiple of its input's size
    cross_entropy = _cross_entropy()
    assert cross_entropy is not None
    loss: Tensor = cross_entropy(
        rows, weight, token, reduction="none", accum_dtype=torch.float32, chunk_mem_const=multiple
    )
    return -loss


@cache
def _cross_entropy() -> Callable[..., Any] | None:
    if importlib.util.find_spec("liger_kernel") is None:
        return None
    try:
        from liger_kernel.ops.fused_linear_cross_entropy import (  # noqa: PLC0415 (optional)
            fused_linear_cross_entropy_forward,
        )
        from liger_kernel.transformers.functional import (  # noqa: PLC0415 (optional)
            liger_fused_linear_cross_entropy,
        )
    except ImportError:  # it needs another version of Triton
        return None
    parameters = inspect.signature(fused_linear_cross_entropy_forward).parameters
    return liger_fused_linear_cross_entropy if parameters.keys() >= _NEEDED else None
