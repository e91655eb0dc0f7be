"""Weights for samples from another policy than the one whose log-probabilities are `old_log_prob`.

The sampler is a cheaper copy of the policy (another precision, another engine) or an earlier policy; a training step starts
at `old`. With the sampler's log-probabilities as `old_log_prob`, the ratio of the loss is exact and no weights are needed.
With those of `old`, the clip is centred where the step starts, and old / sampler remains as a weight (Hilton et al. 2021,
arXiv 2110.00641, section 3). `rpg audit` shows what each choice costs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rpg.catalogue import ExactRatio, IgnoreSampler, RolloutCorrection, TruncatedWeights
from rpg.losses.kl_terms import bounded_exp


def rollout_weights(
    setting: RolloutCorrection, *, old_log_prob: Tensor, sampler_log_prob: Tensor, response_mask: Tensor
) -> Tensor | None:
    """The `rollout_weights` of :func:`rpg.policy_loss`; None for `none` and `ignore`.

    old_log_prob, sampler_log_prob (B, T): log-probabilities of the sampled tokens under the policy at the beginning of
    the step and under the one that drew them; response_mask (B, T): non-zero where a token counts. Returns (B, T) for
    level token, (B, 1) for level sequence, whose ratio is the product over a response.
    """
    if isinstance(setting, ExactRatio | IgnoreSampler):
        return None
    with torch.no_grad():
        log_ratio = torch.where(response_mask != 0, old_log_prob - sampler_log_prob, 0)
        if setting.level == "sequence":
            log_ratio = log_ratio.sum(-1, keepdim=True)
        ratio = bounded_exp(log_ratio)
        if isinstance(setting, TruncatedWeights):
            return ratio.clamp(max=setting.cap)
        return torch.where((ratio >= setting.low) & (ratio <= setting.high), ratio, 0)


def weight_metrics(setting: RolloutCorrection, weights: Tensor, response_mask: Tensor) -> dict[str, float]:
    """Statistics of :func:`rollout_weights`: the mean, the effective sample size as a fraction of their number, and the
    share that was truncated or masked to zero. Over tokens, or over responses for level sequence.
    """
    counted = response_mask != 0
    if weights.shape != counted.shape:
        counted = counted.any(-1, keepdim=True)
    held = weights[counted].double()
    n = max(1, held.numel())
    total, squares = float(held.sum()), float((held * held).sum())
    cap = setting.cap if isinstance(setting, TruncatedWeights) else 0.0
    return {
        "rollout_weight_mean": total / n,
        "rollout_weight_ess": total * total / (n * squares) if squares else 0.0,
        "rollout_weight_bounded": float((held == torch.tensor(cap, dtype=weights.dtype)).sum()) / n,
    }
