"""The objectives themselves, summed over everything that can happen, and their exact gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.auditing.worlds import World
from rpg.catalogue import DIVERGENCES, AlgorithmError
from rpg.losses.kl_terms import mathematics

LEVELS = ("token", "sequence")
# for policies that sum to one UKL equals KL: a divergence stands for all that are the same there
DIVERGENCE_NAMES = ("none", *dict.fromkeys(record.normalised for record in DIVERGENCES.values()))


@dataclass(frozen=True)
class Objective:
    """J = E[R] - beta D, at one of two levels.

    sequence: a sample is a whole response: E over responses of the trained policy, D between response
    distributions. token: a sample is a token given its prefix: prefixes come from `old` and stay, each
    token is redrawn on its own.
    """

    level: str
    divergence: str

    def __post_init__(self) -> None:
        if self.level not in LEVELS or self.divergence not in DIVERGENCE_NAMES:
            raise ValueError(f"no objective {self.level!r} with {self.divergence!r}")

    def __str__(self) -> str:
        term = "" if self.divergence == "none" else f" − β {DIVERGENCES[self.divergence].penalty}"
        return f"{self.level}-level E[R]{term}"

    @property
    def short(self) -> str:
        """`token R−βRKL`, `resp. R`: for the cells of a table."""
        level = "token" if self.level == "token" else "resp."
        return f"{level} R" + ("" if self.divergence == "none" else f"−β{self.divergence.upper()}")


def named(divergence: str) -> str:
    """The divergence of DIVERGENCE_NAMES that `divergence` is for policies that sum to one; `none` stays.

    Raises AlgorithmError for a name that the catalogue does not have.
    """
    if divergence == "none":
        return divergence
    if divergence not in DIVERGENCES:
        raise AlgorithmError("divergence", divergence, tuple(DIVERGENCES))
    return DIVERGENCES[divergence].normalised


def value(objective: Objective, world: World, logits: Tensor, ref: Tensor, beta: float) -> Tensor:
    """J at `logits` (S, V), differentiable."""
    if objective.level == "sequence":
        pi, log_ref = world.log_probs(logits).sum(-1), world.log_probs(ref).sum(-1)
        reward = pi.exp() @ world.rewards
        weights = torch.ones((), dtype=logits.dtype)
    else:
        old = world.log_probs(world.old)
        ratios = torch.where(world.mask, (world.log_probs(logits) - old).exp(), 0)
        reward = old.sum(-1).exp() @ (ratios.sum(-1) * world.rewards)
        weights = world.state_weights(world.old)
        pi, log_ref = torch.log_softmax(logits, -1), torch.log_softmax(ref, -1)
    if objective.divergence == "none":
        return reward
    return reward - beta * (weights * mathematics(objective.divergence).exact(pi, log_ref)).sum()


def gradient(objective: Objective, world: World, logits: Tensor, ref: Tensor, beta: float) -> Tensor:
    """dJ / dlogits, flattened to (S * V,)."""
    logits = logits.detach().clone().requires_grad_()
    return torch.autograd.grad(value(objective, world, logits, ref, beta), logits)[0].flatten()
