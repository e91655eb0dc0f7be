"""The surrogates: what multiplies the advantage, as a per-token (value, slope), slope = d value / d
log_prob.

Shapes: b responses (rows), T token positions. w = pi/old, v = ref/old, d = log(pi/ref), R the
advantage. `value` is the loss a token reports; `slope` is what training follows and what the tests
hold against autograd and enumeration.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rpg.catalogue import (
    AdvantageKL,
    Algorithm,
    Clip,
    GammaGate,
    Gate,
    LossKL,
    Mask,
    ObjectiveKL,
    QuadraticGate,
)
from rpg.losses.kl_terms import bounded_exp, estimator, mathematics


@dataclass
class TokenInputs:
    """Some rows of a batch, cleaned: every tensor (b, T), zero where masked."""

    mask: Tensor  # bool
    log_prob: Tensor
    advantages: Tensor
    log_w: Tensor  # log(pi / old)
    d: Tensor  # log(pi / ref)
    log_v: Tensor | None  # log(ref / old); None where ref is old
    token_kl: Tensor | None = None  # KL(pi || ref) between whole next-token distributions

    @property
    def lengths(self) -> Tensor:
        """Tokens of each response, at least 1, (b, 1)."""
        return self.mask.sum(-1, keepdim=True).clamp(min=1)


CLIPS = ("upper", "lower", "dual")
"""What may silence a token: w above 1 + high, advantage positive; w below 1 - low, or above c,
advantage negative."""


Cuts = dict[str, Tensor]
"""Those of CLIPS that an algorithm has, each with the tokens (b, T) bool that it silenced."""


@dataclass(frozen=True)
class TokenLoss:
    """What each token adds to the loss."""

    value: Tensor  # (b, T)
    slope: Tensor  # (b, T)
    ratio: Tensor  # the importance ratio, (b, T) of tokens or (b, 1) of responses
    cuts: Cuts


def token_loss(algo: Algorithm, x: TokenInputs) -> TokenLoss:
    """An algorithm's surrogate and, where it has one, the KL term beside it."""
    if algo.surrogate == "rpg":
        return _rpg(algo, x)
    kl = algo.kl
    if isinstance(kl, AdvantageKL) and algo.beta:
        x = replace(x, advantages=x.advantages - algo.beta * _kl_of_advantage(kl, x))
    loss = _gated(x, algo.gate) if algo.gate else _SURROGATES[algo.surrogate](x, algo.clip)
    if algo.mask:
        loss = _masked(loss, algo.mask, x)
    if algo.drift_penalty:
        value = loss.value + algo.drift_penalty * x.log_w.square()
        slope = loss.slope + 2 * algo.drift_penalty * x.log_w
        loss = replace(loss, value=value, slope=slope)
    if algo.beta and isinstance(kl, LossKL | ObjectiveKL):
        kl_value, kl_slope = _kl_beside(kl, x)
        value = loss.value + algo.beta * kl_value
        slope = loss.slope + algo.beta * kl_slope
        loss = replace(loss, value=value, slope=slope)
    return loss


def _kl_of_advantage(kl: AdvantageKL, x: TokenInputs) -> Tensor:
    """What the advantage of each token (b, T) loses, without its weight beta."""
    away = x.d if kl.at == "current" else x.d - x.log_w
    value = estimator(kl.estimator, away)[0]
    if kl.centred:
        assert x.token_kl is not None
        value = value - x.token_kl
    if kl.to_go:
        value = value.flip(-1).cumsum(-1).flip(-1)
    return value


def _masked(loss: TokenLoss, mask: Mask, x: TokenInputs) -> TokenLoss:
    """Without the tokens whose policy has moved too far."""
    upper, lower = _moved(mask, x)
    silent = upper | lower
    cuts = {name: cut & ~silent for name, cut in loss.cuts.items()}
    cuts["upper"] = upper | cuts["upper"] if "upper" in cuts else upper
    cuts["lower"] = lower | cuts["lower"] if "lower" in cuts else lower
    value = loss.value.masked_fill(silent, 0)
    slope = loss.slope.masked_fill(silent, 0)
    return TokenLoss(value, slope, loss.ratio, cuts)


def _kl_beside(kl: LossKL | ObjectiveKL, x: TokenInputs) -> tuple[Tensor, Tensor]:
    """Value and slope (b, T) of the KL term that is added to a surrogate, without its weight
    beta."""
    w = bounded_exp(x.log_w)
    if isinstance(kl, LossKL):
        value, slope = estimator(kl.estimator, x.d)
        if not kl.weighted:
            return value, slope
        # With the gradient through the ratio.
        weight = torch.ones_like(w) if kl.weighted == "score" else w
        return weight * value, weight * (value + slope)
    v = torch.ones_like(w) if x.log_v is None else bounded_exp(x.log_v)
    value, slope = mathematics(kl.divergence).term(x.log_prob, w, v, x.d)
    if kl.style == "reinforce":
        value = slope * x.log_prob
    return value, slope


# --- baselines
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Clipped:
    """What a clip does to samples."""

    bound: Tensor  # what stands for their ratio
    silent: Tensor | None  # those that lose their gradient; None without a clip
    cuts: Cuts

    def slope(self, slope: Tensor) -> Tensor:
        """Zero where it is silent."""
        return slope if self.silent is None else slope.masked_fill(self.silent, 0)


def _clip(w: Tensor, sign: Tensor, clip: Clip | None) -> _Clipped:
    """`sign` has the sign of the advantage that decides: PPO's is the raw one, RPG's the
    regularised one."""
    if clip is None:
        return _Clipped(w, None, {})
    low = clip.low
    high = clip.high
    c = clip.c
    negative = sign < 0
    upper = (w >= 1 + high) & (sign > 0)
    lower = (w <= 1 - low) & negative
    silent = upper | lower
    bound = torch.where(lower, 1 - low, torch.where(upper, 1 + high, w))
    cuts = {"upper": upper, "lower": lower}
    if c is not None:
        dual = (w >= c) & negative
        silent = silent | dual
        bound = torch.where(dual, c, bound)
        cuts["dual"] = dual
    return _Clipped(bound, silent, cuts)


def _clipped_ratio(w: Tensor, x: TokenInputs, clip: Clip | None) -> TokenLoss:
    """-min(w A, clip(w) A), at most -c A where A < 0."""
    clipped = _clip(w, x.advantages, clip)
    value = -clipped.bound * x.advantages
    return TokenLoss(value, clipped.slope(value), w, clipped.cuts)


def _ppo_clip(x: TokenInputs, clip: Clip | None) -> TokenLoss:
    """Token ratios (Schulman et al. 2017, eq. 7; the bound c: Ye et al. 2020, eq. 5)."""
    return _clipped_ratio(bounded_exp(x.log_w), x, clip)


def _gspo(x: TokenInputs, clip: Clip | None) -> TokenLoss:
    """The geometric mean of a response's ratios, in the form that gives each token the gradient of
    its own factor (Zheng et al. 2025, GSPO-token).
    """
    return _clipped_ratio(bounded_exp(x.log_w.sum(-1, keepdim=True) / x.lengths), x, clip)


def _gspo_joint(x: TokenInputs, clip: Clip | None) -> TokenLoss:
    """The same ratio in its own form (eq. 5 there): each token has the gradient of all factors of
    its response, which is another one only where the advantages of its tokens differ.
    """
    loss = _gspo(x, clip)
    joint = torch.where(x.mask, loss.slope, 0).sum(-1, keepdim=True) / x.lengths
    return replace(loss, slope=joint.expand_as(loss.slope))


def _gmpo(x: TokenInputs, clip: Clip | None) -> TokenLoss:
    """The geometric mean of a response's ratios, each clipped by itself, log w within [-low, high]
    (Zhao et al. 2025)."""
    low = clip.low if clip else float("inf")
    high = clip.high if clip else float("inf")
    negative = x.advantages < 0
    upper = (x.log_w > high) & ~negative
    lower = (x.log_w < -low) & negative
    clipped = x.log_w.masked_fill(upper, high).masked_fill(lower, -low)
    clipped = torch.where(x.mask, clipped, 0)
    w = bounded_exp(clipped.sum(-1, keepdim=True) / x.lengths)
    value = -w * x.advantages
    slope = value.masked_fill(upper | lower, 0)
    return TokenLoss(value, slope, w, {"upper": upper & (value < 0), "lower": lower})


def _moved(mask: Mask, x: TokenInputs) -> tuple[Tensor, Tensor]:
    """Tokens (b, T) whose policy has moved up and down by more than catalogue.Mask allows."""
    moved = _distance(mask, x)
    up = torch.zeros_like(x.mask) if mask.high is None else moved > mask.high
    down = torch.zeros_like(x.mask) if mask.low is None else moved < -mask.low
    if mask.always:
        return up, down
    return up & (x.advantages > 0), down & (x.advantages <= 0)


def _distance(mask: Mask, x: TokenInputs) -> Tensor:
    """How far, and which way, the policy has moved at each token (b, T), as `mask` measures it."""
    if mask.by == "ratio":
        return bounded_exp(x.log_w) - 1
    if mask.by == "response":
        return (x.log_w.sum(-1, keepdim=True) / x.lengths).expand_as(x.log_w)
    old = bounded_exp(x.log_prob - x.log_w)
    new = bounded_exp(x.log_prob)
    if mask.by != "kl":
        return new - old
    # The KL of two outcomes: this token, and any other.
    log_others = torch.log((1 - old + 1e-8) / (1 - new + 1e-8))
    kl = (1 - old) * log_others - old * x.log_w
    return (new - old).sign() * kl


def _gated(x: TokenInputs, gate: Gate) -> TokenLoss:
    """A smooth function of the ratio in place of a clip; both are given in catalogue."""
    if isinstance(gate, GammaGate):
        return _gated_by_gamma(x, gate)
    w = bounded_exp(x.log_w)
    if isinstance(gate, QuadraticGate):
        old = bounded_exp(x.log_prob - x.log_w) if gate.by_probability else torch.ones_like(w)
        size = x.advantages.abs() if gate.by_advantage else torch.ones_like(w)
        pull = size * old / gate.epsilon
        value = pull / 2 * (w - 1).square() - w * x.advantages
        slope = pull * (w - 1) * w - w * x.advantages
        return TokenLoss(value, slope, w, {})
    tau = torch.where(x.advantages > 0, gate.positive, gate.negative).to(w.dtype)
    open_ = torch.sigmoid(tau * (w - 1))
    value = -4 / tau * open_ * x.advantages
    slope = -4 * open_ * (1 - open_) * w * x.advantages
    return TokenLoss(value, slope, w, {})


def _gated_by_gamma(x: TokenInputs, gate: GammaGate) -> TokenLoss:
    log_w = x.log_w.sum(-1, keepdim=True)
    w = bounded_exp(log_w)
    negative = x.advantages < 0
    k_negative, rate_negative = gate.negative
    k_positive, rate_positive = gate.positive
    k = torch.where(negative, k_negative, k_positive).to(w.dtype)
    rate = torch.where(negative, rate_negative, rate_positive).to(w.dtype)
    weight = torch.exp(k * log_w.clamp(-20, 20) + rate * (1 - w))
    value = -weight * x.advantages * x.log_prob
    slope = -weight * x.advantages
    return TokenLoss(value, slope, w, {})


def _cispo(x: TokenInputs, clip: Clip | None) -> TokenLoss:
    """-sg(clip(w)) A log pi: no token loses its gradient (MiniMax-M1, 2025, eq. 4)."""
    w = bounded_exp(x.log_w)
    weight = w
    cuts = Cuts()
    if clip is not None:
        low = clip.low
        high = clip.high
        weight = w.clamp(1 - low, 1 + high)
        cuts = {"upper": w > 1 + high, "lower": w < 1 - low}
    slope = -weight * x.advantages
    return TokenLoss(slope * x.log_prob, slope, w, cuts)


def _policy_gradient(x: TokenInputs, _clip: Clip | None) -> TokenLoss:
    """-A log pi, no importance ratio (Williams 1992)."""
    return TokenLoss(-x.advantages * x.log_prob, -x.advantages, bounded_exp(x.log_w), {})


_SURROGATES: dict[str, Callable[[TokenInputs, Clip | None], TokenLoss]] = {
    "ppo_clip": _ppo_clip,
    "gspo": _gspo,
    "gspo_joint": _gspo_joint,
    "gmpo": _gmpo,
    "cispo": _cispo,
    "policy_gradient": _policy_gradient,
}

# --- RPG
# ---------------------------------------------------------------------------------------------


def _rpg(algo: Algorithm, x: TokenInputs) -> TokenLoss:
    """The paper's eight losses (Tables 1, 2, 4) with RPG-Style Clip (Algorithms 1 and 2). A sample
    is a token given its prefix (ratio token) or a whole response (prefix, sequence), whose
    quantities are (b, 1).

    With R the advantage and K the slope of the KL term, W = w R - beta K is the REINFORCE weight
    and A = W / w the regularised advantage; an unclipped sample has slope -W in either style.
    w > 0, so W has the sign of A.
    """
    sample = _sample(x, whole=algo.ratio != "token")
    w = sample.w
    # The part of a response's scalar loss that one of its tokens reports: they add up to it.
    spread = 1 / x.lengths.to(w.dtype) if algo.ratio != "token" else 1.0
    kl = algo.kl if isinstance(algo.kl, ObjectiveKL) else None
    term = _NO_KL
    if algo.beta and kl is not None:
        term = _kl_of_sample(algo, kl, x, sample, spread)
    weighted_advantage = w * x.advantages
    W = weighted_advantage - algo.beta * term.slope
    clipped = _clip(w, W, algo.clip)
    if kl is not None and kl.style == "reinforce":
        value, slope = _reinforce_style(x, w, W, clipped)
    else:
        unclipped = algo.beta * term.value - weighted_advantage * spread
        value, slope = _differentiable_style(_reading(algo), w, W, unclipped, term, spread, clipped)
    if kl is not None and kl.Z != 1.0:
        value = kl.Z * value
        slope = kl.Z * slope
    return TokenLoss(value, slope, w, clipped.cuts)


def _reinforce_style(
    x: TokenInputs, w: Tensor, W: Tensor, clipped: _Clipped
) -> tuple[Tensor, Tensor]:
    """Value and slope by Algorithm 2: -sg(W) log pi. A silent sample has no slope; it reports
    -(bound R + C) log pi, with the KL's part C = W - w R."""
    weight = W
    if clipped.silent is not None:
        bounded = W + (clipped.bound - w) * x.advantages
        weight = torch.where(clipped.silent, bounded, W)
    return -weight * x.log_prob, clipped.slope(-W)


def _differentiable_style(
    reading: str,
    w: Tensor,
    W: Tensor,
    unclipped: Tensor,
    term: "_KLOfSample",
    spread: Tensor | float,
    clipped: _Clipped,
) -> tuple[Tensor, Tensor]:
    """Value and slope by Algorithm 1: `unclipped`, beta D - w R, whose slope is -W. With a clip,
    the other two readings (catalogue.Clip) have -w A there, whose slope is -W - w dA / d log pi; a
    silent sample has -bound A, whose slope is -bound dA / d log pi."""
    if clipped.silent is None:
        return unclipped, -W
    value = unclipped
    slope = -W
    if reading != "exact":
        value = -W * spread
        slope = slope - w * term.A_slope
    value = torch.where(clipped.silent, -clipped.bound * (W / w) * spread, value)
    slope = torch.where(clipped.silent, -clipped.bound * term.A_slope, slope)
    return value, slope


@dataclass(frozen=True)
class _Sample:
    """The quantities of a sample, (b, T) of tokens or (b, 1) of responses."""

    log_prob: Tensor
    w: Tensor
    v: Tensor
    d: Tensor


def _sample(x: TokenInputs, whole: bool) -> _Sample:
    log_v = torch.zeros_like(x.log_w) if x.log_v is None else x.log_v
    if not whole:
        return _Sample(x.log_prob, bounded_exp(x.log_w), bounded_exp(log_v), x.d)
    return _Sample(
        log_prob=x.log_prob.sum(-1, keepdim=True),
        w=bounded_exp(x.log_w.sum(-1, keepdim=True)),
        v=bounded_exp(log_v.sum(-1, keepdim=True)),
        d=x.d.sum(-1, keepdim=True),
    )


@dataclass(frozen=True)
class _KLOfSample:
    """The KL term of a sample without its weight beta; `value` is what one token reports."""

    value: Tensor | float
    slope: Tensor | float
    A_slope: Tensor | float  # dA / d log pi, zero where A is held constant


_NO_KL = _KLOfSample(0.0, 0.0, 0.0)


def _reading(algo: Algorithm) -> str:
    """How the gradient of Algorithm 1 is read; catalogue.Clip explains the three ways."""
    return algo.clip.gradient if algo.clip else "detached"


def _kl_of_sample(
    algo: Algorithm, kl: ObjectiveKL, x: TokenInputs, sample: _Sample, spread: Tensor | float
) -> _KLOfSample:
    formulas = mathematics(kl.divergence)
    if algo.ratio == "prefix":  # A belongs to a token and has no derivative as below
        assert formulas.prefix is not None
        w = bounded_exp(x.log_w.cumsum(-1))
        v = torch.ones_like(w) if x.log_v is None else bounded_exp(x.log_v.cumsum(-1))
        value, slope = formulas.prefix(x.log_prob, w, v, x.d)
        return _KLOfSample(value, slope, 0.0)
    value, slope = formulas.term(sample.log_prob, sample.w, sample.v, sample.d)
    value = value * spread
    if _reading(algo) == "detached" or kl.style == "reinforce":
        return _KLOfSample(value, slope, 0.0)
    assert formulas.advantage_slope is not None
    A_slope = formulas.advantage_slope(algo.beta, sample.w, sample.v, sample.d)
    return _KLOfSample(value, slope, A_slope)
