"""The divergence between the next-token distributions of two models at every response token, some
tokens at a time.

No matrix (tokens, vocabulary) is kept: the forward pass holds a chunk of it, and the backward pass
computes it again. What is kept are the states of both models, (tokens, hidden size). (A model
without a lean implementation makes such a matrix itself.)

Shapes: C response tokens, row by row; V vocabulary.
"""

from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rpg.catalogue import DistributionKL
from rpg.losses.distribution_kl import kl_and_left_out
from rpg.models.decoding import Scored

_PLAIN = 2**20
"""Up to this number of logits, chunks gain nothing."""
_PART = 2**24
"""Logits of a chunk (64 MiB of float32; about eight such matrices live at once)."""
_NAMES = ("kl_policy_to_ref", "kl_ref_to_policy", "ref_mass_left_out")


def next_token_kl(
    setting: DistributionKL, ours: Scored, theirs: Scored, temperature: float
) -> tuple[Tensor, dict[str, float]]:
    """(D (C,) in nats, differentiable in `ours`; means over the tokens: both KLs between whole
    distributions and, with a top k, the reference's mass beyond it).

    Both were scored with their states. Where one output layer is padded to more entries than the
    other, the entries beyond the shorter, which stand for no token, are left out of both
    distributions.
    """
    assert ours.states is not None and theirs.states is not None
    count = len(ours.states)
    entries = min(ours.vocabulary, theirs.vocabulary)

    def chunk(rows: slice) -> tuple[Tensor, Tensor]:
        log_p = (ours.logits(rows, entries) / temperature).log_softmax(-1)
        log_q = (theirs.logits(rows, entries) / temperature).log_softmax(-1).detach()
        value, left_out = kl_and_left_out(setting, log_p, log_q)
        with torch.no_grad():
            apart = log_p - log_q
            policy_to_ref = (log_p.exp() * apart).sum()
            ref_to_policy = -(log_q.exp() * apart).sum()
            sums = torch.stack([policy_to_ref, ref_to_policy, left_out.sum()])
        return value, sums

    size = max(1, _PART // entries)
    parts = [slice(start, start + size) for start in range(0, count, size)]
    measure = chunk
    if count * entries > _PLAIN:  # computed again in the backward pass
        measure = partial(checkpoint, chunk, use_reentrant=False, preserve_rng_state=False)
    measured = [measure(part) for part in parts]
    means = (torch.stack([sums for _, sums in measured]).sum(0) / count).tolist()
    names = _NAMES[:2] if setting.top_k is None else _NAMES
    return torch.cat([value for value, _ in measured]), dict(zip(names, means, strict=False))
