"""policy_loss: every loss of the catalogue, as a value and its exact slope.

Shapes: B responses (rows), T token positions; log-probabilities are natural logs, of sampled tokens. The
maths of a token is written as a pair (value, slope), where slope = d value / d log_prob; autograd then only
carries the slope on. That is one pass with no graph of temporaries, masked positions can hold anything, and
every slope is tested against autograd on the plain formula and against exact enumeration.

Sources: "On the Design of KL-Regularized Policy Gradient Algorithms for LLM Reasoning" (arXiv 2505.17508)
for RPG, otherwise the citation of each catalogue entry."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.aggregation import Counts, token_weights
from rpg.catalogue import Algorithm, LossKL, ObjectiveKL
from rpg.divergences import bounded_exp, divergence_term, estimator, prefix_term, weighted

LOG_PROB_FLOOR = -1e4  # log 0 = -inf becomes this, so that it can be multiplied by a weight of zero
_CHUNK = 32_768  # tokens per pass on a CPU: a pass's temporaries then stay in its cache


@dataclass(frozen=True)
class LossOutput:
    """loss: scalar to call backward() on; metrics: plain floats; weight: how many tokens the metrics are a
    mean over."""

    loss: Tensor
    metrics: dict[str, float]
    weight: float


def policy_loss(
    algo: Algorithm,
    *,
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    ref_log_prob: Tensor | None = None,
    rollout_weights: Tensor | None = None,
    counts: Counts | None = None,
    optimizer_step: int = 0,
) -> LossOutput:
    """The loss of `algo` on one (micro-)batch.

    log_prob, old_log_prob, ref_log_prob (B, T): log-probabilities of the sampled tokens under the trained,
    the sampling and the reference policy; `ref_log_prob=None` means the reference is `old`. Only `log_prob`
    receives a gradient. advantages (B, T): rewards minus baseline, without KL, one value per response for
    the ratio levels prefix and sequence. response_mask (B, T): non-zero where a token counts; what stands
    elsewhere (NaN too) is never read. rollout_weights (B, T) or (B, 1): correction for a sampler that
    differs from `old`, multiplied onto the loss. counts: sizes of the whole mini-batch (default: this
    batch). optimizer_step: moves clip schedules.

    bfloat16 and float16 are computed in float32. Exponents are clamped to [-20, 20]; -inf log-probabilities
    count as -1e4. Nothing passed in is modified. Raises ValueError for wrong shapes, FloatingPointError
    where an unmasked NaN or infinity makes the loss meaningless."""
    inputs = {
        "log_prob": log_prob,
        "old_log_prob": old_log_prob,
        "advantages": advantages,
        "ref_log_prob": ref_log_prob,
    }
    _check_shapes(inputs, response_mask, rollout_weights)
    dtype = torch.promote_types(log_prob.dtype, torch.float32)
    step = _Step(algo, optimizer_step)
    with torch.no_grad():
        mask = response_mask != 0
        weights = token_weights(mask, algo.loss_agg_mode, counts, dtype)
        if rollout_weights is not None:
            weights *= torch.where(mask, rollout_weights, 0)
        rows = mask.shape[0]
        size = rows if log_prob.is_cuda else max(1, _CHUNK // max(1, mask.shape[1]))
        slope = torch.empty(mask.shape, dtype=log_prob.dtype, device=mask.device)
        sums, peak = [], []
        for start in range(0, rows, max(size, 1)):
            part = slice(start, start + size)
            batch = _Batch.read(inputs, mask[part], part, dtype)
            value, part_slope, ratio = step(batch)
            slope[part] = part_slope * weights[part]
            part_sums, part_peak = _measure(batch, ratio, (value * weights[part]).sum())
            sums.append(part_sums)
            peak.append(part_peak)
        total = torch.stack(sums).sum(0) if sums else torch.zeros(len(_SUMS), dtype=dtype)
        highest = torch.stack(peak).max() if peak else total[0]
        *numbers, ratio_max = torch.cat([total, highest[None]]).tolist()  # the only synchronisation
    measured = dict(zip(_SUMS, numbers, strict=True))
    _check_finite(measured["loss"], inputs, mask)
    loss = _Attach.apply(log_prob, total[0], slope)
    return LossOutput(loss, _metrics(measured, ratio_max), measured["tokens"])


class _Attach(torch.autograd.Function):
    """A scalar whose gradient is known: backward hands `slope` to log_prob."""

    @staticmethod
    def forward(ctx, log_prob, value, slope):
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    def backward(ctx, grad_output):
        (slope,) = ctx.saved_tensors
        return slope * grad_output.to(slope.dtype), None, None


# --- one pass over some rows ---------------------------------------------------------------------------


@dataclass
class _Batch:
    mask: Tensor  # (b, T) bool
    log_prob: Tensor  # everything (b, T), zero where masked
    advantages: Tensor
    log_w: Tensor  # log(pi / old)
    d: Tensor  # log(pi / ref)
    log_v: Tensor | None  # log(ref / old), None when ref is old

    @classmethod
    def read(cls, inputs, mask, part, dtype) -> _Batch:
        def clean(name):
            value = inputs[name][part].to(dtype)
            return torch.where(mask, value, 0)

        log_prob = clean("log_prob").clamp_(min=LOG_PROB_FLOOR)
        old = clean("old_log_prob").clamp_(min=LOG_PROB_FLOOR)
        difference = log_prob - old
        if inputs["ref_log_prob"] is None:
            return cls(mask, log_prob, clean("advantages"), difference, difference, None)
        ref = clean("ref_log_prob").clamp_(min=LOG_PROB_FLOOR)
        return cls(mask, log_prob, clean("advantages"), difference, log_prob - ref, ref - old)


@dataclass
class _Ratio:
    """What was multiplied onto the advantage, and which tokens were clipped."""

    w: Tensor  # (b, T) per token or (b, 1) per response
    upper: Tensor | None = None  # (b, T) bool: no gradient because w is above 1 + high, A >= 0
    lower: Tensor | None = None  # below 1 - low, A < 0
    dual: Tensor | None = None  # above c, A < 0


class _Step:
    """An algorithm at one optimizer step: batch -> (value, slope, ratio)."""

    def __init__(self, algo: Algorithm, optimizer_step: int):
        self.algo = algo
        self.bounds = algo.clip.at(optimizer_step) if algo.clip else None

    def __call__(self, x: _Batch) -> tuple[Tensor, Tensor, _Ratio]:
        if self.algo.surrogate == "rpg":
            return self.rpg(x)
        value, slope, ratio = getattr(self, self.algo.surrogate)(x)
        kl, beta = self.algo.kl, self.algo.beta
        if beta and isinstance(kl, (LossKL, ObjectiveKL)):
            kl_value, kl_slope = self.added_kl(x, kl)
            value, slope = value + beta * kl_value, slope + beta * kl_slope
        return value, slope, ratio

    def added_kl(self, x: _Batch, kl: LossKL | ObjectiveKL) -> tuple[Tensor, Tensor]:
        """A KL term beside the surrogate, never clipped."""
        w = bounded_exp(x.log_w)
        if isinstance(kl, LossKL):
            pair = estimator(kl.estimator, x.d)
            return weighted(*pair, w) if kl.weighted else pair
        v = torch.ones_like(w) if x.log_v is None else bounded_exp(x.log_v)
        value, slope = divergence_term(kl.divergence, x.log_prob, w, v, x.d)
        return kl.Z * (slope * x.log_prob if kl.style == "reinforce" else value), kl.Z * slope

    def clipped(self, w: Tensor, sign: Tensor) -> tuple[_Ratio, Tensor]:
        """Which samples lose their gradient, and the constant that stands for their ratio.

        `sign` carries the sign of the advantage that decides (PPO: the raw one, RPG: the regularised one).
        """
        if self.bounds is None:
            return _Ratio(w), w
        low, high, c = self.bounds
        negative = sign < 0
        upper = (w >= 1 + high) & ~negative
        lower = (w <= 1 - low) & negative
        dual = (w >= c) & negative if c is not None else None
        bound = torch.where(upper, 1 + high, w)
        bound = torch.where(lower, 1 - low, bound)
        if dual is not None:
            bound = torch.where(dual, c, bound)
        return _Ratio(w, upper, lower, dual), bound

    @staticmethod
    def silenced(ratio: _Ratio) -> Tensor | None:
        """The samples that were clipped."""
        if ratio.upper is None:
            return None
        either = ratio.upper | ratio.lower
        return either if ratio.dual is None else either | ratio.dual

    # The surrogates: what multiplies the advantage.

    def ppo_clip(self, x: _Batch):
        """-min(w A, clip(w) A), bounded by -c A where A < 0 (Schulman et al. 2017; Ye et al. 2020)."""
        ratio, bound = self.clipped(bounded_exp(x.log_w), x.advantages)
        value = -bound * x.advantages
        silent = self.silenced(ratio)
        return value, value if silent is None else value.masked_fill(silent, 0), ratio

    def gspo(self, x: _Batch):
        """PPO's clip on the geometric mean of a response's ratios (Zheng et al. 2025), in its per-token
        form."""
        length = x.mask.sum(-1, keepdim=True).clamp(min=1)
        s = bounded_exp(x.log_w.sum(-1, keepdim=True) / length).expand_as(x.log_w)
        ratio, bound = self.clipped(s, x.advantages)
        value = -bound * x.advantages
        silent = self.silenced(ratio)
        return value, value if silent is None else value.masked_fill(silent, 0), ratio

    def cispo(self, x: _Batch):
        """-sg(clip(w)) A log pi: no token loses its gradient (MiniMax-M1, 2025)."""
        w = bounded_exp(x.log_w)
        bound, ratio = w, _Ratio(w)
        if self.bounds is not None:
            low, high, _ = self.bounds
            bound = w.clamp(1 - low, 1 + high)
            ratio = _Ratio(w, w > 1 + high, w < 1 - low)
        slope = -bound * x.advantages
        return slope * x.log_prob, slope, ratio

    def policy_gradient(self, x: _Batch):
        """-A log pi, no importance ratio (Williams 1992)."""
        return -x.advantages * x.log_prob, -x.advantages, _Ratio(bounded_exp(x.log_w))

    def rpg(self, x: _Batch):
        """The paper's eight losses at three ratio levels, with RPG-Style Clip (Algorithms 1 and 2).

        With K the slope of the KL term, the REINFORCE weight is W = w R - beta K and the regularised
        advantage is A = W / w; the gradient of an unclipped sample is -W for either style."""
        kl, beta = self.algo.kl, self.algo.beta
        w, reward, kl_value, kl_slope, v, spread = self.terms(x)
        W = reward
        if kl_slope is not None:
            W = reward - beta * kl_slope
        differentiable = kl.type == "none" or kl.style == "differentiable"
        if differentiable:
            value = -reward * spread
            if kl_value is not None:
                value = value + beta * kl_value
        else:
            value = -W * x.log_prob
        slope = -W
        ratio, bound = self.clipped(w, W)  # w > 0: W has the sign of A
        silent = self.silenced(ratio)
        if silent is not None:
            if differentiable:
                value, slope = self.clip_differentiable(value, slope, W, w, v, bound, silent, spread)
            else:
                clipped_reward = reward + (bound - w) * x.advantages
                clipped_value = (reward - W - clipped_reward) * x.log_prob  # -(bound R + C_KL) log pi
                value = torch.where(silent, clipped_value, value)
                slope = slope.masked_fill(silent, 0)
        Z = kl.Z if isinstance(kl, ObjectiveKL) else 1.0
        if Z != 1.0:
            value, slope = Z * value, Z * slope
        return value, slope, ratio

    def clip_differentiable(self, value, slope, W, w, v, bound, silent, spread):
        """Algorithm 1's clipped branches; see catalogue.Clip for the three readings of its gradient."""
        kl, beta, mode = self.algo.kl, self.algo.beta, self.algo.clip.gradient
        A = W / w
        if kl.type == "none" or self.algo.ratio == "prefix":
            mode = "detached"  # A is a constant, or (prefix) its derivative has no per-token form
        if mode != "exact":
            value = -W * spread
        A_slope = 0.0
        if mode != "detached":
            A_slope = -beta * torch.ones_like(W) if kl.divergence in ("rkl", "urkl") else -beta * v / w
        if mode == "through":
            slope = slope - w * A_slope
        value = torch.where(silent, -bound * A * spread, value)
        return value, torch.where(silent, -bound * A_slope, slope)

    def terms(self, x: _Batch):
        """(w, w R, KL value, KL slope, v, spread), each (b, T), at the algorithm's ratio level.

        `spread` is the share of a response's scalar loss that one of its tokens carries, so that the sum
        over tokens is the response's loss: 1 at token level, 1 / length otherwise."""
        kl, level = self.algo.kl, self.algo.ratio
        name = kl.divergence if isinstance(kl, ObjectiveKL) and self.algo.beta else None
        log_v = torch.zeros_like(x.log_w) if x.log_v is None else x.log_v
        if level == "token":
            w, v = bounded_exp(x.log_w), bounded_exp(log_v)
            pair = divergence_term(name, x.log_prob, w, v, x.d) if name else (None, None)
            return w, w * x.advantages, *pair, v, 1.0
        spread = 1.0 / x.mask.sum(-1, keepdim=True).clamp(min=1).to(x.log_w.dtype)
        w = bounded_exp(x.log_w.sum(-1, keepdim=True)).expand_as(x.log_w)
        v = bounded_exp(log_v.sum(-1, keepdim=True)).expand_as(x.log_w)
        reward = w * x.advantages
        if not name:
            return w, reward, None, None, v, spread
        if level == "prefix":
            w_prefix, v_prefix = bounded_exp(x.log_w.cumsum(-1)), bounded_exp(log_v.cumsum(-1))
            return w, reward, *prefix_term(name, x.log_prob, w_prefix, v_prefix, x.d), v, spread
        log_prob, d = x.log_prob.sum(-1, keepdim=True), x.d.sum(-1, keepdim=True)
        value, slope = divergence_term(name, log_prob, w, v, d)
        return w, reward, value * spread, slope, v, spread


# --- metrics -------------------------------------------------------------------------------------------

_SUMS = (
    *("loss", "tokens", "kl_old_to_policy", "kl_policy_to_old", "kl_ref_to_policy", "kl_policy_to_ref"),
    *("ratios", "ratio", "ratio_squared", "clip_fraction_upper", "clip_fraction_lower", "clip_fraction_dual"),
)


def _measure(x: _Batch, ratio: _Ratio, loss: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over unmasked tokens (see _SUMS), stacked, and the largest ratio; nothing leaves the device.

    The divergences are k3-type, sample by sample not negative: KL(p || q) as E_p[q/p - 1 - log(q/p)]
    carried over to samples from `old` (paper, Appendix D)."""
    w = bounded_exp(x.log_w)
    kl_old = w - 1 - x.log_w
    kl_back = w * x.log_w - w + 1
    if x.log_v is None:
        kl_ref, kl_ref_back = kl_old, kl_back
    else:
        v = bounded_exp(x.log_v)
        kl_ref = w - v - v * x.d
        kl_ref_back = v - w + w * x.d
    tokens = x.mask.sum()
    per_response = ratio.w.shape == x.log_w.shape and ratio.w.stride(-1) == 0
    r = ratio.w[:, :1] if per_response else ratio.w
    counted = x.mask.any(-1, keepdim=True) if per_response else x.mask
    r = torch.where(counted, r, 0)
    clips = [
        torch.zeros_like(loss) if part is None else (part & x.mask).sum().to(loss.dtype)
        for part in (ratio.upper, ratio.lower, ratio.dual)
    ]
    numbers = [loss, tokens, kl_old.sum(), kl_back.sum(), kl_ref.sum(), kl_ref_back.sum()]
    numbers += [counted.sum(), r.sum(), (r * r).sum(), *clips]
    return torch.stack([n.to(loss.dtype) for n in numbers]), r.max() if r.numel() else torch.zeros_like(loss)


def _metrics(sums: dict[str, float], ratio_max: float) -> dict[str, float]:
    tokens, ratios = max(sums["tokens"], 1.0), max(sums["ratios"], 1.0)
    metrics = {"loss": sums["loss"]}
    metrics |= {name: sums[name] / tokens for name in _SUMS if name.startswith(("kl_", "clip_"))}
    metrics["clip_fraction"] = sum(metrics[f"clip_fraction_{kind}"] for kind in ("upper", "lower", "dual"))
    metrics["ratio_mean"] = sums["ratio"] / ratios
    metrics["ratio_max"] = ratio_max
    squared = sums["ratio_squared"]
    metrics["ess"] = sums["ratio"] ** 2 / (ratios * squared) if squared > 0 else 0.0
    return metrics


# --- clear errors --------------------------------------------------------------------------------------


def _check_shapes(inputs: dict[str, Tensor | None], mask: Tensor, rollout_weights: Tensor | None) -> None:
    shape = tuple(inputs["log_prob"].shape)
    if len(shape) != 2:
        raise ValueError(f"log_prob: shape {shape}, accepted: (responses, tokens)")
    for name, value in {**inputs, "response_mask": mask}.items():
        if value is not None and tuple(value.shape) != shape:
            raise ValueError(f"{name}: shape {tuple(value.shape)}, accepted: {shape} like log_prob")
    if rollout_weights is not None and tuple(rollout_weights.shape) not in (shape, (shape[0], 1)):
        raise ValueError(
            f"rollout_weights: shape {tuple(rollout_weights.shape)}, accepted: {shape} or {(shape[0], 1)}"
        )
    if not inputs["log_prob"].is_floating_point():
        raise ValueError(f"log_prob: dtype {inputs['log_prob'].dtype}, accepted: a floating-point type")


def _check_finite(loss: float, inputs: dict[str, Tensor | None], mask: Tensor) -> None:
    if loss - loss == 0.0:
        return
    for name, value in inputs.items():
        if value is None:
            continue
        bad = (mask & (value.isnan() | (value == float("inf")))).nonzero()
        if len(bad):
            row, token = bad[0].tolist()
            number = value[row, token].item()
            raise FloatingPointError(
                f"{name}[{row}, {token}] is {number}: {len(bad)} unmasked entries are NaN or infinite"
            )
    raise FloatingPointError(f"the loss is {loss}: advantages or rollout_weights are too large")
