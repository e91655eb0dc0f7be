"""Which tokens could be drawn: top-k, top-p, min-p and a shortest length, and log-probabilities among those tokens.

A response that is drawn from a part of the vocabulary has the log-probability of the distribution it was drawn from:
log p(token) - log p(kept), with `kept` the tokens that were left. The kept sets are the sampler's and stay with its
samples, so the policy in training, the old one and the reference are all distributions over the same tokens: every
ratio between them is finite, is 1 where the policies are equal, and has mean 1 under the sampler (DeepSeek-V3.2,
arXiv 2512.02556, section 3.1, "Keep Sampling Mask"). The sets change only where a token's probability crosses a bound;
between these jumps, which no gradient sees, the gradient of the truncated policy's objective is the one with the sets
held constant.

Shapes: N responses, T tokens, V vocabulary; C response tokens (the positions of a batch's mask, row by row); J tokens
that could be drawn there, for all of them one after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.config.run_spec import RunSpec
from rpg.config.training import Rollout

LEAST = -1e4
"""Below the logarithm of every float32 that is not zero."""


@dataclass(frozen=True)
class Restriction:
    """What narrows the distribution of responses; the defaults leave it whole."""

    top_k: int | None = None
    """The k most probable tokens (and those as probable as the last of them)."""
    top_p: float = 1.0
    """The fewest most probable tokens that have this probability together, among those that top_k and min_p leave."""
    min_p: float = 0.0
    """Tokens at least this probable, in parts of the most probable one."""
    min_tokens: int = 0
    """So many tokens come before one that ends the response."""
    stop: tuple[str, ...] = ()
    """Texts that end a response where they are complete; they stay part of it."""

    @property
    def truncates(self) -> bool:
        """Whether tokens are left out for being improbable."""
        return self.top_k is not None or self.top_p < 1 or self.min_p > 0

    def kept(self, logits: Tensor) -> Tensor:
        """(R, V) bool: the tokens that are left of distributions (R, V), temperature applied.

        min-p, then top-k, then top-p of what those leave: vLLM's order.
        """
        kept = logits > -torch.inf
        if self.min_p > 0:
            kept &= logits >= logits.amax(-1, keepdim=True) + math.log(self.min_p)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            kept &= logits >= logits.topk(self.top_k, -1).values[:, -1:]
        if self.top_p < 1:
            left = logits.masked_fill(~kept, -torch.inf)
            values, order = left.sort(dim=-1, descending=True, stable=True)
            p = values.softmax(-1)
            before = p.cumsum(-1) - p
            first = torch.arange(p.shape[-1], device=p.device) == 0  # it stays however small top_p is
            kept &= torch.zeros_like(kept).scatter(1, order, (before < self.top_p) | first)
        return kept


WHOLE = Restriction()


def restriction_of(rollout: Rollout) -> Restriction:
    """How a run samples the responses that it trains on."""
    r = rollout
    return Restriction(r.top_k, r.top_p, r.min_p, r.min_response_tokens, r.stop)


def evaluation_restriction(spec: RunSpec) -> Restriction:
    """How its checkpoints are evaluated: what ends a response is the same, what is left out is the evaluation's own."""
    e, r = spec.evaluation, spec.rollout
    return Restriction(e.top_k, e.top_p, e.min_p, r.min_response_tokens, r.stop)


@dataclass(frozen=True)
class Support:
    """The tokens that could be drawn at every position of some responses.

    Either lists of tokens (`index`, `starts` and `ids`), or everything but the `ends` in the first `closed` positions.
    """

    index: Tensor | None = None
    """(N, T) int64: the number of each position's list."""
    starts: Tensor | None = None
    """(lists + 1,) int64: where each list begins in `ids`."""
    ids: Tensor | None = None
    """Tokens, ascending within a list."""
    closed: int = 0
    ends: tuple[int, ...] = ()

    def rows(self, rows: Tensor, width: int) -> Support:
        """Of the responses `rows`, up to `width` tokens."""
        if self.index is None:
            return self
        return Support(self.index[rows, :width], self.starts, self.ids)

    def early(self, mask: Tensor) -> Tensor:
        """(C,) bool: response tokens before which nothing could end; `mask` (N, T) is that of the batch."""
        return (torch.arange(mask.shape[1], device=mask.device) < self.closed).expand(mask.shape)[mask]

    def lists(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(place, token), (J,) each: the tokens that could be drawn at the response tokens (place in 0..C-1)."""
        assert self.index is not None and self.starts is not None and self.ids is not None
        number = self.index[mask]
        begin, sizes = self.starts[number], (self.starts[1:] - self.starts[:-1])[number]
        place = torch.repeat_interleave(sizes)
        first = sizes.cumsum(0) - sizes
        offset = torch.arange(len(place), device=place.device) - first[place]
        return place, self.ids[begin[place] + offset]


class Lists:
    """Collects the kept sets of a decoding, a position at a time."""

    def __init__(self, index: Tensor):
        """`index` (N, T) is filled."""
        self.index = index
        self._ids: list[Tensor] = []
        self._sizes: list[Tensor] = []
        self._count = 0

    def add(self, active: Tensor, position: int, kept: Tensor, row_of: Tensor) -> None:
        """At `position`, the responses `active` drew from the rows `row_of` of `kept` (R, V)."""
        self.index[active, position] = self._count + row_of
        self._ids.append(kept.nonzero()[:, 1])
        self._sizes.append(kept.sum(-1))
        self._count += len(kept)

    def support(self, width: int) -> Support:
        """All of them, of the first `width` positions."""
        sizes = torch.cat(self._sizes)
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return Support(self.index[:, :width], starts, torch.cat(self._ids))


def joined(supports: Sequence[Support | None], width: int) -> Support | None:
    """Of responses one after another, padded to `width`."""
    first = supports[0]
    if first is None or first.index is None:
        return first
    assert first.starts is not None
    indices, starts, ids, lists, tokens = [], [first.starts.new_zeros(1)], [], 0, 0
    for one in supports:
        assert one is not None and one.index is not None and one.starts is not None and one.ids is not None
        indices.append(torch.nn.functional.pad(one.index + lists, (0, width - one.index.shape[1])))
        starts.append(one.starts[1:] + tokens)
        ids.append(one.ids)
        lists, tokens = lists + len(one.starts) - 1, tokens + len(one.ids)
    return Support(torch.cat(indices), torch.cat(starts), torch.cat(ids))


def among(
    place: Tensor, token: Tensor, log_p: Tensor, chosen: Tensor, *, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """(C,) log-probabilities of the tokens `chosen` (C,) among those that could be drawn; with `entropy`, that of each
    distribution too.

    `place` and `token` (J,) are :meth:`Support.lists`, `log_p` (J,) their log-probabilities in any normalisation;
    differentiable in `log_p`.
    """
    count = len(chosen)
    top = torch.full((count,), LEAST, device=log_p.device)
    top.scatter_reduce_(0, place, log_p.detach(), "amax")
    mass = torch.zeros_like(top).index_add(0, place, (log_p - top[place]).exp())
    normalised = log_p - (mass.log() + top)[place]
    found = normalised[token == chosen[place]]
    if not entropy:
        return found, None
    return found, -torch.zeros_like(top).index_add(0, place, normalised.exp() * normalised)
