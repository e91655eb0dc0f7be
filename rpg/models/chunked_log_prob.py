"""Log-probabilities of tokens from hidden states, without holding the logits of the whole
vocabulary in memory.

For Q positions and V entries the logits are Q x V numbers; with their softmax and the gradients of
both, 8,192 positions and 151,936 entries take 20 GB. Here the positions are processed in chunks,
and the backward pass recomputes the logits of all chunks but those that fit into `_KEPT`.

Shapes: Q positions, E hidden size, V vocabulary, C chosen tokens (a position may have several).
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rpg.models.truncated_sampling import LEAST

_PLAIN = 2**20
"""Up to this number of logits, chunks gain nothing."""
_PART = 2**26
"""Logits of a chunk (256 MiB of float32)."""
_KEPT = 2**26
"""Logits that are kept for the backward pass,"""
_ALL_KEPT = 2**27
"""unless there are at most this many: then all of them are."""


@dataclass(frozen=True)
class Closed:
    """Tokens that have probability zero at some positions."""

    position: Tensor
    """(Q,) bool."""
    tokens: Tensor
    """int64."""

    def shut(self, logits: Tensor, rows: slice = slice(None)) -> Tensor:
        """`logits` of the positions `rows` with minus infinity there; in place unless they need a
        gradient."""
        closed = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        closed[self.tokens] = True
        where = self.position[rows, None] & closed
        if logits.requires_grad:
            return logits.masked_fill(where, -torch.inf)
        return logits.masked_fill_(where, -torch.inf)


def chosen_log_prob(
    hidden: Tensor,
    weight: Tensor,
    position: Tensor,
    token: Tensor,
    temperature: float,
    closed: Closed | None = None,
    *,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities (C,) of `token` (C,) at `position` (C,) under softmax(hidden @ weight.T /
    temperature), and with `entropy` that of the distribution at each position, (Q,), nats.

    `hidden` (Q, E), `weight` (V, E); float32 whatever their type; differentiable in both, once.
    """
    if len(hidden) * len(weight) <= _PLAIN:
        logits = F.linear(hidden, weight).float()
        if temperature != 1.0:
            logits = logits / temperature
        if closed is not None:
            logits = closed.shut(logits)
        log_p = logits.log_softmax(-1)
        return log_p[position, token], entropy_of(log_p) if entropy else None
    if torch.is_autocast_enabled(hidden.device.type):
        kind = torch.get_autocast_dtype(hidden.device.type)
        hidden = hidden.to(kind)
        weight = weight.to(kind)
    settings = _Settings(temperature, _room(len(hidden) * len(weight)), closed, entropy)
    chosen, spread = _ChosenLogProb.apply(  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        hidden, weight, position, token, settings
    )
    return chosen, spread if entropy else None


def _room(logits: int) -> int:
    """How many of so many logits are kept for the backward pass."""
    if not torch.is_grad_enabled():
        return 0
    return logits if logits <= _ALL_KEPT else _KEPT


def log_prob_of_logits(logits: Tensor, labels: Tensor, inplace_backward: bool = True) -> Tensor:
    """Log-probabilities (Q,) of `labels` (Q,) under softmax(logits), float32; `logits` (Q, V),
    differentiable once.

    The backward pass overwrites the logits with their gradient, unless `inplace_backward` is False.
    """
    return _LogProbOfLogits.apply(logits, labels, inplace_backward)  # type: ignore[no-any-return, no-untyped-call]


class _LogProbOfLogits(torch.autograd.Function):
    """d log p(t) / d logits = 1[t] - p, a chunk at a time."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, overwrites: bool) -> Tensor:
        log_sum = torch.cat([part.float().logsumexp(-1) for part in logits.split(_rows(logits))])
        ctx.save_for_backward(logits, labels, log_sum)
        ctx.overwrites = overwrites
        return logits.gather(-1, labels[:, None])[:, 0].float() - log_sum

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, log_sum = ctx.saved_tensors
        slope = logits if ctx.overwrites else torch.empty_like(logits)
        for start in range(0, len(logits), _rows(logits)):
            part = slice(start, start + _rows(logits))
            p = logits[part].float().sub_(log_sum[part, None]).exp_()
            slope[part] = p.mul_(-grad[part, None]).scatter_add_(
                -1, labels[part, None], grad[part, None]
            )
        return slope, None, None


def _rows(logits: Tensor) -> int:
    return max(1, _PART // logits.shape[-1])


def entropy_of(log_p: Tensor) -> Tensor:
    """Entropy (...) of distributions (..., V), nats. Where p is zero its logarithm may be -inf;
    zero times that is NaN."""
    return -(log_p.exp() * log_p.clamp(min=LEAST)).sum(-1)


@dataclass(frozen=True)
class _Settings:
    """What :class:`_ChosenLogProb` does with its tensors."""

    temperature: float
    room: int
    """Logits that are kept for the backward pass."""
    closed: Closed | None
    entropy: bool
    """Whether it is computed, too."""


class _ChosenLogProb(torch.autograd.Function):
    """d log p(t) / d logits = 1[t] - p; d entropy / d logits = -p (log p + entropy)."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        position: Tensor,
        token: Tensor,
        settings: _Settings,
    ) -> tuple[Tensor, Tensor]:
        rows = max(1, _PART // len(weight))
        order = position.argsort(stable=True)
        starts = list(range(0, len(hidden), rows))
        bounds = torch.tensor([*starts, len(hidden)], device=position.device)
        cuts = torch.searchsorted(position[order], bounds)
        chosen = torch.empty(len(token), device=hidden.device)
        spread = torch.empty(len(hidden) if settings.entropy else 0, device=hidden.device)
        room = settings.room
        ctx.parts = []
        for start, a, b in zip(starts, cuts.tolist(), cuts[1:].tolist(), strict=False):
            part = slice(start, start + rows)
            where = order[a:b]
            log_p = _log_softmax(hidden, part, weight, settings.temperature, settings.closed)
            chosen[where] = log_p[position[where] - start, token[where]]
            if settings.entropy:
                spread[part] = entropy_of(log_p)
            room -= log_p.numel()
            ctx.parts.append((part, where, log_p if room >= 0 else None))
            del log_p  # before the next part is computed
        ctx.save_for_backward(hidden, weight, position, token, spread)
        ctx.settings = settings
        return chosen, spread

    @staticmethod
    def backward(ctx: Any, grad: Tensor, spread_grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, position, token, spread = ctx.saved_tensors
        settings: _Settings = ctx.settings
        of_hidden, of_weight = ctx.needs_input_grad[:2]
        hidden_grad = torch.empty_like(hidden) if of_hidden else None
        weight_grad: Tensor | None = None
        grad = grad / settings.temperature
        spread_grad = spread_grad / settings.temperature
        for index, (part, where, log_p) in enumerate(ctx.parts):
            # The log-probabilities that were kept are overwritten by their gradient and then freed.
            ctx.parts[index] = (part, where, None)
            if log_p is None:
                log_p = _log_softmax(hidden, part, weight, settings.temperature, settings.closed)
            at = position[where] - part.start
            token_grad = grad[where]
            total = token_grad.new_zeros(len(log_p)).index_add_(0, at, token_grad)
            if settings.entropy:
                slope = (
                    log_p.clamp(min=LEAST).add_(spread[part, None]).mul_(spread_grad[part, None])
                )
                slope = slope.add_(total[:, None]).mul_(log_p.exp_()).neg_()
            else:
                slope = log_p.exp_().mul_(-total[:, None])
            slope.index_put_((at, token[where]), token_grad, accumulate=True)
            slope = slope.to(hidden.dtype)
            if hidden_grad is not None:
                torch.mm(slope, weight, out=hidden_grad[part])
            if of_weight and len(ctx.parts) == 1:
                weight_grad = slope.t() @ hidden[part]
            elif of_weight:
                weight_grad = _summed(weight_grad, slope, hidden[part])
            del log_p, slope
        if weight_grad is not None:
            weight_grad = weight_grad.to(weight.dtype)
        return hidden_grad, weight_grad, None, None, None


def _summed(total: Tensor | None, slope: Tensor, hidden: Tensor) -> Tensor:
    """`total` with slope.T @ hidden added, in float32: in bfloat16 a sum over many chunks loses
    what is less than 1/512 of it."""
    if total is None:
        return (slope.t() @ hidden).float()
    if slope.dtype == torch.float32:
        return total.addmm_(slope.t(), hidden)
    return total.add_(slope.t() @ hidden)


def _log_softmax(
    hidden: Tensor, part: slice, weight: Tensor, temperature: float, closed: Closed | None
) -> Tensor:
    logits = (hidden[part] @ weight.t()).float()
    if temperature != 1.0:
        logits.div_(temperature)
    if closed is not None:
        logits = closed.shut(logits, part)
    if logits.device.type == "cpu":  # in place: each row is read to its end before it is written
        torch.ops.aten._log_softmax.out(logits, -1, False, out=logits)
        return logits
    return logits.log_softmax(-1)
