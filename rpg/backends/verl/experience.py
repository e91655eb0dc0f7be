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
    `rollout_log_probs` under the policy that sampled; `old_log_probs` under the policy as the step
    begins; `ref_log_prob` where the reference has its own weights; `values` where there is a
    critic. `correct` (N,). prompts: the name of each row's prompt; rows of one name are a group.

    Without `rollout_correction`, responses sampled `staleness` rollouts ago are trained on with the
    log-probabilities of the policy that sampled each token. A reference that has just been renewed
    is the policy as the step begins.
    """
    algorithm = settings.algorithm
    mask, drawn, begin = (
        fields[name] for name in ("response_mask", "rollout_log_probs", "old_log_probs")
    )
    correction = algorithm.rollout_correction
    is_exact = settings.staleness > 0 and correction.type == "none"
    old = drawn if is_exact else begin
    reference = fields.get("ref_log_prob")
    if reference is None and algorithm.needs_reference:
        reference = begin
    real = mask.any(-1)
    groups = {name: number for number, name in enumerate(dict.fromkeys(prompts))}
    group = torch.tensor([groups[name] for name in prompts])
    given: dict[str, Tensor | None] = {"rewards": fields["rm_scores"].sum(-1), "group": group}
    given |= {"response_mask": mask, "old_log_prob": old}
    given |= {"ref_log_prob": reference, "values": fields.get("values")}
    inputs: dict[str, Any] = {name: None if x is None else x[real] for name, x in given.items()}
    padding = torch.zeros_like(fields["rm_scores"])
    values = padding.index_put((real,), advantages(algorithm, **inputs))
    returns = (
        padding.index_put((real,), value_targets(algorithm, **inputs))
        if "values" in fields
        else values
    )
    written = {"advantages": values, "returns": returns, "response_mask": mask}
    if is_exact:
        written["old_log_probs"] = old
        if reference is not None:
            written["ref_log_prob"] = reference
    counted = mask != 0
    apart = begin - drawn
    # Within float32's rounding they differ by which requests a server happened to decode together:
    # that is no distance.
    apart = torch.where(
        apart.abs() <= 16 * torch.finfo(torch.float32).eps * (1 + begin.abs()), 0.0, apart
    )
    metrics = gap_metrics("kl_sampler_to_policy", apart, counted)
    weights = rollout_weights(
        correction, old_log_prob=old, sampler_log_prob=drawn, response_mask=mask
    )
    lm_weights = positive_lm_weights(algorithm, fields["correct"], mask)
    if lm_weights is not None:
        written["lm_weights"] = lm_weights
    if weights is not None:
        written["rollout_is_weights"] = weights.expand_as(old).contiguous()
        metrics |= weight_metrics(correction, weights, mask)
    return written, metrics


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
    drawn = seeds.permutation(groups, settings.seed, "mini-batches", step, 0).tolist()
    shares: list[list[list[int]]] = [[] for _ in range(workers)]
    for start in range(0, groups, settings.mini_batch_prompts):
        chosen = sorted(drawn[start : start + settings.mini_batch_prompts])
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
    """As many rows for each worker and about as many tokens: dealt longest first, in alternating
    directions."""
    hands: list[list[int]] = [[] for _ in range(workers)]
    for place, row in enumerate(sorted(rows, key=lambda r: -lengths[r])):
        lap, seat = divmod(place, workers)
        hands[seat if lap % 2 == 0 else workers - 1 - seat].append(row)
    return [sorted(hand) for hand in hands]
