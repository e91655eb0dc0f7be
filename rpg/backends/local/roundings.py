"""How far apart the roundings of one policy are.

A policy in bfloat16 exists several times: as it is trained, as it samples (by other kernels), as it
is exported (the files of a checkpoint) and as these are evaluated. What the sampler's kernels and
weights make of it is measured at every step, from the log-probabilities that it computed while it
drew (`kl_sampler_to_policy`). Here, where a checkpoint is written, the weights that are trained,
in float32 arithmetic, are compared with those that are exported, in the same arithmetic, and with
those that are evaluated, in bfloat16 arithmetic.

Shapes: N responses (rows), T response tokens.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from rpg.backends.gaps import gap_metrics
from rpg.models.decoding import Batch
from rpg.models.lora import adapters, base_weights, without_wrapper
from rpg.models.micro_batches import Limits, score
from rpg.models.policy import Policy

TOKENS = 2_000
"""Response tokens on which exported and trained weights are compared."""


def export_gap(
    policy: Policy,
    trained: Mapping[str, Tensor],
    exported: Mapping[str, Tensor],
    batch: Batch,
    temperature: float,
    limits: Limits,
) -> dict[str, float]:
    """KL(trained || exported) and KL(trained || evaluated) per token on the first responses of
    `batch`, with their errors. The first is missing where these weights are the same bits, both
    where a GPU has no room for the model in float32.

    Our evaluation multiplies with the same rounded weights as `policy` does, by the same kernels.

    trained, exported: whole weights by name, adapters merged. The responses are the policy's own,
    drawn by its rounded weights.
    """
    if not _fits(policy):
        return {}
    part = first_rows(batch)
    model = copy.deepcopy(policy.model).requires_grad_(False).float()
    of_adapters = adapters(model)
    for value in of_adapters.values():
        value.zero_()
    plain = Policy(model, policy.tokenizer, lean=policy.lean)
    own = base_weights(model)
    names = {without_wrapper(name) for name, _ in model.named_parameters()}  # tied weights once

    def scored(weights: Mapping[str, Tensor]) -> Tensor:
        with torch.no_grad():
            for name in names & weights.keys():
                own[name].copy_(weights[name])
        return score(plain, part, temperature, limits)

    log_prob = scored(trained)
    evaluated = score(policy, part, temperature, limits)
    gaps = gap_metrics("kl_trained_to_evaluated", evaluated - log_prob, part.mask)
    if not _same_bits(trained, exported):
        gaps |= gap_metrics("kl_trained_to_exported", scored(exported) - log_prob, part.mask)
    return gaps


def _same_bits(weights: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    return all(value.equal(others[name]) for name, value in weights.items() if name in others)


def _fits(policy: Policy) -> bool:
    """Whether a GPU has room for the model in float32 and for a pass; on a CPU it is not asked."""
    if policy.device.type != "cuda":
        return True
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(policy.device)
    needed = 4 * sum(weight.numel() for weight in policy.model.parameters())
    return bool(free > 1.25 * needed + 2**31)


def first_rows(batch: Batch) -> Batch:
    """The first responses, with about TOKENS tokens together."""
    ends = batch.lengths.cumsum(0)
    rows = int((ends < TOKENS).sum()) + 1
    return batch.rows(torch.arange(min(rows, len(batch)), device=ends.device))
