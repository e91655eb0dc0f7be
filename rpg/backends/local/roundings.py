"""How far apart the roundings of one policy are.

A policy in bfloat16 exists several times: as it is trained, as it samples (by other kernels), as it
is exported (the files of a checkpoint) and as these are evaluated. What the sampler's kernels and
weights make of it is measured at every step, from the log-probabilities that it computed while it
drew (`kl_sampler_to_policy`). Here, where a checkpoint is written, the weights that are trained,
in float32 arithmetic, are compared with those that are exported, in the same arithmetic, and with
those that are evaluated, in bfloat16 arithmetic. Adapters that were trained beside a base of 4 bits
are another policy beside the original base: how far that one is, is measured here, too.

Shapes: N responses (rows), T response tokens.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.backends.gaps import gap_metrics
from rpg.backends.local.sampler import Weights
from rpg.models.decoding import Batch
from rpg.models.four_bit import parameter_count, unpack
from rpg.models.lora import adapters, base_weights, merged, without_wrapper
from rpg.models.micro_batches import Limits, score
from rpg.models.policy import Policy

TOKENS = 2_000
"""Response tokens on which exported and trained weights are compared."""
ROWS = 2
"""The fewest responses of a comparison: its error is that of a mean over responses."""
_SHARE = 1 / 4
"""Of a step's tokens at most, on which it is measured how far its updates have moved the policy: a
pass over all of them would be a tenth of a small step."""


@dataclass(frozen=True)
class Roundings:
    """Where the weights of one policy are found in several roundings."""

    trained: Weights
    """Of a policy with adapters these alone."""
    exported: Weights
    """Whole weights by name, adapters merged."""
    wide_base: Callable[[], Weights] | None = None
    """The base as it was before its weights were packed in 4 bits, if they are: what a program has
    that loads the adapters beside the original model."""


def export_gap(
    policy: Policy, roundings: Roundings, batch: Batch, temperature: float, limits: Limits
) -> dict[str, float]:
    """KL(trained || exported), KL(trained || evaluated) and KL(trained || beside the wide base) per
    token on the first responses of `batch`, with their errors. The first is missing where these
    weights are the same bits, the second in float32 arithmetic, the third without packed weights.
    To be called where the model `fits_in_float32`. What is exported is compared with what is merged
    here anew, so that a fault of either is seen.

    Our evaluation multiplies with the same rounded weights as `policy` does, by the same kernels.
    The responses are the policy's own, drawn by its rounded weights.
    """
    part = _first_rows(batch, TOKENS)
    model = copy.deepcopy(policy.model).requires_grad_(False).float()
    unpack(model)
    of_adapters = adapters(model)
    for value in of_adapters.values():
        value.zero_()
    plain = Policy(model, policy.tokenizer, lean=policy.lean)
    own = base_weights(model)
    names = {without_wrapper(name) for name, _ in model.named_parameters()}  # tied weights once

    def scored(weights: Weights) -> Tensor:
        with torch.no_grad():
            for name in names & weights.keys():
                own[name].copy_(weights[name])
        return score(plain, part, temperature, limits)

    gaps: dict[str, float] = {}
    trained = merged(policy.model, roundings.trained)
    log_prob = scored(trained)
    if policy.bfloat16:
        evaluated = score(policy, part, temperature, limits)
        gaps |= gap_metrics("kl_trained_to_evaluated", evaluated - log_prob, part.mask)
    if not _same_bits(trained, roundings.exported):
        exported = scored(roundings.exported)
        gaps |= gap_metrics("kl_trained_to_exported", exported - log_prob, part.mask)
    del trained  # each takes 4 bytes a weight of the host's memory
    if roundings.wide_base is not None:
        wide = scored(merged(policy.model, roundings.trained, roundings.wide_base()))
        gaps |= gap_metrics("kl_trained_to_wide_base", wide - log_prob, part.mask)
    return gaps


def _same_bits(weights: Weights, others: Weights) -> bool:
    return all(value.equal(others[name]) for name, value in weights.items() if name in others)


def fits_in_float32(policy: Policy) -> bool:
    """Whether a GPU has room for the model in float32 and for a pass; on a CPU it is not asked."""
    if policy.device.type != "cuda":
        return True
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(policy.device)
    needed = 4 * parameter_count(policy.model)
    return bool(free > 1.25 * needed + 2**31)


def moved(
    policy: Policy, batch: Batch, log_prob: Tensor, temperature: float, limits: Limits
) -> dict[str, float]:
    """How far the updates of a step have moved the policy from one with these log-probabilities, on
    the first responses: what gaps between roundings are to be compared with."""
    part = _first_rows(batch, min(TOKENS, _SHARE * int(batch.lengths.sum())))
    now = score(policy, part, temperature, limits)
    before = log_prob[: now.shape[0], : now.shape[1]]
    return gap_metrics("kl_old_to_new", now - before, part.mask)


def _first_rows(batch: Batch, tokens: float) -> Batch:
    """The first responses, with about that many tokens together."""
    ends = batch.lengths.cumsum(0)
    rows = max(ROWS, int((ends < tokens).sum()) + 1)
    return batch.rows(torch.arange(min(rows, len(batch)), device=ends.device))
