"""How far apart the roundings of one policy are.

A policy in bfloat16 exists several times: as it is trained, as it samples (by other kernels), as it
is exported (the files of a checkpoint) and as these are evaluated. What the sampler's kernels and
weights make of it is measured at every step, from the log-probabilities that it computed while it
drew (`kl_sampler_to_policy`). Here the weights that are exported are compared with those that are
trained, both in float32 arithmetic, where a checkpoint is written.

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


def rounding_floor(log_prob: Tensor, mask: Tensor, bfloat16: bool) -> float:
    """The KL per token that rounding alone makes of two equal policies: half the mean square of an
    error that is uniform within one unit in the last place of a logit.

    A logit is about as large as the log-probabilities, and has 8 significant bits in bfloat16 and
    24 in float32. A KL below this floor is noise.
    """
    eps = torch.finfo(torch.bfloat16 if bfloat16 else torch.float32).eps
    size = log_prob[mask].abs().clamp(min=1.0).double()
    return float((eps * size).square().mean() / 24)


def export_gap(
    policy: Policy,
    trained: Mapping[str, Tensor],
    exported: Mapping[str, Tensor],
    batch: Batch,
    temperature: float,
    limits: Limits,
) -> dict[str, float]:
    """KL(trained || exported) per token on the first responses of `batch`, with its error; none
    where these weights are the same bits, or a GPU has no room for the model in float32.

    trained, exported: whole weights by name, adapters merged. The responses are the policy's own,
    drawn by its rounded weights.
    """
    if all(value.equal(exported[name]) for name, value in trained.items() if name in exported):
        return {}
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

    log_ratio = -scored(trained) + scored(exported)
    return gap_metrics("kl_trained_to_exported", log_ratio, part.mask)


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
