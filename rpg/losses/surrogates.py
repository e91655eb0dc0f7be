"""The surrogates: what multiplies the advantage, as a per-token (value, slope), slope = d value / d
log_prob.

Shapes: b responses (rows), T token positions. w = pi/old, v = ref/old, d = log(pi/ref), R the
advantage. `value` is the loss a token reports; `slope` is what training follows and what the tests
hold against autograd and enumeration.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rpg.catalogue import AdvantageKL, Algorithm, Clip, GammaGate, Gate, LossKL, Mask, ObjectiveKL
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

    @property
    def lengths(self) -> Tensor:
        """Tokens of each response, at least 1, (b, 1)."""
        return self.mask.sum(-1, keepdim=True).clamp(min=1)


CLIPS = ("upper", "lower", "dual")
"""What may silence a token: w above 1 + high, advantage positive; w below 1 - low, or above c,
advantage negative."""


Cuts = dict[
    str, Tensor
]  # those of CLIPS that an algorithm has -> the tokens (b, T) bool that it silenced
TokenLoss = tuple[Tensor, Tensor, Tensor, Cuts]
"""Value and slope (b, T); the importance ratio, (b, T) of tokens or (b, 1) of responses; what it
silenced."""


def token_loss(algo: Algorithm, x: TokenInputs) -> TokenLoss:
    """An algorithm's surrogate and, where it has one, the KL term beside it."""
    if algo.surrogate == "rpg":
        return _rpg(algo, x)
    kl = algo.kl
    if isinstance(kl, AdvantageKL) and algo.beta:
        away = x.d if kl.at == "current" else x.d - x.log_w
        x = replace(x, advantages=x.advantages - algo.beta * estimator(kl.estimator, away)[0])
    surrogate = (
        _SURROGATES[algo.surrogate](x, algo.clip) if algo.gate is None else _gated(x, algo.gate)
    )
    value, slope, ratio, cuts = surrogate
    if algo.mask:
        upper, lower = _moved(algo.mask, x)
        silent = upper | lower
        value = value.masked_fill(silent, 0)
        slope = slope.masked_fill(silent, 0)
        cuts = {name: cut & ~silent for name, cut in cuts.items()}
        cuts |= {
            "upper": upper | cuts.get("upper", upper),
            "lower": lower | cuts.get("lower", lower),
        }
    if algo.drift_penalty:
        value = value + algo.drift_penalty * x.log_w.square()
        slope = slope + 2 * algo.drift_penalty * x.log_w
    if not algo.beta or not isinstance(kl, (LossKL, ObjectiveKL)):
        return value, slope, ratio, cuts
    w = bounded_exp(x.log_w)
    if isinstance(kl, LossKL):
        kl_value, kl_slope = estimator(kl.estimator, x.d)
        if kl.weighted:  # with the gradient through the ratio
            ratio_of_kl = torch.ones_like(w) if kl.weighted == "score" else w
            kl_value, kl_slope = ratio_of_kl * kl_value, ratio_of_kl * (kl_value + kl_slope)
    else:
        v = torch.ones_like(w) if x.log_v is None else bounded_exp(x.log_v)
        kl_value, kl_slope = mathematics(kl.divergence).term(x.log_prob, w, v, x.d)
        if kl.style == "reinforce":
            kl_value = kl_slope * x.log_prob
    return value + algo.beta * kl_value, slope + algo.beta * kl_slope, ratio, cuts


# --- baselines
# ---------------------------------------------------------------------------------------


def _clip(w: Tensor, sign: Tensor, clip: Clip | None) -> tuple[Cuts, Tensor | None, Tensor]:
    """Which samples lose their gradient (by cut, and all of them together), and what stands for
    their ratio.

    `sign` has the sign of the advantage that decides: PPO's is the raw one, RPG's the regularised
    one.
    """
    if clip is None:
        return {}, None, w
    low = clip.low
    high = clip.high
    c = clip.c
    negative = sign < 0
    upper, lower = (w >= 1 + high) & (sign > 0), (w <= 1 - low) & negative
    silent = upper | lower
    bound = torch.where(lower, 1 - low, torch.where(upper, 1 + high, w))
    cuts = {"upper": upper, "lower": lower}
    if c is not None:
        cuts["dual"] = dual = (w >= c) & negative
        silent = silent | dual
        bound = torch.where(dual, c, bound)
    return cuts, silent, bound


def _clipped_ratio(w: Tensor, x: TokenInputs, clip: Clip | None) -> TokenLoss:
    """-min(w A, clip(w) A), at most -c A where A < 0."""
    cuts, silent, bound = _clip(w, x.advantages, clip)
    value = -bound * x.advantages
    return value, value if silent is None else value.masked_fill(silent, 0), w, cuts


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
    value, slope, w, cuts = _gspo(x, clip)
    joint = torch.where(x.mask, slope, 0).sum(-1, keepdim=True) / x.lengths
    return value, joint.expand_as(slope), w, cuts


def _gmpo(x: TokenInputs, clip: Clip | None) -> TokenLoss:
    """The geometric mean of a response's ratios, each clipped by itself, log w within [-low, high]
    (Zhao et al. 2025)."""
    low, high = (clip.low, clip.high) if clip else (float("inf"), float("inf"))
    negative = x.advantages < 0
    upper, lower = (x.log_w > high) & ~negative, (x.log_w < -low) & negative
    log_w = torch.where(upper, high, torch.where(lower, -low, x.log_w)).where(x.mask, 0)
    w = bounded_exp(log_w.sum(-1, keepdim=True) / x.lengths)
    value = -w * x.advantages
    return (
        value,
        value.masked_fill(upper | lower, 0),
        w,
        {"upper": upper & (value < 0), "lower": lower},
    )


def _moved(mask: Mask, x: TokenInputs) -> tuple[Tensor, Tensor]:
    """Tokens (b, T) whose policy has moved up and down by more than catalogue.Mask allows."""
    old = bounded_exp(x.log_prob - x.log_w)
    new = bounded_exp(x.log_prob)
    moved = new - old
    if mask.by == "kl":
        others = torch.log((1 - old + 1e-8) / (1 - new + 1e-8))
        moved = moved.sign() * ((1 - old) * others - old * x.log_w)
    elif mask.by == "ratio":
        moved = bounded_exp(x.log_w) - 1
    elif mask.by == "response":
        moved = (x.log_w.sum(-1, keepdim=True) / x.lengths).expand_as(x.log_w)
    up = torch.zeros_like(x.mask) if mask.high is None else moved > mask.high
    down = torch.zeros_like(x.mask) if mask.low is None else moved < -mask.low
    return (up, down) if mask.always else (up & (x.advantages > 0), down & (x.advantages <= 0))


def _gated(x: TokenInputs, gate: Gate) -> TokenLoss:
    """A smooth function of the ratio in place of a clip; both are given in catalogue."""
    if isinstance(gate, GammaGate):
        log_w = x.log_w.sum(-1, keepdim=True)
        w = bounded_exp(log_w)
        pairs = zip(gate.negative, gate.positive, strict=True)
        k, rate = (torch.where(x.advantages < 0, *pair).to(w.dtype) for pair in pairs)
        weight = torch.exp(k * log_w.clamp(-20, 20) + rate * (1 - w))
        return -weight * x.advantages * x.log_prob, -weight * x.advantages, w, {}
    w = bounded_exp(x.log_w)
    tau = torch.where(x.advantages > 0, gate.positive, gate.negative).to(w.dtype)
    open_ = torch.sigmoid(tau * (w - 1))
    return -4 / tau * open_ * x.advantages, -4 * open_ * (1 - open_) * w * x.advantages, w, {}


def _cispo(x: TokenInputs, clip: Clip | None) -> TokenLoss:
    """-sg(clip(w)) A log pi: no token loses its gradient (MiniMax-M1, 2025, eq. 4)."""
    w = bounded_exp(x.log_w)
    weight = w
    cuts = Cuts()
    if clip is not None:
        low, high = clip.low, clip.high
        weight = w.clamp(1 - low, 1 + high)
        cuts = {"upper": w > 1 + high, "lower": w < 1 - low}
    slope = -weight * x.advantages
    return slope * x.log_prob, slope, w, cuts


def _policy_gradient(x: TokenInputs, _clip: Clip | None) -> TokenLoss:
    """-A log pi, no importance ratio (Williams 1992)."""
    return -x.advantages * x.log_prob, -x.advantages, bounded_exp(x.log_w), {}


_SURROGATES = {
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

    With K the slope of the KL term, W = w R - beta K is the REINFORCE weight and A = W / w the
    regularised advantage; an unclipped sample has slope -W in either style. w > 0, so W has the
    sign of A.
    """
    whole = algo.ratio != "token"
    log_v = torch.zeros_like(x.log_w) if x.log_v is None else x.log_v
    log_w, log_v_sample, log_prob, d = (
        log.sum(-1, keepdim=True) if whole else log for log in (x.log_w, log_v, x.log_prob, x.d)
    )
    w = bounded_exp(log_w)
    v = bounded_exp(log_v_sample)
    # the part of a response's scalar loss that one of its tokens reports, so that they add up to it
    spread = 1 / x.lengths.to(w.dtype) if whole else 1.0
    kl_value: Tensor | float = 0.0
    kl_slope: Tensor | float = 0.0
    A_slope: Tensor | float = 0.0  # dA / d log pi, zero where A is held constant
    reading = algo.clip.gradient if algo.clip else "detached"
    kl = algo.kl if isinstance(algo.kl, ObjectiveKL) else None
    reinforce = kl is not None and kl.style == "reinforce"
    if algo.beta and kl is not None:
        formulas = mathematics(kl.divergence)
        if algo.ratio == "prefix":  # A belongs to a token and has no such derivative
            assert formulas.prefix is not None
            w_prefix, v_prefix = (bounded_exp(log.cumsum(-1)) for log in (x.log_w, log_v))
            kl_value, kl_slope = formulas.prefix(x.log_prob, w_prefix, v_prefix, x.d)
        else:
            kl_value, kl_slope = formulas.term(log_prob, w, v, d)
            kl_value = kl_value * spread
            if reading != "detached" and not reinforce:
                assert formulas.advantage_slope is not None
                A_slope = formulas.advantage_slope(algo.beta, w, v, d)
    reward = w * x.advantages
    W = reward - algo.beta * kl_slope
    cuts, silent, bound = _clip(w, W, algo.clip)
    if reinforce:
        weight = W
        slope = -W
        if silent is not None:  # Algorithm 2 reports bound R + C_KL there, C_KL = W - w R
            weight = torch.where(silent, W + (bound - w) * x.advantages, W)
            slope = slope.masked_fill(silent, 0)
        value = -weight * x.log_prob
    else:
        value = algo.beta * kl_value - reward * spread
        slope = -W
        if (
            silent is not None
        ):  # Algorithm 1: -bound A there; catalogue.Clip explains the three readings
            if reading != "exact":
                value = -W * spread
                slope = slope - w * A_slope
            value = torch.where(silent, -bound * (W / w) * spread, value)
            slope = torch.where(silent, -bound * A_slope, slope)
    Z = kl.Z if kl else 1.0
    return (Z * value, Z * slope, w, cuts) if Z != 1.0 else (value, slope, w, cuts)
