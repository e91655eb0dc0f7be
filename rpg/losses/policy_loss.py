"""policy_loss: the loss of any algorithm of the catalogue on one batch.

Shapes: B responses (rows), T token positions; log-probabilities are natural logs, of the sampled
tokens. :mod:`rpg.losses.surrogates` writes each token's loss as (value, slope); here the slopes are
weighted, summed up and handed to autograd in one piece. That is one pass without a graph of
temporaries, and masked positions can hold anything.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

import torch
from torch import Tensor

from rpg.catalogue import (
    Algorithm,
    DistributionKL,
    RejectedSamples,
    RolloutCorrection,
    SecondMoment,
    TruncatedWeights,
)
from rpg.losses.advantages import require_reference, require_types
from rpg.losses.aggregation import Counts, aggregate, token_weights
from rpg.losses.kl_terms import bounded_exp, estimator, k3
from rpg.losses.surrogates import CLIPS, TokenInputs, TokenLoss, token_loss

LOG_PROB_FLOOR = -1e4  # log 0 = -inf becomes this, so that it can be multiplied by a weight of zero
# Log-probabilities are at most 0; bfloat16 rounds a difference of logits of 30 to eighths.
POSITIVE = 0.25
_CHUNK = 65_536  # tokens per pass on a CPU: the temporaries of a pass then stay in its cache


@dataclass(frozen=True)
class LossOutput:
    """loss: scalar to call backward() on; metrics: plain floats; weight: how many tokens they are a
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
    token_kl: Tensor | None = None,
    counts: Counts | None = None,
) -> LossOutput:
    """The loss of `algo` on one (micro-)batch.

    log_prob, old_log_prob, ref_log_prob (B, T): log-probabilities of the sampled tokens under the
    trained, the old and the reference policy. The ratio divides by the old policy: the sampler,
    which drew the tokens, or the trained policy before this rollout's first update. If these differ
    (a sampler that is staler or rounded), rollout_weights (B, T) or (B, 1) can correct for it: they
    are multiplied onto the loss as a constant (the table above RolloutCorrection in
    rpg/catalogue/components.py). ref_log_prob is None for an algorithm whose reference is
    the old policy, or that has no KL. Only `log_prob` receives a gradient. advantages (B, T):
    rewards minus baseline, without KL; for the ratio levels prefix and sequence one value per
    response, spread over its tokens. response_mask (B, T): non-zero where a token counts; values
    elsewhere, even NaN, are never read. token_kl (B, T): of an algorithm whose kl is
    of type distribution, the divergence at each token (:func:`rpg.distribution_kl`), which receives
    a gradient, too, and no `rollout_weights`, because it does not depend on the token that was
    sampled; of one whose kl is `centred`, KL(policy || reference) at each token, a constant.
    counts: sizes of the whole mini-batch (default: this batch).

    bfloat16 and float16 are computed in float32. Exponents are clamped to [-20, 20]; a
    log-probability of -inf counts as -1e4. Inputs are not modified. Raises TypeError for what is no
    tensor or no algorithm, ValueError for wrong shapes or a missing `ref_log_prob`,
    FloatingPointError if an unmasked NaN or infinity makes the loss meaningless. Warns of
    log-probabilities above 0: of probabilities, or a wrong sign.

    Metrics are means over unmasked tokens (over responses for the ratio of a whole response):
    `loss`; `kl_p_to_q` (nats per token, estimates of KL(p || q) that are never negative);
    `ratio_mean`, `ratio_max`, `ratio_count` and `ess`, the effective sample size (sum w)^2 / (n sum
    w^2); `clip_fraction` of tokens without a gradient from the advantage, and its parts `_upper`,
    `_lower` and `_dual`.
    """
    named: dict[str, Tensor | None] = {
        "log_prob": log_prob,
        "old_log_prob": old_log_prob,
        "advantages": advantages,
        "ref_log_prob": ref_log_prob,
        "token_kl": token_kl,
    }
    require_types(
        algo, {**named, "response_mask": response_mask, "rollout_weights": rollout_weights}
    )
    _require_token_kl(algo, token_kl)
    if algo.kl.type not in ("reward", "distribution"):  # read by `advantages`, and in `token_kl`
        require_reference(algo, ref_log_prob)
    inputs = {name: value for name, value in named.items() if value is not None}
    _check_shapes(inputs, response_mask, rollout_weights)
    dtype = torch.promote_types(log_prob.dtype, torch.float32)
    with torch.no_grad():
        mask = response_mask != 0
        weights = token_weights(mask, algo.loss_agg_mode, counts, dtype)
        if rollout_weights is not None:
            weights *= torch.where(mask, rollout_weights, 0)
        rows, tokens = mask.shape
        size = rows
        if log_prob.device.type == "cpu":  # as many rows as fit into its caches
            size = _CHUNK // max(1, tokens)
        size = max(1, size)
        slope = torch.empty_like(weights)
        sums = weights.new_zeros(len(_SUMS))
        peaks = [weights.new_zeros(2)]
        for start in range(0, rows, size):
            part = slice(start, start + size)
            x, highest = _read({name: value[part] for name, value in inputs.items()}, mask[part])
            tokens_loss = token_loss(algo, x)
            torch.mul(tokens_loss.slope, weights[part], out=slope[part])
            part_sums, peak = _measure(x, tokens_loss, (tokens_loss.value * weights[part]).sum())
            sums += part_sums
            peaks.append(torch.stack([peak, highest]))
        # The next line is the only one that waits for the device.
        on_host = torch.cat([sums, torch.stack(peaks).amax(0)]).tolist()
        *numbers, ratio_max, highest_log_prob = on_host
    measured = dict(zip(_SUMS, numbers, strict=True))
    loss = cast(Tensor, _KnownSlope.apply(log_prob, sums[0], slope))  # type: ignore[no-untyped-call]
    if token_kl is not None and isinstance(algo.kl, DistributionKL):
        kl = algo.beta * aggregate(token_kl, mask, algo.loss_agg_mode, counts)
        loss = loss + kl
        measured["loss"] += float(kl.detach())
    if not isfinite(measured["loss"]):
        raise _explain_not_finite(measured["loss"], inputs, mask)
    if highest_log_prob > POSITIVE:
        _warn_of_positive(inputs, mask)
    return LossOutput(loss, _metrics(measured, ratio_max), measured["tokens"])


def weighted_likelihood(log_prob: Tensor, weights: Tensor, mask: Tensor, counts: Counts) -> Tensor:
    """The mean over tokens of log_prob times `weights` (advantages.positive_lm_weights), (B, T)
    each: a scalar."""
    return aggregate(log_prob.clamp(min=LOG_PROB_FLOOR) * weights, mask, "token-mean", counts)


def token_terms(
    algo: Algorithm, *, response_mask: Tensor, **inputs: Tensor | None
) -> dict[str, Tensor]:
    """What the loss made of each token, of which its metrics are means; (B, T), zero where masked.
    `inputs` are the log-probabilities and the advantages as in :func:`policy_loss`, which has
    checked them.

    ratio: the importance ratio; where it is that of a whole response, each of its tokens has it.
    clipped: uint8, the bound that took the token's gradient from the advantage, CLIPS[n - 1], 0 for
    none. kl: its part of `kl_policy_to_ref`, nats.
    """
    with torch.no_grad():
        mask = response_mask != 0
        x, _ = _read(inputs, mask)
        loss = token_loss(algo, x)
        clipped = torch.zeros(mask.shape, dtype=torch.uint8, device=mask.device)
        for name, silent in loss.cuts.items():
            clipped[silent & mask] = CLIPS.index(name) + 1
        w = torch.where(mask, loss.ratio.expand(mask.shape), 0)
        kl = torch.where(mask, bounded_exp(x.log_w) * k3(-x.d), 0)
        return {"ratio": w, "clipped": clipped, "kl": kl}


class _KnownSlope(torch.autograd.Function):
    """A scalar whose gradient with respect to log_prob is known."""

    @staticmethod
    def forward(ctx: Any, log_prob: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        ctx.dtype = log_prob.dtype
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return (slope * grad_output).to(ctx.dtype), None, None


def _read(inputs: Mapping[str, Tensor | None], mask: Tensor) -> tuple[TokenInputs, Tensor]:
    """Zeros where masked, before any arithmetic: NaN times zero is NaN. Also the highest
    log-probability."""
    named = {
        name: torch.where(mask, value, 0) for name, value in inputs.items() if value is not None
    }
    token_kl = named.get("token_kl")
    if token_kl is not None:
        token_kl = token_kl.detach().to(torch.promote_types(token_kl.dtype, torch.float32))
    dtype = torch.promote_types(named["log_prob"].dtype, torch.float32)
    advantages = named["advantages"].to(dtype)
    log_prob = named["log_prob"].to(dtype).clamp_(min=LOG_PROB_FLOOR)
    old = named["old_log_prob"].to(dtype).clamp_(min=LOG_PROB_FLOOR)
    log_w = log_prob - old
    if "ref_log_prob" not in named:
        x = TokenInputs(mask, log_prob, advantages, log_w, d=log_w, log_v=None, token_kl=token_kl)
        return x, _highest(log_prob, old)
    ref = named["ref_log_prob"].to(dtype).clamp_(min=LOG_PROB_FLOOR)
    d = log_prob - ref
    x = TokenInputs(mask, log_prob, advantages, log_w, d, log_v=ref - old, token_kl=token_kl)
    return x, _highest(log_prob, old, ref)


def _highest(*log_probs: Tensor) -> Tensor:
    """The largest entry of several tensors, which may be empty."""
    return torch.stack([x.amax() if x.numel() else x.sum() for x in log_probs]).max()


# --- metrics

_TOTALS = ("loss", "tokens")
_TOKEN_MEANS = (
    "kl_old_to_policy",
    "kl_policy_to_old",
    "kl_ref_to_policy",
    "kl_policy_to_ref",
    *(f"clip_fraction_{name}" for name in CLIPS),
)
"""Each becomes the metric of its name: its sum over the tokens, divided by their number."""
_RATIO_SUMS = ("ratios", "ratio", "ratio_squared")
"""Number, sum and sum of squares of the ratios: `ratio_count`, `ratio_mean` and `ess`."""
_SUMS = (*_TOTALS, *_TOKEN_MEANS, *_RATIO_SUMS)
"""What _measure sums over the tokens of a batch, in the order of its tensor."""


def _measure(x: TokenInputs, token: TokenLoss, loss: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of _SUMS over unmasked tokens, and the largest ratio; nothing leaves the device.

    KL(p || q) = E_p[q/p - 1 - log(q/p)] (paper, Appendix D), its expectation carried over to
    samples from the old policy.
    """
    zero = torch.zeros_like(loss)
    named = {"loss": loss, "tokens": x.mask.sum()}

    w = bounded_exp(x.log_w)
    named["kl_old_to_policy"] = k3(x.log_w).sum()
    named["kl_policy_to_old"] = (w * k3(-x.log_w)).sum()
    if x.log_v is None:  # the reference is the old policy
        named["kl_ref_to_policy"] = named["kl_old_to_policy"]
        named["kl_policy_to_ref"] = named["kl_policy_to_old"]
    else:
        named["kl_ref_to_policy"] = (bounded_exp(x.log_v) * k3(x.d)).sum()
        named["kl_policy_to_ref"] = (w * k3(-x.d)).sum()

    one_per_response = token.ratio.shape != x.mask.shape
    counted = x.mask.any(-1, keepdim=True) if one_per_response else x.mask
    ratio = torch.where(counted, token.ratio, 0)
    named["ratios"] = counted.sum()
    named["ratio"] = ratio.sum()
    named["ratio_squared"] = (ratio * ratio).sum()

    for name in CLIPS:
        cut = token.cuts.get(name)
        named[f"clip_fraction_{name}"] = zero if cut is None else (cut & x.mask).sum()

    assert named.keys() == set(_SUMS), "a sum is not declared, or a declared one is not measured"
    sums = torch.stack([named[name].to(loss.dtype) for name in _SUMS])
    return sums, ratio.max() if ratio.numel() else zero


def _metrics(sums: dict[str, float], ratio_max: float) -> dict[str, float]:
    tokens = max(sums["tokens"], 1.0)
    ratios = max(sums["ratios"], 1.0)
    metrics = {"loss": sums["loss"]}
    for name in _TOKEN_MEANS:
        metrics[name] = sums[name] / tokens
    metrics["clip_fraction"] = sum(metrics[f"clip_fraction_{kind}"] for kind in CLIPS)
    metrics["ratio_count"] = sums["ratios"]
    metrics["ratio_mean"] = sums["ratio"] / ratios
    metrics["ratio_max"] = ratio_max
    squared = sums["ratio_squared"]
    metrics["ess"] = sums["ratio"] ** 2 / (ratios * squared) if squared > 0 else 0.0
    return metrics


# --- clear errors


def _require_token_kl(algo: Algorithm, token_kl: Tensor | None) -> None:
    """Raises ValueError: the divergence of whole distributions is missing, or not asked for."""
    wanted = algo.reads_distributions
    setting = f"token_kl: {algo.name} has kl {algo.kl.type} and beta {algo.beta:g}"
    if wanted and token_kl is None:
        raise ValueError(f"{setting}; pass rpg.distribution_kl(...)")
    if not wanted and token_kl is not None:
        raise ValueError(f"{setting}; only kl of type distribution, or centred, has one")


def _check_shapes(inputs: dict[str, Tensor], mask: Tensor, rollout_weights: Tensor | None) -> None:
    log_prob = inputs["log_prob"]
    shape = tuple(log_prob.shape)
    if len(shape) != 2:
        raise ValueError(f"log_prob: shape {shape}, accepted: (responses, tokens)")
    if not log_prob.is_floating_point():
        raise ValueError(f"log_prob: dtype {log_prob.dtype}, accepted: a floating-point type")
    for name, value in {**inputs, "response_mask": mask}.items():
        if tuple(value.shape) != shape:
            raise ValueError(f"{name}: shape {tuple(value.shape)}, accepted: {shape} like log_prob")
    if rollout_weights is not None and tuple(rollout_weights.shape) not in (shape, (shape[0], 1)):
        weights_shape = tuple(rollout_weights.shape)
        raise ValueError(
            f"rollout_weights: shape {weights_shape}, accepted: {shape} or {(shape[0], 1)}"
        )


def _explain_not_finite(loss: float, inputs: dict[str, Tensor], mask: Tensor) -> FloatingPointError:
    for name, value in inputs.items():
        infinite = value == float("inf") if name.endswith("log_prob") else value.isinf()
        bad = (mask & (value.isnan() | infinite)).nonzero()
        if len(bad):
            row, token = bad[0].tolist()
            entry = f"{name}[{row}, {token}] is {value[row, token].item()}"
            return FloatingPointError(
                f"{entry}; {len(bad)} unmasked entries of it are NaN or infinite"
            )
    why = "advantages or rollout_weights are too large or not finite"
    return FloatingPointError(f"the loss is {loss}: {why}")


def _warn_of_positive(inputs: dict[str, Tensor], mask: Tensor) -> None:
    """A warning and no error: only differences enter the loss, and a measure with a mass above 1
    has positive ones."""
    for name, value in inputs.items():
        bad = (mask & (value > POSITIVE)).nonzero()
        if name.endswith("log_prob") and len(bad):
            row, token = bad[0].tolist()
            likely = "is a sign wrong?"
            if value[mask].min() >= 0:
                likely = "are they probabilities? Pass their logarithm"
            warnings.warn(
                f"{name}[{row}, {token}] is {value[row, token].item():.4g}, expected the "
                "natural logarithm of a "
                f"probability, at most 0; {len(bad)} unmasked entries are above: {likely}",
                stacklevel=3,
            )


def rollout_weights(
    setting: RolloutCorrection,
    *,
    old_log_prob: Tensor,
    sampler_log_prob: Tensor,
    response_mask: Tensor,
) -> Tensor | None:
    """The `rollout_weights` of :func:`rpg.policy_loss`; None for `none` and `ignore`.

    old_log_prob, sampler_log_prob (B, T): log-probabilities of the sampled tokens under the old
    policy (here: before the step's updates) and under the sampler, as the engine computed them
    while it drew (the table above RolloutCorrection); response_mask (B, T): non-zero where a token
    counts. Returns (B, T) for level token, (B, 1) for level sequence, whose ratio is the product
    over a response. Precision and errors: as there.
    """
    if setting.type == "none" or setting.type == "ignore":
        return None
    with torch.no_grad():
        mask = response_mask != 0
        dtype = torch.promote_types(old_log_prob.dtype, torch.float32)
        old = old_log_prob.to(dtype).clamp(min=LOG_PROB_FLOOR)
        sampler = sampler_log_prob.to(dtype).clamp(min=LOG_PROB_FLOOR)
        log_ratio = torch.where(mask, old - sampler, 0)
        if not log_ratio.isfinite().all():
            # A comparison with a bound would take NaN for outside of it.
            inputs = {"old_log_prob": old_log_prob, "sampler_log_prob": sampler_log_prob}
            raise _explain_not_finite(float("nan"), inputs, mask)
        if isinstance(setting, RejectedSamples):
            return _kept(setting, log_ratio, mask).to(log_ratio.dtype)
        if isinstance(setting, SecondMoment):
            kept = _within_second_moment(log_ratio.square(), mask, setting.high)
            return torch.where(kept, bounded_exp(log_ratio), 0)
        if setting.level == "sequence":
            log_ratio = log_ratio.sum(-1, keepdim=True)
        ratio = bounded_exp(log_ratio)
        if isinstance(setting, TruncatedWeights):
            return ratio.clamp(max=setting.cap)
        return torch.where((ratio >= setting.low) & (ratio <= setting.high), ratio, 0)


def _kept(setting: RejectedSamples, log_ratio: Tensor, mask: Tensor) -> Tensor:
    """What is not rejected: (B, T) bool of tokens, or (B, 1) of responses."""
    measure = log_ratio
    if setting.by != "k1":
        measure = torch.where(mask, estimator(setting.by, -log_ratio)[0], 0)
    if setting.level in ("sum", "mean"):
        length = mask.sum(-1, keepdim=True).clamp(min=1) if setting.level == "mean" else 1
        measure = measure.sum(-1, keepdim=True) / length
    if setting.by == "k1":
        ratio = bounded_exp(measure)
        kept = (ratio >= setting.low) & (ratio <= setting.high)
    else:
        kept = measure <= setting.high
    return (kept | ~mask).all(-1, keepdim=True) if setting.level == "all" else kept


def _within_second_moment(squares: Tensor, mask: Tensor, high: float) -> Tensor:
    """The tokens (B, T) bool that are left when the largest `squares` are dropped, until the mean
    of the others is below `high`; at least one."""
    order = torch.where(mask, squares, torch.inf).flatten().sort()
    count = int(mask.sum())
    smallest = order.values[:count]
    means = smallest.cumsum(0) / torch.arange(1, count + 1, device=smallest.device)
    # Each further token is larger than the mean so far, so the means never fall.
    kept = max(1, int((means < high).sum())) if count else 0
    within = torch.zeros_like(mask).flatten()
    within[order.indices[:kept]] = True
    return within.view_as(mask)


def weight_metrics(
    setting: RolloutCorrection, weights: Tensor, response_mask: Tensor
) -> dict[str, float]:
    """Statistics of :func:`rollout_weights`: the mean, the effective sample size as a fraction of
    their number, and the share that was truncated or masked to zero. Over tokens, or over responses
    for level sequence.
    """
    counted = response_mask != 0
    if weights.shape != counted.shape:
        counted = counted.any(-1, keepdim=True)
    held = weights[counted].double()
    n = max(1, held.numel())
    total = float(held.sum())
    squares = float((held * held).sum())
    bound = setting.cap if isinstance(setting, TruncatedWeights) else 0.0
    is_bounded = held == torch.tensor(bound, dtype=weights.dtype)
    return {
        "rollout_weight_mean": total / n,
        "rollout_weight_ess": total * total / (n * squares) if squares else 0.0,
        "rollout_weight_bounded": float(is_bounded.sum()) / n,
    }


@dataclass(frozen=True)
class LossInputs:
    """Arguments of :func:`policy_loss`, by their names."""

    old_log_prob: Tensor
    ref_log_prob: Tensor | None
    advantages: Tensor
    response_mask: Tensor
    rollout_weights: Tensor | None = None
    counts: Counts | None = None

    def loss(
        self, algorithm: Algorithm, log_prob: Tensor, token_kl: Tensor | None = None
    ) -> LossOutput:
        return policy_loss(
            algorithm,
            log_prob=log_prob,
            old_log_prob=self.old_log_prob,
            advantages=self.advantages,
            response_mask=self.response_mask,
            ref_log_prob=self.ref_log_prob,
            rollout_weights=self.rollout_weights,
            token_kl=token_kl,
            counts=self.counts,
        )

    def slope(self, algorithm: Algorithm, log_prob: Tensor) -> Tensor:
        """The derivative of the loss with respect to `log_prob` (N, T), a leaf."""
        leaf = log_prob.requires_grad_()
        return torch.autograd.grad(self.loss(algorithm, leaf).loss, leaf)[0]
