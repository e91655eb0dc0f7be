"""The KL between two policies, from whole next-token distributions at every prefix of responses.

For responses y of the first policy p, KL(p || q) is the mean over y of the sum over t of
KL(p(. | y_<t) || q(. | y_<t)), by the chain rule. The inner KL is a sum over the whole vocabulary,
so only the prefixes are sampled. That matters: a token that p draws once in ten thousand responses
contributes its share to the sum in every response, whereas an estimate from sampled tokens alone
misses it almost always, with a small error bar.

Shapes: N responses, T tokens, C response tokens (row by row), V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rpg.models.chunked_log_prob import Closed
from rpg.models.decoding import Batch, Scored
from rpg.models.micro_batches import Limits, in_passes
from rpg.models.policy import Policy
from rpg.models.truncated_sampling import LEAST, Restriction, Sampling

Array = NDArray[np.float64]

_ROWS = 256
_LONG_TOKENS = 4096
"""Tokens of a pass with a long response."""
_LOGITS = 2**27
"""Logits of a pass of a model that returns them all (512 MiB of float32)."""
_PART = 2**24
"""Logits of a chunk (64 MiB of float32; about five such matrices live at once)."""


@dataclass(frozen=True)
class Estimate:
    """A KL in nats. Standard errors are over problems: they cover which problems were asked, and
    which samples were drawn. Of a single problem they are over its samples; None: one response."""

    per_response: float
    per_response_se: float | None
    per_token: float
    per_token_se: float | None
    responses: int
    problems: int


def response_kl(sampler: Policy, other: Policy, batch: Batch, sampling: Sampling) -> Array:
    """KL(sampler || other) along each response of `batch`, and its number of tokens: (N, 2).

    `batch` was drawn from `sampler` as `sampling` says. Where that leaves out tokens, both
    distributions are those over the tokens that could be sampled.
    """
    limits = _limits(sampler, other)

    def of_part(part: Batch) -> Tensor:
        ours = sampler.scored(part, sampling.temperature, states=True)
        theirs = other.scored(part, sampling.temperature, states=True)
        early = _before_end(part, sampling.restriction.min_tokens)
        with sampler.arithmetic():
            return part.placed(_sampled_kl(ours, theirs, sampling, early, sampler.stop))

    values = in_passes(of_part, batch, limits).cpu().double().sum(1).numpy()
    tokens = batch.written.cpu().double().numpy()
    return np.stack([values, tokens], 1)


def _sampled_kl(
    ours: Scored, theirs: Scored, sampling: Sampling, early: Tensor, ends: Sequence[int]
) -> Tensor:
    """The KL at every response token, (C,), float32. Both were scored with their states.

    early (C,): bool, places at which no token of `ends` could be drawn.
    """
    assert ours.states is not None and theirs.states is not None
    # One output layer may be padded to more entries than the other, which stand for no token.
    entries = min(_vocabulary(ours), _vocabulary(theirs))
    closed = Closed(early, torch.tensor(list(ends), dtype=torch.long, device=early.device))
    size = max(1, _PART // entries)
    values = []
    for start in range(0, len(ours.states), size):
        rows = slice(start, start + size)
        logits = closed.shut(ours.logits(rows, entries) / sampling.temperature, rows)
        others = theirs.logits(rows, entries) / sampling.temperature
        values.append(_kl(logits, others, sampling.restriction))
    return torch.cat(values) if values else ours.states.new_zeros(0, dtype=torch.float32)


def _kl(logits: Tensor, others: Tensor, restriction: Restriction) -> Tensor:
    """KL between softmax(logits) and softmax(others), both over the tokens that can be sampled from
    the first, (rows, V) -> (rows,)."""
    kept = restriction.kept(logits) if restriction.truncates else logits > -torch.inf
    log_p = logits.masked_fill(~kept, -torch.inf).log_softmax(-1)
    log_q = others.masked_fill(~kept, -torch.inf).log_softmax(-1)
    apart = log_p.clamp(min=LEAST) - log_q.clamp(min=LEAST)
    return (log_p.exp() * apart).sum(-1)


def summary(problems: Sequence[Array]) -> Estimate:
    """The estimate from :func:`response_kl` of the responses to each problem; problems count
    alike."""
    if len(problems) > 1:
        kl, tokens = np.stack([part.mean(0) for part in problems]).T
    else:
        kl, tokens = problems[0].T
    per_token = kl.mean() / tokens.mean()
    # The error of a ratio of means is that of these residuals.
    residuals = (kl - per_token * tokens) / tokens.mean()
    return Estimate(
        per_response=float(kl.mean()),
        per_response_se=_standard_error(kl),
        per_token=float(per_token),
        per_token_se=_standard_error(residuals),
        responses=sum(map(len, problems)),
        problems=len(problems),
    )


def _standard_error(values: Array) -> float | None:
    if len(values) < 2:
        return None
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _limits(*policies: Policy) -> Limits:
    """Passes that fit into memory and follow from the responses alone: equal responses are summed
    up in the same order, whoever drew them."""
    tokens = min(policy.tokens_per_pass for policy in policies)
    for policy in policies:
        if not policy.lean:
            entries = policy.model.get_output_embeddings().weight.shape[0]
            tokens = min(tokens, max(1, _LOGITS // entries))
    return Limits(_ROWS, tokens, min(tokens, _LONG_TOKENS))


def _vocabulary(scored: Scored) -> int:
    of: Any = scored.states if scored.weight is None else scored.weight.t()
    size: int = of.shape[-1]
    return size


def _before_end(batch: Batch, least: int) -> Tensor:
    """(C,) bool: the places at which a turn is still shorter than its least number of tokens."""
    place = torch.arange(batch.tokens.shape[1], device=batch.tokens.device).expand(
        batch.tokens.shape
    )
    if batch.heard is not None:
        began = torch.where(batch.heard, place + 1, 0).cummax(1).values
        place = place - began
    early: Tensor = place[batch.mask] < least
    return early
