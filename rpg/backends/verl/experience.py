"""What an update trains on: advantages, old policy, reference and weights, and the rows of each
mini-batch on each worker.

Pure functions. Tensors have verl's names; shapes: N responses (rows, padding included), T response
tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rpg.backends.gaps import gap_metrics
from rpg.backends.verl.job_settings import JobSettings
from rpg.losses.advantages import advantages, positive_lm_weights, value_targets
from rpg.losses.policy_loss import rollout_weights, weight_metrics
from rpg.models import seeds


def experience(
    settings: JobSettings, fields: Mapping[str, Tensor], prompts: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """(fields to add or replace, metrics of the sampler by the project's names).

    fields, (N, T) each: `response_mask`; `rm_scores`, whose sum over a row is its reward;
    `rollout_log_probs` under the sampler, the policy that drew the responses; `old_log_probs` under
    the policy before the step's updates; `ref_log_prob` where the reference has its own weights;
    `values` where there is a critic. `correct` (N,). prompts: the name of each row's prompt; rows
    of one name are a group.

    The table above RolloutCorrection in rpg/catalogue/components.py says which policy is the old
    one. A reference that has just been renewed is the policy before the updates.
    """
    algorithm = settings.algorithm
    mask = fields["response_mask"]
    sampler = fields["rollout_log_probs"]
    before = fields["old_log_probs"]
    correction = algorithm.rollout_correction
    old_is_sampler = settings.staleness > 0 and correction.type == "none"
    old = sampler if old_is_sampler else before
    reference = fields.get("ref_log_prob")
    if reference is None and algorithm.needs_reference:
        reference = before

    real = mask.any(-1)  # rows that are not padding
    groups = {name: number for number, name in enumerate(dict.fromkeys(prompts))}
    group = torch.tensor([groups[name] for name in prompts])
    critic_values = fields.get("values")
    inputs: dict[str, Any] = {
        "rewards": fields["rm_scores"].sum(-1)[real],
        "group": group[real],
        "response_mask": mask[real],
        "old_log_prob": old[real],
        "ref_log_prob": None if reference is None else reference[real],
        "values": None if critic_values is None else critic_values[real],
        "log_prob": before[real],
    }
    padding = torch.zeros_like(fields["rm_scores"])
    real_advantages = advantages(algorithm, **inputs)
    written = {"advantages": padding.index_put((real,), real_advantages)}
    written["returns"] = written["advantages"]
    if critic_values is not None:
        written["returns"] = padding.index_put((real,), value_targets(algorithm, **inputs))
    written["response_mask"] = mask
    if old_is_sampler:
        written["old_log_probs"] = old
        if reference is not None:
            written["ref_log_prob"] = reference
    lm_weights = positive_lm_weights(algorithm, fields["correct"], mask)
    if lm_weights is not None:
        written["lm_weights"] = lm_weights

    metrics = gap_metrics("kl_sampler_to_policy", _log_ratio(before, sampler), mask != 0)
    weights = rollout_weights(
        correction, old_log_prob=old, sampler_log_prob=sampler, response_mask=mask
    )
    if weights is not None:
        written["rollout_is_weights"] = weights.expand_as(old).contiguous()
        metrics |= weight_metrics(correction, weights, mask)
    return written, metrics


def _log_ratio(before: Tensor, sampler: Tensor) -> Tensor:
    """log(policy / sampler) of each token; zero within float32's rounding, where they differ by
    which requests a server happened to decode together."""
    log_ratio = before - sampler
    rounding = 16 * torch.finfo(torch.float32).eps * (1 + before.abs())
    return torch.where(log_ratio.abs() <= rounding, 0.0, log_ratio)


def arrange(
    settings: JobSettings, step: int, groups: int, lengths: Sequence[int], workers: int
) -> tuple[list[int], list[int]]:
    """(order of rows, rows of each mini-batch on one worker).

    lengths: tokens of each row; rows come by groups, then any padding that makes their number a
    multiple of `workers`. verl gives each worker an equal slice of the ordered rows, so all
    mini-batches of worker 0 come first, then those of worker 1. Within a mini-batch the workers get
    about the same number of tokens.
    """
    size = settings.group_size
    group_order = seeds.permutation(groups, settings.seed, "mini-batches", step, 0).tolist()
    shares: list[list[list[int]]] = [[] for _ in range(workers)]
    for start in range(0, groups, settings.mini_batch_prompts):
        chosen = sorted(group_order[start : start + settings.mini_batch_prompts])
        rows = [group * size + i for group in chosen for i in range(size)]
        if start + settings.mini_batch_prompts >= groups:
            rows += range(groups * size, len(lengths))
        for worker, part in enumerate(_deal(rows, lengths, workers)):
            shares[worker].append(part)
    order = [row for share in shares for part in share for row in part]
    return order, [len(part) for part in shares[0]]


def mini_batch_order(settings: JobSettings, step: int, epoch: int, mini_batches: int) -> list[int]:
    """The order of the mini-batches in an epoch (from 0); they stay the same, since rows do not
    change workers."""
    if epoch == 0:
        return list(range(mini_batches))
    return list(
        seeds.permutation(mini_batches, settings.seed, "mini-batch order", step, epoch).tolist()
    )


def _deal(rows: list[int], lengths: Sequence[int], workers: int) -> list[list[int]]:
    """Deal rows to workers, the longest first and in alternating directions: each gets as many
    rows and about as many tokens."""
    hands: list[list[int]] = [[] for _ in range(workers)]
    for place, row in enumerate(sorted(rows, key=lambda r: -lengths[r])):
        lap, seat = divmod(place, workers)
        hands[seat if lap % 2 == 0 else workers - 1 - seat].append(row)
    return [sorted(hand) for hand in hands]
