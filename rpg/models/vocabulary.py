"""Log-probabilities of tokens from hidden states, without keeping a number for every token of the vocabulary.

For Q positions and V entries the logits are Q x V numbers; with their softmax and the gradients of both, 8,192 positions
and 151,936 entries are 20 GB. Here a part of the positions is looked at at a time, and what the backward pass needs is
computed again for all parts but those that fit into `_KEPT`.

Shapes: Q positions, E hidden size, V vocabulary, C chosen tokens (several may stand behind one position).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_PLAIN = 2**20
"""Up to so many logits nothing is gained."""
_PART = 2**26
"""Logits of a part (256 MiB of float32)."""
_KEPT = 2**26
"""Logits that are kept for the backward pass."""


def chosen_log_prob(
    hidden: Tensor, weight: Tensor, position: Tensor, token: Tensor, temperature: float
) -> Tensor:
    """Log-probabilities (C,) of `token` (C,) at `position` (C,) under softmax(hidden @ weight.T / temperature).

    `hidden` (Q, E), `weight` (V, E); float32 whatever their type; differentiable in both, once.
    """
    if len(hidden) * len(weight) <= _PLAIN:
        logits = F.linear(hidden, weight).float()
        if temperature != 1.0:
            logits = logits / temperature
        return logits.log_softmax(-1)[position, token]
    if torch.is_autocast_enabled(hidden.device.type):
        kind = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight = hidden.to(kind), weight.to(kind)
    room = _KEPT if torch.is_grad_enabled() else 0
    result: Tensor = _ChosenLogProb.apply(hidden, weight, position, token, temperature, room)
    return result


class _ChosenLogProb(torch.autograd.Function):
    """d log p(t) / d logits = 1[t] - p."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        position: Tensor,
        token: Tensor,
        temperature: float,
        room: int,
    ) -> Tensor:
        rows = max(1, _PART // len(weight))
        order = position.argsort(stable=True)
        starts = list(range(0, len(hidden), rows))
        cuts = torch.searchsorted(
            position[order], torch.tensor([*starts, len(hidden)], device=position.device)
        )
        chosen = torch.empty(len(token), device=hidden.device)
        ctx.parts = []
        for start, a, b in zip(starts, cuts.tolist(), cuts[1:].tolist(), strict=False):
            part, where = slice(start, start + rows), order[a:b]
            log_p = _log_softmax(hidden[part], weight, temperature)
            chosen[where] = log_p[position[where] - start, token[where]]
            room -= log_p.numel()
            ctx.parts.append((part, where, log_p if room >= 0 else None))
            del log_p  # before the next part is computed
        ctx.save_for_backward(hidden, weight, position, token)
        ctx.temperature = temperature
        return chosen

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, position, token = ctx.saved_tensors
        of_hidden, of_weight = ctx.needs_input_grad[:2]
        hidden_grad = torch.empty_like(hidden) if of_hidden else None
        weight_grad = torch.zeros_like(weight) if of_weight else None
        grad = grad / ctx.temperature
        for index, (part, where, log_p) in enumerate(ctx.parts):
            ctx.parts[index] = None  # a part that was kept becomes its own gradient, and is then let go
            if log_p is None:
                log_p = _log_softmax(hidden[part], weight, ctx.temperature)
            at, here = position[where] - part.start, grad[where]
            total = here.new_zeros(len(log_p)).index_add_(0, at, here)
            slope = log_p.exp_().mul_(-total[:, None])
            slope.index_put_((at, token[where]), here, accumulate=True)
            slope = slope.to(hidden.dtype)
            if hidden_grad is not None:
                torch.mm(slope, weight, out=hidden_grad[part])
            if weight_grad is not None:
                weight_grad.addmm_(slope.t(), hidden[part])
            del log_p, slope
        return hidden_grad, weight_grad, None, None, None, None


def _log_softmax(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    logits = (hidden @ weight.t()).float()
    if temperature != 1.0:
        logits.div_(temperature)
    if logits.device.type == "cpu":  # row by row: each is read to its end before it is written
        return torch.ops.aten._log_softmax.out(logits, -1, False, out=logits)
    return logits.log_softmax(-1)
