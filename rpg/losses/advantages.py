"""Advantages: from one reward per response to (B, T), for every estimator of the catalogue.

Shapes: B responses (rows), T token positions. Standard deviations are the unbiased ones (n - 1)
plus EPSILON, as in verl (TRL: 1e-4). Groups need not be contiguous nor of equal size.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rpg.catalogue import GAE, Advantage, Algorithm, RewardKL, TowardsTarget
from rpg.losses.aggregation import Counts, aggregate
from rpg.losses.kl_terms import estimator

EPSILON = 1e-6


def advantages(
    algo: Algorithm,
    *,
    rewards: Tensor,
    group: Tensor,
    response_mask: Tensor,
    old_log_prob: Tensor | None = None,
    ref_log_prob: Tensor | None = None,
    values: Tensor | None = None,
    log_prob: Tensor | None = None,
) -> Tensor:
    """Advantages of `algo`, (B, T), zero where masked; float64 for float64 rewards, float32
    otherwise.

    rewards (B,): one per response. group (B,): integers, equal for responses to the same prompt.
    response_mask (B, T): non-zero where a token counts. old_log_prob and ref_log_prob (B, T) are
    read when `algo.kl` is of type reward (ref_log_prob=None only where the reference is `old`: that
    KL is zero), old_log_prob also by advantage target, with log_prob (B, T), that of the policy at
    this optimizer step (None: still the old one); values (B, T) by gae only. A group of one
    response, or of equal rewards, has advantage zero exactly (towards a target: until the policy
    moves); a warning says so where every group is one response. Raises TypeError for what is no
    tensor or no algorithm, ValueError for wrong shapes, FloatingPointError for rewards that are not
    finite.
    """
    optional = {
        "old_log_prob": old_log_prob,
        "ref_log_prob": ref_log_prob,
        "values": values,
        "log_prob": log_prob,
    }
    require_types(
        algo, {"rewards": rewards, "group": group, "response_mask": response_mask, **optional}
    )
    if algo.kl.type == "reward":
        require_reference(algo, ref_log_prob)
    mask = response_mask != 0
    _check_rewards(rewards, group, mask)
    dtype = torch.float64 if rewards.dtype == torch.float64 else torch.float32
    with torch.no_grad():
        reward = rewards.detach().double() * algo.rewarded
        penalty = _reward_kl(algo, mask, old_log_prob, ref_log_prob)
        kind = algo.advantage
        if kind.type == "gae":
            result = _gae(kind, reward, penalty, values, mask)
            if kind.std:
                result = _whiten(result, mask, scale=True)
        elif kind.type == "batch":  # the outcome comes with the last token, the KL with each
            result = reward[:, None] - penalty.flip(-1).cumsum(-1).flip(-1)
            result = _whiten(result, mask, scale=kind.std)
        elif isinstance(kind, TowardsTarget):
            if old_log_prob is None:
                raise ValueError(f"old_log_prob: {algo.name} has advantage target, and needs it")
            old = _of_responses(old_log_prob, mask)
            now = old if log_prob is None else _of_responses(log_prob, mask)
            result = _towards_target(kind, reward - penalty.sum(-1), group, old, now)
            result = result[:, None].expand(mask.shape)
        else:
            result = _per_response(kind, reward - penalty.sum(-1), group, mask.sum(-1))
            result = result[:, None].expand(mask.shape)
            if kind.type == "group_then_batch":
                result = _whiten(result, mask, scale=True)
        return torch.where(mask, result, 0).to(dtype)


def _check_rewards(rewards: Tensor, group: Tensor, mask: Tensor) -> None:
    if mask.ndim != 2:
        raise ValueError(f"response_mask: shape {tuple(mask.shape)}, accepted: (responses, tokens)")
    rows = mask.shape[0]
    for name, value in (("rewards", rewards), ("group", group)):
        if tuple(value.shape) != (rows,):
            raise ValueError(
                f"{name}: shape {tuple(value.shape)}, accepted: ({rows},), one per response"
            )
    if not rewards.isfinite().all():
        row = int((~rewards.isfinite()).nonzero()[0])
        raise FloatingPointError(
            f"rewards[{row}] is {rewards[row].item()}, accepted: finite numbers"
        )


def value_targets(algo: Algorithm, *, values: Tensor, **inputs: Any) -> Tensor:
    """What a critic of `algo`, whose advantage is of type gae, learns: values (B, T) plus its
    advantages, with `critic_lam` and not whitened, (B, T). The other inputs are those of
    :func:`advantages`.
    """
    assert isinstance(algo.advantage, GAE)
    lam = algo.advantage.lam if algo.advantage.critic_lam is None else algo.advantage.critic_lam
    kind = algo.advantage.model_copy(update={"lam": lam, "std": False})
    critic_advantages = advantages(
        algo.model_copy(update={"advantage": kind}), values=values, **inputs
    )
    return torch.where(inputs["response_mask"] != 0, values + critic_advantages, 0)


def value_loss(
    values: Tensor,
    *,
    old_values: Tensor,
    targets: Tensor,
    response_mask: Tensor,
    clip: float | None,
    counts: Counts | None = None,
) -> Tensor:
    """PPO's clipped value loss, a mean over tokens, differentiable in `values`; all (B, T).
    `old_values`: before the step's updates; `clip`: catalogue.GAE's value_clip; `counts` as of
    :func:`aggregate`.
    """
    error = (values - targets) ** 2
    if clip is not None:
        kept = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.maximum(error, (kept - targets) ** 2)
    return 0.5 * aggregate(error, response_mask, "token-mean", counts)


def positive_lm_weights(algo: Algorithm, correct: Tensor, response_mask: Tensor) -> Tensor | None:
    """Weights (B, T) of -log_prob, whose mean over all tokens of the rollout is to be added to the
    loss: mu times VAPO's L_NLL, the mean of -log_prob over the tokens of right responses (arXiv
    2504.05118). None where mu is zero.

    correct (B,): non-zero for right responses; response_mask (B, T): non-zero where a token counts.
    """
    if not algo.positive_lm_loss:
        return None
    mask = response_mask != 0
    right = (mask & (correct != 0)[:, None]).to(torch.float32)
    return algo.positive_lm_loss * right * mask.sum() / right.sum().clamp(min=1)


def require_types(algo: object, tensors: Mapping[str, object]) -> None:
    """Raises TypeError: `algo` is no algorithm, or one of the named values is neither a tensor nor
    None."""
    if not isinstance(algo, Algorithm):
        meant = "what rpg.algorithm(...) returns"
        if isinstance(algo, str):
            meant = f"rpg.algorithm({algo!r})"
        raise TypeError(f"algo: {type(algo).__name__} {algo!r:.60}, accepted: {meant}")
    for name, value in tensors.items():
        if not isinstance(value, Tensor | None):
            raise TypeError(
                f"{name}: {type(value).__module__}.{type(value).__name__}, accepted: torch.Tensor, "
                f"e.g. torch.as_tensor({name})"
            )


def require_reference(algo: Algorithm, ref_log_prob: Tensor | None) -> None:
    """Raises ValueError if the algorithm needs the log-probabilities of a reference policy and
    there are none."""
    if ref_log_prob is None and algo.needs_reference:
        raise ValueError(
            f"ref_log_prob: {algo.name} has its KL to another reference policy than old "
            f"(reference: {algo.reference.type}); "
            "pass the log-probabilities of the sampled tokens under it, or old_log_prob "
            "while the two are the same, or "
            'choose rpg.algorithm(..., reference="old")'
        )


def _reward_kl(algo: Algorithm, mask: Tensor, old: Tensor | None, ref: Tensor | None) -> Tensor:
    """beta * k(old, ref) per token, (B, T); zero where the reward has no KL."""
    if not isinstance(algo.kl, RewardKL) or not algo.beta or ref is None:
        return torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
    if old is None:
        why = f"{algo.name} has its KL in the reward and needs it beside ref_log_prob"
        raise ValueError(f"old_log_prob: {why}")
    d = torch.where(mask, old.double() - ref.double(), 0)
    return algo.beta * estimator(algo.kl.estimator, d)[0]


def _per_response(kind: Advantage, reward: Tensor, group: Tensor, lengths: Tensor) -> Tensor:
    """Group baselines, (B,) -> (B,)."""
    if kind.type == "none":
        return reward
    ids, index = torch.unique(group, return_inverse=True)
    if len(reward) > 1 and len(ids) == len(reward):
        warnings.warn(
            f"group: each of the {len(reward)} responses is a group of its own, so that "
            "every advantage is 0 and nothing is learned; give responses to the same prompt "
            "the same number",
            stacklevel=3,
        )
    zeros = reward.new_zeros(len(ids))
    size = zeros.index_add(0, index, torch.ones_like(reward))
    others = (size - 1).clamp(min=1)
    highest = zeros.scatter_reduce(0, index, reward, "amax", include_self=False)
    lowest = zeros.scatter_reduce(0, index, reward, "amin", include_self=False)
    differs = (highest > lowest)[index]

    mean = zeros.index_add(0, index, reward) / size
    if kind.type == "group" and kind.by_length:
        total = zeros.index_add(0, index, lengths.to(reward)).clamp(min=1)
        mean = zeros.index_add(0, index, reward * lengths) / total

    result = reward - mean[index]
    if kind.type == "best_of_group":
        # What the best response has above the second best; nothing where several are best.
        best = reward == highest[index]
        without_best = torch.where(best, lowest[index], reward)
        second = zeros.scatter_reduce(0, index, without_best, "amax", include_self=False)
        alone = zeros.index_add(0, index, best.to(reward))[index] == 1
        result = torch.where(best & alone, highest[index] - second[index], 0)
    if kind.type == "over_mean":
        above = (mean - kind.floor)[index]
        result = torch.where(above > 0, result / above.clamp(min=EPSILON), 0)
    if kind.type == "leave_one_out":
        result = result * (size / others)[index]
    elif kind.type in ("group", "best_of_group") and kind.std:
        variance = zeros.index_add(0, index, (reward - mean[index]) ** 2) / others
        result = result / (variance.sqrt() + EPSILON)[index]
    if kind.type == "group" and kind.rescale:
        result = result * (len(reward) / differs.sum().clamp(min=1))

    return torch.where(differs, result, 0)  # rounding must not turn equal rewards into advantages


def _of_responses(log_prob: Tensor, mask: Tensor) -> Tensor:
    """Log-probabilities of whole responses, (B,)."""
    return torch.where(mask, log_prob.double(), 0).sum(-1)


def _towards_target(
    kind: TowardsTarget, reward: Tensor, group: Tensor, old: Tensor, now: Tensor
) -> Tensor:
    """The group's size times (q - p) of catalogue.TowardsTarget, (B,); `old` and `now` (B,) are
    log-probabilities of responses."""
    ids, index = torch.unique(group, return_inverse=True)
    zeros = reward.new_zeros(len(ids))
    size = zeros.index_add(0, index, torch.ones_like(reward))
    centred = reward - (zeros.index_add(0, index, reward) / size)[index]
    deviation = (zeros.index_add(0, index, centred**2) / size).sqrt()
    # As in its code: equal rewards, up to rounding, tilt nothing.
    score = torch.where(deviation > EPSILON, 1 / deviation, 0)[index] * centred
    target = _softmax_of_groups(old + score / kind.temperature, index, zeros)
    return size[index] * (target - _softmax_of_groups(now, index, zeros))


def _softmax_of_groups(logits: Tensor, index: Tensor, zeros: Tensor) -> Tensor:
    """(B,) normalised over each group; `zeros` has an entry per group."""
    highest = zeros.scatter_reduce(0, index, logits, "amax", include_self=False)
    weights = (logits - highest[index]).exp()
    return weights / zeros.index_add(0, index, weights)[index]


def _whiten(values: Tensor, mask: Tensor, scale: bool) -> Tensor:
    """Minus the mean over unmasked tokens, divided by their standard deviation if `scale`."""
    count = mask.sum().clamp(min=1)
    kept = torch.where(mask, values, 0)
    centred = torch.where(mask, values - kept.sum() / count, 0)
    if mask.sum() == 0 or (values[mask] == values[mask][0]).all():
        return torch.zeros_like(centred)  # rounding must not turn equal rewards into advantages
    if not scale:
        return centred
    variance = (centred * centred).sum() / (count - 1).clamp(min=1)
    return centred / (variance.sqrt() + EPSILON)


def _gae(kind: GAE, reward: Tensor, penalty: Tensor, values: Tensor | None, mask: Tensor) -> Tensor:
    """Schulman et al. 2016, eq. 16: the outcome comes with the last token, the KL with each; masked
    ones are skipped."""
    if values is None:
        raise ValueError(
            "values: advantage type gae needs a critic's values of shape (responses, tokens)"
        )
    if values.shape != mask.shape:
        raise ValueError(f"values: shape {tuple(values.shape)}, accepted: {tuple(mask.shape)}")
    last = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).argmax(-1)
    outcome = reward * mask.any(-1)
    token_rewards = (0 - penalty).scatter_add(1, last[:, None], outcome[:, None])
    baseline = torch.where(mask, values.double(), 0)
    result = torch.zeros_like(token_rewards)
    after = torch.zeros_like(token_rewards[:, 0])
    next_value = after
    for t in reversed(range(mask.shape[1])):
        counts = mask[:, t]
        delta = token_rewards[:, t] + kind.gamma * next_value - baseline[:, t]
        after = torch.where(counts, delta + kind.gamma * kind.lam * after, after)
        next_value = torch.where(counts, baseline[:, t], next_value)
        result[:, t] = after
    return result
