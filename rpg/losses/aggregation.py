"""From per-token losses to one scalar, in one place and independent of how a batch is split.

Shapes: B responses (rows), T token positions.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Counts:
    """Sizes of the WHOLE mini-batch, so that the losses of its micro-batches add up to the loss of
    the mini-batch.

    tokens: response tokens; sequences: responses with at least one token; horizon: the response
    budget in tokens, the constant that `seq-mean-token-sum-norm` divides by (None: the width of the
    tensors, which depends on padding). For `prompt-mean`, prompts: those with at least one token;
    prompt_tokens (B,): for each row at hand, the tokens of all responses to its prompt.
    """

    tokens: float
    sequences: float
    horizon: int | None = None
    prompts: float | None = None
    prompt_tokens: Tensor | None = None

    @classmethod
    def of(
        cls, response_mask: Tensor, horizon: int | None = None, group: Tensor | None = None
    ) -> Self:
        """The counts of one mask of shape (B, T); non-zero means counted. group (B,): integers,
        equal for responses to the same prompt."""
        mask = response_mask != 0
        lengths = mask.sum(-1)
        tokens = int(lengths.sum())
        sequences = int((lengths > 0).sum())
        if group is None:
            return cls(tokens, sequences, horizon)
        ids, index = torch.unique(group, return_inverse=True)
        of_prompt = lengths.new_zeros(len(ids)).index_add(0, index, lengths)
        return cls(tokens, sequences, horizon, int((of_prompt > 0).sum()), of_prompt[index])

    def rows(self, index: Tensor) -> Self:
        """The same sizes for some of the rows."""
        if self.prompt_tokens is None:
            return self
        return replace(self, prompt_tokens=self.prompt_tokens[index])


def token_weights(
    mask: Tensor, mode: str, counts: Counts | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The weight of every token in the aggregated loss, (B, T), zero where `mask` (B, T, bool) is
    False.

    `sum(weights * loss)` is verl's `agg_loss` of the same mode (prompt-mean is ScaleRL's). An empty
    batch has all-zero weights. Raises ValueError for an unknown mode, and for prompt-mean without
    the `prompt_tokens` of these rows.
    """
    weights = mask.to(dtype)
    if mode == "prompt-mean":
        return weights / _tokens_of_prompts(counts, len(mask)).to(dtype)[:, None]
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


def _tokens_of_prompts(counts: Counts | None, rows: int) -> Tensor:
    """(B,): what the tokens of each row are divided by."""
    if counts is None or counts.prompts is None or counts.prompt_tokens is None:
        raise ValueError(
            "loss_agg_mode prompt-mean: which responses belong to a prompt has to be known; "
            "pass counts=rpg.Counts.of(mask, group=group)"
        )
    if len(counts.prompt_tokens) != rows:
        raise ValueError(
            f"counts.prompt_tokens: {len(counts.prompt_tokens)} entries, accepted: {rows}, "
            "one per response"
        )
    return counts.prompt_tokens.clamp(min=1) * max(counts.prompts, 1)


def aggregate(
    loss: Tensor, response_mask: Tensor, mode: str, counts: Counts | None = None
) -> Tensor:
    """Scalar mean of a per-token loss (B, T) under `mode`; masked positions may hold anything, NaN
    included."""
    mask = response_mask != 0
    return (torch.where(mask, loss, 0) * token_weights(mask, mode, counts, loss.dtype)).sum()
