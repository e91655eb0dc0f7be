"""KL terms as (value, slope) pairs: a per-token loss and its derivative with respect to log pi.

w = pi/old, v = ref/old, d = log(pi/ref); x is sampled from `old`. All tensors broadcast. A pair's
slope is exactly what autograd finds for its value, but it is written down, because it is the
quantity that has to be right. MATHEMATICS holds what :mod:`rpg.catalogue.divergences` names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rpg.catalogue import DIVERGENCES, AlgorithmError, Divergence
from rpg.catalogue.divergences import RESERVED

# every exponent is clamped to [-20, 20]: ratios between 2e-9 and 5e8, squares finite in float32
LIMIT = 20.0


def bounded_exp(x: Tensor) -> Tensor:
    """exp(x) with x clamped to [-LIMIT, LIMIT]."""
    return x.clamp(-LIMIT, LIMIT).exp_()


def k3(x: Tensor) -> Tensor:
    """exp(x) - 1 - x, never negative, without the cancellation that would swamp it in float32 near
    x = 0."""
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


# --- divergences
# ---------------------------------------------------------------------------------------

Pair = tuple[Tensor, Tensor]  # (value, slope)
Term = Callable[[Tensor, Tensor, Tensor, Tensor], Pair]  # of (log_prob, w, v, d)


@dataclass(frozen=True)
class Mathematics:
    """The formulas of one divergence D (paper, Tables 1 and 4; with three policies, the same
    derivation with x ~ old and the KL to ref). A part that is None is not known;
    catalogue.Algorithm refuses what needs it.
    """

    exact: Callable[[Tensor, Tensor], Tensor]
    """D itself, from log pi and log ref (..., outcomes) of every outcome, summed over the last
    dimension, with masses if D has them. The audit differentiates it, so it must not be derived
    from `term`."""
    term: Term
    """The pair of a sample whose mean over `old` has the value (up to a constant) and the gradient
    of D."""
    prefix: Term | None = None
    """The same for whole responses, token by token: w and v (B, T) are products *up to and
    including* each token, and the slopes of a response's tokens add up to that of D between
    responses. Masked tokens have d = 0, or carry no slope."""
    advantage_slope: Callable[[float, Tensor, Tensor, Tensor], Tensor | float] | None = None
    """dA / d log pi of the regularised advantage A = R - beta slope / w, from (beta, w, v, d)."""


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q), summed over the last dimension."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _surplus(log_p: Tensor, log_q: Tensor) -> Tensor:
    """The mass of p above that of q: zero for policies, which sum to one."""
    return (log_p.exp() - log_q.exp()).sum(-1)


def _fkl(log_prob: Tensor, _w: Tensor, v: Tensor, _d: Tensor) -> Pair:
    return -v * log_prob, -v


def _ufkl(_log_prob: Tensor, w: Tensor, v: Tensor, d: Tensor) -> Pair:
    return w - v - v * d, w - v


def _rkl(_log_prob: Tensor, w: Tensor, _v: Tensor, d: Tensor, prefix: bool = False) -> Pair:
    terms = w * d
    return terms, (_from_here_on(terms) if prefix else terms) + w


def _urkl(_log_prob: Tensor, w: Tensor, _v: Tensor, d: Tensor, prefix: bool = False) -> Pair:
    terms = w * d
    return terms - w, _from_here_on(terms) if prefix else terms


def _from_here_on(terms: Tensor) -> Tensor:
    """The reverse KL of a response is the sum of its tokens' E[w d]; token s moves the terms of
    tokens t >= s only, so its slope is their sum. The forward KL of token s depends on token s
    alone.
    """
    return terms.flip(-1).cumsum(-1).flip(-1)


def _forward_advantage(beta: float, w: Tensor, v: Tensor, _d: Tensor) -> Tensor:
    return -beta * v / w


def _reverse_advantage(beta: float, _w: Tensor, _v: Tensor, _d: Tensor) -> float:
    return -beta


MATHEMATICS: dict[str, Mathematics] = {
    "fkl": Mathematics(lambda p, q: _kl(q, p), _fkl, _fkl, _forward_advantage),
    "rkl": Mathematics(_kl, _rkl, partial(_rkl, prefix=True), _reverse_advantage),
    "ufkl": Mathematics(lambda p, q: _kl(q, p) + _surplus(p, q), _ufkl, _ufkl, _forward_advantage),
    "urkl": Mathematics(
        lambda p, q: _kl(p, q) - _surplus(p, q),
        _urkl,
        partial(_urkl, prefix=True),
        _reverse_advantage,
    ),
}


def mathematics(name: str) -> Mathematics:
    """The formulas of a divergence; raises AlgorithmError for a name that is not declared."""
    if name not in MATHEMATICS:
        raise AlgorithmError("divergence", name, tuple(MATHEMATICS))
    return MATHEMATICS[name]


def check(records: Mapping[str, Divergence], formulas: Mapping[str, Mathematics]) -> None:
    """Raises RuntimeError if the records of the catalogue and the formulas here do not agree."""
    for name in {**records, **formulas}:
        record = records.get(name)
        formula = formulas.get(name)
        if record is None or formula is None:
            place = "rpg/catalogue/divergences.yaml" if record is None else "rpg/losses/kl_terms.py"
            raise RuntimeError(
                f"divergence {name!r} is missing in {place}: it needs a record there, too"
            )
        if name in RESERVED:
            raise RuntimeError(
                f"divergence {name!r}: the audit means {RESERVED[name]} by this name; "
                "accepted: any other name"
            )
        if record.name != name or record.normalised not in records:
            raise RuntimeError(f"divergence {name!r}: its name or its `normalised` names no record")
        for part in ("prefix", "advantage_slope"):
            if getattr(record, part) != (getattr(formula, part) is not None):
                raise RuntimeError(
                    f"divergence {name!r}: rpg/catalogue/divergences.yaml says "
                    f"{part}={getattr(record, part)}, "
                    f"rpg/losses/kl_terms.py declares {'none' if getattr(record, part) else 'one'}"
                )


check(DIVERGENCES, MATHEMATICS)
