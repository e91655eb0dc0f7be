"""The exact mean and variance of a loss's gradient under the sampling policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.auditing.worlds import World
from rpg.losses.policy_loss import LossOutput

LossFunction = Callable[..., Tensor | LossOutput]  # called with the keyword arguments of `slopes` below


class NotSeparable(ValueError):
    """A response's gradient depends on which others share its batch: it has no expectation of its own."""


@dataclass(frozen=True)
class Moments:
    """mean (S * V,): E[step], how gradient descent moves the logits; variance: trace of its covariance."""

    mean: Tensor
    variance: float


def slopes(
    loss: LossFunction, world: World, logits: Tensor, ref: Tensor | None, advantages: Tensor
) -> Tensor:
    """d loss / d log_prob of every response, as if each were a batch of its own: (N, T)."""

    def batch(copies: int) -> Tensor:
        def rows(x: Tensor) -> Tensor:
            return x.detach().repeat(copies, 1)

        log_prob = rows(world.log_probs(logits)).requires_grad_()
        result = loss(
            log_prob=log_prob,
            old_log_prob=rows(world.log_probs(world.old)),
            advantages=rows(advantages),
            response_mask=rows(world.mask),
            ref_log_prob=None if ref is None else rows(world.log_probs(ref)),
        )
        scalar = result if isinstance(result, Tensor) else result.loss
        return torch.autograd.grad(scalar, log_prob)[0] * len(log_prob)

    once, twice = batch(1), batch(2)
    if not torch.allclose(once.repeat(2, 1), twice, rtol=1e-9, atol=1e-12):
        raise NotSeparable("depends on the batch")
    return once


def moments(world: World, logits: Tensor, slope: Tensor) -> Moments:
    """Push slopes (N, T) through the scores of the tabular policy and average over responses of `old`."""
    states, vocabulary = logits.shape
    n, t = slope.shape
    probability = torch.softmax(logits, -1)
    scores = torch.zeros(n, t, states, vocabulary, dtype=logits.dtype)
    rows, columns = world.mask.nonzero(as_tuple=True)
    here = world.states[rows, columns]
    scores[rows, columns, here] = -probability[here]
    scores[rows, columns, here, world.tokens[rows, columns]] += 1
    steps = -torch.einsum("nt,ntk->nk", slope, scores.flatten(2))
    weights = world.probabilities(world.old)
    mean = weights @ steps
    return Moments(mean, (weights @ (steps * steps).sum(-1) - mean @ mean).item())


def relative(estimate: Tensor, exact: Tensor) -> float:
    """|estimate - exact| / |exact|; against a zero gradient only zero is right."""
    error, size = (estimate - exact).norm().item(), exact.norm().item()
    return error / size if size > 1e-14 else (0.0 if error < 1e-14 else float("inf"))
