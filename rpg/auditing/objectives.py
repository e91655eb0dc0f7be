"""The objectives themselves, summed over everything that can happen, and their exact gradients."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rpg.auditing.worlds import World
from rpg.catalogue import DIVERGENCES
from rpg.losses.kl_terms import mathematics

LEVELS = ("token", "sequence")
# for policies that sum to one UKL equals KL: a divergence stands for all that are the same there
DIVERGENCE_NAMES = ("none", *dict.fromkeys(record.normalised for record in DIVERGENCES.values()))


@dataclass(frozen=True)
class Objective:
    """J = E[R] - beta D, at one of two levels.

    sequence: a sample is a whole response: E over responses of the trained policy, D between
    response distributions. token: a sample is a token given its prefix: prefixes come from `old`
    and stay, each token is redrawn on its own.
    """

    level: str
    divergence: str

    def __str__(self) -> str:
        term = "" if self.divergence == "none" else f" − β {DIVERGENCES[self.divergence].penalty}"
        return f"{self.level}-level E[R]{term}"

    @property
    def short(self) -> str:
        """`token R−βRKL`, `resp. R`: for the cells of a table."""
        level = "token" if self.level == "token" else "resp."
        return f"{level} R" + ("" if self.divergence == "none" else f"−β{self.divergence.upper()}")


def terms(world: World, logits: Tensor, ref: Tensor, level: str) -> dict[str, Tensor]:
    """What a gradient may be made of, at `logits` (S, V), differentiable: E[R], the divergences
    from `ref`, and others."""
    old = world.log_probs(world.old)
    lengths = world.mask.sum(-1)
    if level == "sequence":
        pi, log_ref, log_old = (world.probabilities(x).log() for x in (logits, ref, world.old))
        sampled = pi.exp()
        weights = torch.ones((), dtype=logits.dtype)
    else:
        ratios = torch.where(world.mask, (world.log_probs(logits) - old).exp(), 0).sum(-1)
        sampled = world.probabilities(world.old) * ratios
        weights = world.state_weights(world.old)
        pi, log_ref, log_old = (torch.log_softmax(x, -1) for x in (logits, ref, world.old))

    def divergence(name: str, q: Tensor) -> Tensor:
        return (weights * mathematics(name).exact(pi, q)).sum()

    return {
        "reward": sampled @ world.rewards,
        **{name: divergence(name, log_ref) for name in DIVERGENCE_NAMES if name != "none"},
        "entropy": -(weights * (pi.exp() * pi).sum(-1)).sum(),
        "reward_per_token": sampled @ (world.rewards / lengths),
        "length": sampled @ lengths.to(sampled.dtype),
        "fkl_old": divergence("fkl", log_old),
        "rkl_old": divergence("rkl", log_old),
    }


def gradients(world: World, logits: Tensor, ref: Tensor, level: str) -> dict[str, Tensor]:
    """d / dlogits of each of `terms`, flattened to (S * V,)."""
    logits = logits.detach().clone().requires_grad_()
    values = terms(world, logits, ref, level)
    grad = partial(torch.autograd.grad, inputs=logits, retain_graph=True)
    return {name: grad(value)[0].flatten() for name, value in values.items()}
