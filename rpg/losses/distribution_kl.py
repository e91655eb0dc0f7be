"""Divergences between whole next-token distributions, and what a top k leaves out of them.

Shapes: ... positions, V vocabulary.
"""

from math import log

import torch
from torch import Tensor

from rpg.catalogue import DistributionKL

_LEAST = -1e4  # log 0, so that it can be multiplied by a probability of zero


def distribution_kl(setting: DistributionKL, log_p: Tensor, log_q: Tensor) -> Tensor:
    """D of catalogue.DistributionKL at every position, (...), nats, differentiable in `log_p`.

    log_p, log_q (..., V): log-probabilities of all tokens under the policy and the reference. Raises ValueError: their
    shapes differ.
    """
    return divergence(setting, *outcomes(setting, log_p, log_q)[:2])


def outcomes(setting: DistributionKL, log_p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(log_p, log_q, mass): of the outcomes that are told apart, (..., V or k + 1), the last being all others together; and
    the reference's probability of these others, (...).
    """
    if log_p.shape != log_q.shape:
        raise ValueError(f"log_q: shape {tuple(log_q.shape)}, accepted: {tuple(log_p.shape)} like log_p")
    log_p, log_q = log_p.clamp(min=_LEAST), log_q.clamp(min=_LEAST)
    k = setting.top_k
    if k is None or k >= log_q.shape[-1]:
        return log_p, log_q, torch.zeros_like(log_q[..., 0])
    top = log_q.topk(k, -1).indices

    def told_apart(x: Tensor) -> Tensor:
        others = x.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
        return torch.cat([x.gather(-1, top), others], -1)

    log_p, log_q = told_apart(log_p), told_apart(log_q)
    return log_p, log_q, log_q[..., -1].exp()


def divergence(setting: DistributionKL, log_p: Tensor, log_q: Tensor) -> Tensor:
    """D between the distributions of :func:`outcomes`, summed over the last dimension."""
    if setting.divergence == "rkl":
        return (log_p.exp() * (log_p - log_q)).sum(-1)
    if setting.divergence == "fkl":
        return (log_q.exp() * (log_q - log_p)).sum(-1)
    p, q, mix = log_p.exp(), log_q.exp(), setting.mix
    log_m = torch.logaddexp(log_q + log(mix), log_p + log(1 - mix))
    return (mix * q * (log_q - log_m) + (1 - mix) * p * (log_p - log_m)).sum(-1)
