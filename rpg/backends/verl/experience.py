"""What the loss reads besides the log-probabilities of the policy in training: advantages, old policy, reference, weights.

Pure functions of tensors, by verl's names for them. Shapes: N responses (rows, padding included), T response tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rpg.backends.verl.job_settings import JobSettings
from rpg.losses.advantages import advantages
from rpg.losses.correction import rollout_weights, weight_metrics
from rpg.losses.kl_terms import k3


def experience(
    settings: JobSettings, fields: Mapping[str, Tensor], prompts: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """(fields to add or replace, metrics of the sampler by the project's names).

    fields, (N, T) each: `response_mask`; `rm_scores`, whose sum over a row is its reward; `rollout_log_probs` under the
    policy that sampled; `old_log_probs` under the policy as the step begins; `ref_log_prob` where the reference has
    its own weights. prompts: the name of each row's prompt; rows of one name are a group.

    Without `rollout_correction`, responses sampled `staleness` rollouts ago are trained on with the log-probabilities of the
    policy that sampled each token. A reference that has just been renewed is the policy as the step begins.
    """
    algorithm = settings.algorithm
    mask, drawn, begin = (fields[name] for name in ("response_mask", "rollout_log_probs", "old_log_probs"))
    is_exact = settings.staleness > 0 and algorithm.rollout_correction.type == "none"
    old = drawn if is_exact else begin
    reference = fields.get("ref_log_prob")
    if reference is None and is_exact and algorithm.needs_reference:
        reference = begin
    real = mask.any(-1)
    groups = {name: number for number, name in enumerate(dict.fromkeys(prompts))}
    values = torch.zeros_like(fields["rm_scores"])
    values[real] = advantages(
        algorithm,
        rewards=fields["rm_scores"].sum(-1)[real],
        group=torch.tensor([groups[name] for name in prompts])[real],
        response_mask=mask[real],
        old_log_prob=old[real],
        ref_log_prob=None if reference is None else reference[real],
    )
    written = {"advantages": values, "returns": values, "response_mask": mask}
    if is_exact:
        written["old_log_probs"] = old
        if reference is not None:
            written["ref_log_prob"] = reference
    counted = mask != 0
    kl = torch.where(counted, k3(begin - drawn), 0).sum() / counted.sum().clamp(min=1)
    metrics = {"kl_sampler_to_policy": float(kl)}
    weights = rollout_weights(
        algorithm.rollout_correction, old_log_prob=old, sampler_log_prob=drawn, response_mask=mask
    )
    if weights is not None:
        written["rollout_is_weights"] = weights.expand_as(old).contiguous()
        metrics |= weight_metrics(algorithm.rollout_correction, weights, mask)
    return written, metrics
