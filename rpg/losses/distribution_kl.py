"""Divergences between whole next-token distributions, and what a top k leaves out of them.

Shapes: ... positions, V vocabulary.
"""

from math import log

import torch
from torch import Tensor

from rpg.catalogue import DistributionKL
from rpg.losses.kl_terms import mathematics
from rpg.losses.policy_loss import LOG_PROB_FLOOR


def distribution_kl(setting: DistributionKL, log_p: Tensor, log_q: Tensor) -> Tensor:
    """D of catalogue.DistributionKL at every position, (...), nats, differentiable in `log_p`.

    log_p, log_q (..., V): log-probabilities of all tokens under the policy and the reference.
    Raises ValueError: their shapes differ.
    """
    return kl_and_left_out(setting, log_p, log_q)[0]


def kl_and_left_out(setting: DistributionKL, log_p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`distribution_kl`, and the reference's probability of the tokens that a top k does not
    tell apart, (...)."""
    if log_p.shape != log_q.shape:
        raise ValueError(
            f"log_q: shape {tuple(log_q.shape)}, accepted: {tuple(log_p.shape)} like log_p"
        )
    dtype = torch.promote_types(log_p.dtype, torch.float32)
    log_p = log_p.to(dtype).clamp(min=LOG_PROB_FLOOR)
    log_q = log_q.to(dtype).clamp(min=LOG_PROB_FLOOR)
    k = setting.top_k
    left_out = torch.zeros_like(log_q[..., 0])
    if k is not None and k < log_q.shape[-1]:
        top = log_q.topk(k, -1).indices
        log_p = _first_and_others(log_p, top)
        log_q = _first_and_others(log_q, top)
        left_out = log_q[..., -1].exp()
    if setting.divergence != "jsd":
        return mathematics(setting.divergence).exact(log_p, log_q), left_out
    p = log_p.exp()
    q = log_q.exp()
    mix = setting.mix
    log_m = torch.logaddexp(log_q + log(mix), log_p + log(1 - mix))
    divergence = mix * q * (log_q - log_m) + (1 - mix) * p * (log_p - log_m)
    return divergence.sum(-1), left_out


def _first_and_others(log_p: Tensor, top: Tensor) -> Tensor:
    """Log-probabilities of the tokens `top` (..., k) and, as one outcome, of all others, (..., k +
    1)."""
    others = log_p.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.cat([log_p.gather(-1, top), others], -1)
