"""The objectives themselves, summed over everything that can happen, and their exact gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.auditing.worlds import World

LEVELS = ("token", "sequence")
DIVERGENCES = (
    "none",
    "fkl",
    "rkl",
)  # for policies that sum to one UKL equals KL, so these stand for all five


@dataclass(frozen=True)
class Objective:
    """J = E[R] - beta D, at one of two levels.

    sequence: a sample is a whole response: E over responses of the trained policy, D between response
    distributions. token: a sample is a token given its prefix: prefixes come from `old` and stay, each
    token is redrawn on its own.
    """

    level: str
    divergence: str

    def __str__(self) -> str:
        term = {"none": "", "fkl": " − β KL(ref‖π)", "rkl": " − β KL(π‖ref)"}[self.divergence]
        return f"{self.level}-level E[R]{term}"


def value(objective: Objective, world: World, logits: Tensor, ref: Tensor, beta: float) -> Tensor:
    """J at `logits` (S, V), differentiable."""
    if objective.level == "sequence":
        log_pi, log_ref = world.log_probs(logits).sum(-1), world.log_probs(ref).sum(-1)
        reward = log_pi.exp() @ world.rewards
        weights = torch.ones((), dtype=logits.dtype)
        first, second = log_pi, log_ref
    else:
        old = world.log_probs(world.old)
        ratios = torch.where(world.mask, (world.log_probs(logits) - old).exp(), 0)
        reward = old.sum(-1).exp() @ (ratios.sum(-1) * world.rewards)
        weights = world.state_weights(world.old)
        first, second = torch.log_softmax(logits, -1), torch.log_softmax(ref, -1)
    if objective.divergence == "none":
        return reward
    if objective.divergence == "fkl":
        first, second = second, first
    return reward - beta * (weights * (first.exp() * (first - second)).sum(-1)).sum()


def gradient(objective: Objective, world: World, logits: Tensor, ref: Tensor, beta: float) -> Tensor:
    """dJ / dlogits, flattened to (S * V,)."""
    logits = logits.detach().clone().requires_grad_()
    return torch.autograd.grad(value(objective, world, logits, ref, beta), logits)[0].flatten()
