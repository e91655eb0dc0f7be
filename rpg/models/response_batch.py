"""Responses and their prompts as tensors. Shapes: P prompts, N responses (rows), T response tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rpg.models.truncated_sampling import Support


@dataclass(frozen=True)
class Batch:
    """Rows refer to their prompt by index, so that work on a prompt is done once for its whole group."""

    prompts: list[list[int]]
    """P non-empty lists of token ids."""
    prompt_of: Tensor
    """(N,) int64: index into `prompts`."""
    tokens: Tensor
    """(N, T) int64 response tokens, including the end token; zero after a row's last token."""
    lengths: Tensor
    """(N,) int64, at least 1 and at most T."""
    support: Support | None = None
    """The tokens that could be sampled, if not the whole vocabulary: log-probabilities are normalised over these."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def mask(self) -> Tensor:
        """(N, T) bool: True on response tokens."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    def total_lengths(self) -> Tensor:
        """(N,) number of tokens of prompt plus response."""
        sizes = torch.tensor([len(p) for p in self.prompts], device=self.tokens.device)
        return sizes[self.prompt_of] + self.lengths

    def rows(self, index: Tensor) -> Batch:
        """The rows `index` (int64) with the prompts they need, as wide as their longest response."""
        lengths = self.lengths[index]
        used, prompt_of = torch.unique(self.prompt_of[index], return_inverse=True)
        width = int(lengths.max()) if len(lengths) else 0
        prompts = [self.prompts[i] for i in used.tolist()]
        support = None if self.support is None else self.support.rows(index, width)
        return Batch(prompts, prompt_of, self.tokens[index, :width], lengths, support)


def token_log_prob(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Log-probabilities (...) of `targets` (...) under softmax(logits / temperature); logits (..., V)."""
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    return -losses.view(targets.shape)
