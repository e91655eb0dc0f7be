"""Log-probabilities by Liger-Kernel (https://github.com/linkedin/Liger-Kernel, Triton), on a GPU where it is installed.

Its cross entropy fused with the output layer is minus our log-probability, a number for each token. A gradient for each
token it has since 0.8.5 only: with `reduction="none"` earlier versions scale the gradient of all tokens by one number,
without a word (element_mul_kernel of liger_kernel/ops/fused_linear_cross_entropy.py in 0.8.0). So it is asked first.
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
"""Tokens for each position up to which it is taken: it computes logits for each token, ours for each position."""


def takes(hidden: Tensor, token: Tensor) -> bool:
    """Whether it is there, and the log-probabilities of `token` (C,) behind `hidden` (Q, E) are a case for it."""
    return on_gpu(hidden) and len(token) <= _REPEATED * len(hidden) and _cross_entropy() is not None


def on_gpu(hidden: Tensor) -> bool:
    return hidden.device.type == "cuda"


def chosen_log_prob(hidden: Tensor, weight: Tensor, position: Tensor, token: Tensor, part: int) -> Tensor:
    """Log-probabilities (C,) of `token` (C,) at `position` (C,) under softmax(hidden @ weight.T), float32, differentiable.

    `hidden` (Q, E), `weight` (V, E). About `part` logits are there at a time.
    """
    rows = hidden[position]
    of_hidden = max(1, part // rows.numel())  # it counts them in numbers of its input
    cross_entropy = _cross_entropy()
    assert cross_entropy is not None
    return -cross_entropy(
        rows, weight, token, reduction="none", accum_dtype=torch.float32, chunk_mem_const=of_hidden
    )


@cache
def _cross_entropy() -> Callable[..., Any] | None:
    if importlib.util.find_spec("liger_kernel") is None:
        return None
    try:
        from liger_kernel.ops.fused_linear_cross_entropy import fused_linear_cross_entropy_forward
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy
    except ImportError:  # another Triton than it needs
        return None
    known = inspect.signature(fused_linear_cross_entropy_forward).parameters
    return liger_fused_linear_cross_entropy if known.keys() >= _NEEDED else None
