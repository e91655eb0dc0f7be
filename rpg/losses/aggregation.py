"""From per-token losses to one scalar, in one place and independent of how a batch is split.

Shapes: B responses (rows), T token positions.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Counts:
    """Sizes of the WHOLE mini-batch, so that the losses of its micro-batches add up to the loss of
    the mini-batch.

    tokens: response tokens; sequences: responses with at least one token; horizon: the response
    budget in tokens, the constant that `seq-mean-token-sum-norm` divides by (None: the width of the
    tensors, which depends on padding).
    """

    tokens: float
    sequences: float
    horizon: int | None = None

    @classmethod
    def of(cls, response_mask: Tensor, horizon: int | None = None) -> Self:
        """The counts of one mask of shape (B, T); non-zero means counted."""
        mask = response_mask != 0
        return cls(int(mask.sum()), int(mask.any(-1).sum()), horizon)


def token_weights(
    mask: Tensor, mode: str, counts: Counts | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The weight of every token in the aggregated loss, (B, T), zero where `mask` (B, T, bool) is
    False.

    `sum(weights * loss)` is verl's `agg_loss` of the same mode. An empty batch has all-zero
    weights. Raises ValueError for an unknown mode.
    """
    weights = mask.to(dtype)
    if mode == "seq-mean-token-mean":
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
    if mode == "token-mean":
        total = counts.tokens if counts else weights.sum().clamp(min=1)
    elif mode in ("seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"):
        total = counts.sequences if counts else mask.any(-1).sum().clamp(min=1)
        if mode == "seq-mean-token-sum-norm":
            total = total * (counts.horizon if counts and counts.horizon else mask.shape[-1])
    else:
        raise ValueError(f"unknown loss_agg_mode {mode!r}")
    return weights / (max(total, 1) if isinstance(total, (int, float)) else total)


def aggregate(
    loss: Tensor, response_mask: Tensor, mode: str, counts: Counts | None = None
) -> Tensor:
    """Scalar mean of a per-token loss (B, T) under `mode`; masked positions may hold anything, NaN
    included."""
    mask = response_mask != 0
    return (torch.where(mask, loss, 0) * token_weights(mask, mode, counts, loss.dtype)).sum()
