"""KL terms as (value, slope) pairs: a per-token loss and its derivative with respect to log pi.

w = pi/old, v = ref/old, d = log(pi/ref); x is sampled from `old`. All tensors broadcast. A pair's slope is
exactly what autograd finds for its value, but it is written down, because it is the quantity that has to be
right.
"""

from __future__ import annotations

import torch
from torch import Tensor

LIMIT = 20.0  # every exponent is clamped to [-20, 20]: ratios between 2e-9 and 5e8, squares finite in float32


def bounded_exp(x: Tensor) -> Tensor:
    """exp(x) with x clamped to [-LIMIT, LIMIT]."""
    return x.clamp(-LIMIT, LIMIT).exp_()


def k3(x: Tensor) -> Tensor:
    """exp(x) - 1 - x, never negative, without the cancellation that would swamp it in float32 near x = 0."""
    return torch.expm1(x.clamp(-LIMIT, LIMIT)) - x


def estimator(name: str, d: Tensor) -> tuple[Tensor, Tensor]:
    """k1, k2 or k3 of y = ref/pi (Schulman 2020, "Approximating KL divergence"), unweighted.

    k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d.
    """
    if name == "k1":
        return d, torch.ones_like(d)
    if name == "k2":
        return d * d / 2, d
    if name == "k3":
        slope = 1 - bounded_exp(-d)
        return d - slope, slope
    raise ValueError(f"unknown KL estimator {name!r}; accepted: k1, k2, k3")


def weighted(value: Tensor, slope: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """w * value, with the gradient through w: its derivative is w (value + slope)."""
    return w * value, w * (value + slope)


def divergence_term(name: str, log_prob: Tensor, w: Tensor, v: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """The term whose expectation over `old` has the gradient of the divergence (paper, Tables 1 and 4; with
    three policies, the same derivation with x ~ old and the KL to ref).

    FKL  KL(ref || pi):   -v log pi      slope  -v
    UFKL with masses:     w - v - v d           w - v
    RKL  KL(pi || ref):   w d                   w (d + 1)
    URKL with masses:     w (d - 1)             w d
    """
    if name == "fkl":
        return -v * log_prob, -v
    if name == "ufkl":
        return w - v - v * d, w - v
    if name == "rkl":
        value = w * d
        return value, value + w
    if name == "urkl":
        slope = w * d
        return slope - w, slope
    raise ValueError(f"unknown divergence {name!r}; accepted: fkl, rkl, ufkl, urkl")


def prefix_term(name: str, log_prob: Tensor, w: Tensor, v: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """The same for whole responses, token by token: `w` and `v` (B, T) are products *up to and including*
    each token.

    The reverse KL of a response is the sum of its tokens' E[w d]; token s moves the terms of tokens t >= s
    only, so its slope is their sum. The forward KL of token s depends on token s alone. Masked tokens must
    come with d = 0 and lie after the response or carry no slope. The constants are chosen as in
    :func:`divergence_term`.
    """
    value, own = divergence_term(name, log_prob, w, v, d)
    if name in ("fkl", "ufkl"):
        return value, own
    later = (w * d).flip(-1).cumsum(-1).flip(-1)
    return value, later + w if name == "rkl" else later
