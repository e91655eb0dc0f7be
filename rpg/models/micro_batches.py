"""How responses are divided into passes through the model, to bound memory and to leave out work
that changes nothing.

Shapes: N responses (rows), T response tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.config.training import Training
from rpg.models.decoding import Batch
from rpg.models.policy import Policy

_LONG = 512
"""Tokens from which on attention is much of the work of a response: its queries, keys and masks
should fit the cache."""
_TOKENS_OF_LONG = 4096


@dataclass(frozen=True)
class Limits:
    """Limits of one pass. A single row is a pass whatever its size."""

    rows: int
    tokens: int
    """A prompt counts once for all of its responses."""
    tokens_of_long: int
    """The same for a pass with a long response."""

    @classmethod
    def of(cls, training: Training, policy: Policy) -> "Limits":
        tokens = training.micro_batch_tokens
        if tokens:
            return cls(training.micro_batch_rows, tokens, tokens)
        tokens = policy.tokens_per_pass
        return cls(training.micro_batch_rows, tokens, min(tokens, _TOKENS_OF_LONG))

    def split(self, batch: Batch, order: Sequence[int]) -> list[Tensor]:
        """The rows `order`, in passes as large as the limits allow."""
        prompts = batch.prompt_of.tolist()
        lengths = batch.lengths.tolist()
        passes: list[list[int]] = []
        tokens = 0
        longest = 0
        counted = set[int]()
        for row in order:
            prompt = prompts[row]
            more = lengths[row] + (0 if prompt in counted else len(batch.prompts[prompt]))
            limit = self.tokens_of_long if max(longest, lengths[row]) > _LONG else self.tokens
            if not passes or len(passes[-1]) == self.rows or tokens + more > limit:
                passes.append([])
                tokens = 0
                longest = 0
                counted = set()
                more = lengths[row] + len(batch.prompts[prompt])
            passes[-1].append(row)
            tokens = tokens + more
            longest = max(longest, lengths[row])
            counted.add(prompt)
        return [torch.tensor(rows, device=batch.lengths.device) for rows in passes]


def score(policy: Policy, batch: Batch, temperature: float, limits: Limits) -> Tensor:
    """Log-probabilities (N, T) without a gradient, one pass at a time."""
    return in_passes(lambda part: policy.log_probs(part, temperature), batch, limits)


def in_passes(of_part: Callable[[Batch], Tensor], batch: Batch, limits: Limits) -> Tensor:
    """A number for every response token, (N, T), without a gradient, one pass at a time."""
    result = torch.zeros(batch.tokens.shape, device=batch.tokens.device)
    with torch.no_grad():
        for rows in limits.split(batch, range(len(batch))):
            values = of_part(batch.rows(rows))
            result[rows, : values.shape[1]] = values
    return result


def micro_batches(batch: Batch, advantages: Tensor, limits: Limits) -> list[Tensor]:
    """Rows (int64) of each micro-batch.

    If there are several: sequences of similar length and groups stay together, and groups whose
    advantages (N, T) are all zero get their own micro-batches, so that their backward pass can be
    left out.
    """
    passes = limits.split(batch, range(len(batch)))
    if len(passes) < 2:
        return passes
    groups = len(batch.prompts)
    total = batch.total_lengths()
    longest = total.new_zeros(groups).scatter_reduce(0, batch.prompt_of, total, "amax")
    signal = ((advantages != 0) & batch.mask).any(-1).long()
    has_signal = signal.new_zeros(groups).scatter_reduce(0, batch.prompt_of, signal, "amax")[
        batch.prompt_of
    ]
    order = (longest[batch.prompt_of] * groups + batch.prompt_of).argsort(stable=True)
    parts = [order[has_signal[order] == kind].tolist() for kind in (1, 0)]
    return [rows for part in parts for rows in limits.split(batch, part)]
