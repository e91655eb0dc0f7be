"""Truncated sampling: top-k, nucleus (top-p), min-p and a minimum length, with log-probabilities
over the kept tokens.

A token that is sampled from a part of the vocabulary has the log-probability of the truncated
distribution: log p(token) - log p(kept), where `kept` are the tokens that could be sampled. The
kept sets are the sampler's and stay with its samples, so the trained policy, the old one and the
reference are all distributions over the same tokens: every ratio between them is finite, is 1 where
the policies are equal, and has mean 1 under the sampler (DeepSeek-V3.2, arXiv 2512.02556, section
3.1, "Keep Sampling Mask"). A set changes only where a token's probability crosses a bound; between
these jumps, which no gradient sees, the gradient of the truncated policy's objective is the one
with constant sets.

Shapes: N responses, T tokens, V vocabulary; C response tokens (the positions of a batch's mask, row
by row); J tokens that could be sampled at these, concatenated.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from rpg.config.run_spec import RunSpec
from rpg.config.training import Rollout

LEAST = -1e4
"""Below the logarithm of every float32 that is not zero."""


@dataclass(frozen=True)
class Restriction:
    """How sampling is restricted; the defaults do not restrict it."""

    top_k: int | None = None
    """The k most probable tokens (and those as probable as the last of them)."""
    top_p: float = 1.0
    """Nucleus sampling: the smallest set of most probable tokens with this total probability, among
    those that top_k and min_p keep."""
    min_p: float = 0.0
    """Tokens whose probability is at least this fraction of the most probable token's."""
    min_tokens: int = 0
    """The number of tokens before one can end the response."""
    stop: tuple[str, ...] = ()
    """Stop strings; they remain part of the response."""

    @property
    def truncates(self) -> bool:
        return self.top_k is not None or self.top_p < 1 or self.min_p > 0

    def kept(self, logits: Tensor) -> Tensor:
        """(R, V) bool: the tokens that are kept of distributions (R, V) after the temperature.

        First min-p, then top-k, then top-p of what is left: vLLM's order.
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
            likelier = p.cumsum(-1) - p  # the probability of all tokens before this one
            in_nucleus = likelier < self.top_p
            in_nucleus[:, 0] = True  # the likeliest token, however small top_p is
            kept &= torch.zeros_like(kept).scatter(1, order, in_nucleus)
        return kept


WHOLE = Restriction()


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn. Temperature 0 is greedy."""

    temperature: float = 1.0
    max_prompt_tokens: int = 2048
    max_response_tokens: int = 2048
    restriction: Restriction = WHOLE
    """Which tokens can be sampled, and what ends a response besides end tokens."""

    def record(self) -> dict[str, Any]:
        """The settings as plain data: part of an evaluation's identity."""
        record = asdict(self)
        record["restriction"]["stop"] = list(self.restriction.stop)
        if self.restriction == WHOLE:  # as in records that are older than the field
            del record["restriction"]
        return record


def restriction_of(rollout: Rollout) -> Restriction:
    """The restriction of the responses that a run trains on."""
    r = rollout
    return Restriction(r.top_k, r.top_p, r.min_p, r.min_response_tokens, r.stop)


def evaluation_restriction(spec: RunSpec) -> Restriction:
    """The restriction when a run's checkpoints are evaluated: the rollout's way to end, the
    evaluation's truncation."""
    e = spec.evaluation
    r = spec.rollout
    return Restriction(e.top_k, e.top_p, e.min_p, r.min_response_tokens, r.stop)


@dataclass(frozen=True)
class Support:
    """The tokens that could be sampled at each position of some responses.

    Either lists of tokens (`index`, `starts` and `ids`), or everything but the `ends` in the first
    `closed` positions.
    """

    index: Tensor | None = None
    """(N, T) int64: the list of each position."""
    starts: Tensor | None = None
    """(lists + 1,) int64: where each list starts in `ids`."""
    ids: Tensor | None = None
    """Tokens, ascending within a list."""
    closed: int = 0
    ends: tuple[int, ...] = ()

    def rows(self, rows: Tensor, width: int) -> "Support":
        """The support of the responses `rows`, up to `width` tokens."""
        if self.index is None:
            return self
        return Support(self.index[rows, :width], self.starts, self.ids)

    def early(self, mask: Tensor) -> Tensor:
        """(C,) bool: response tokens at which the response could not end; `mask` (N, T) is that of
        the batch."""
        return (torch.arange(mask.shape[1], device=mask.device) < self.closed).expand(mask.shape)[
            mask
        ]

    def lists(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(place, token), (J,) each: the tokens that could be sampled at each response token (place
        in 0..C-1)."""
        assert self.index is not None and self.starts is not None and self.ids is not None
        number = self.index[mask]
        begin = self.starts[number]
        sizes = (self.starts[1:] - self.starts[:-1])[number]
        place = torch.repeat_interleave(sizes)
        first = sizes.cumsum(0) - sizes
        offset = torch.arange(len(place), device=place.device) - first[place]
        return place, self.ids[begin[place] + offset]


class Lists:
    """Collects the kept sets during decoding, position by position."""

    def __init__(self, index: Tensor):
        """`index` (N, T) is overwritten."""
        self.index = index
        self._ids: list[Tensor] = []
        self._sizes: list[Tensor] = []
        self._count = 0

    def add(self, active: Tensor, position: int, kept: Tensor, row_of: Tensor) -> None:
        """The responses `active` sampled their token at `position` from the rows `row_of` of `kept`
        (R, V)."""
        self.index[active, position] = self._count + row_of
        self._ids.append(kept.nonzero()[:, 1])
        self._sizes.append(kept.sum(-1))
        self._count += len(kept)

    def support(self, width: int) -> Support:
        """The support of the first `width` positions."""
        sizes = torch.cat(self._sizes)
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return Support(self.index[:, :width], starts, torch.cat(self._ids))


def concatenated(supports: Sequence[Support | None], width: int) -> Support | None:
    """The support of several batches of responses as one, padded to `width`."""
    first = supports[0]
    if first is None or first.index is None:
        return first
    assert first.starts is not None
    indices = []
    starts = [first.starts.new_zeros(1)]
    ids = []
    lists = 0
    tokens = 0
    for part in supports:
        assert part is not None
        assert part.index is not None and part.starts is not None and part.ids is not None
        indices.append(
            torch.nn.functional.pad(part.index + lists, (0, width - part.index.shape[1]))
        )
        starts.append(part.starts[1:] + tokens)
        ids.append(part.ids)
        lists = lists + len(part.starts) - 1
        tokens = tokens + len(part.ids)
    return Support(torch.cat(indices), torch.cat(starts), torch.cat(ids))


def among(
    place: Tensor, token: Tensor, log_p: Tensor, chosen: Tensor, *, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """(C,) log-probabilities of the tokens `chosen` (C,) among those that could be sampled; with
    `entropy` also the entropy of each distribution.

    `place` and `token` (J,) are :meth:`Support.lists`, `log_p` (J,) their log-probabilities in any
    normalisation; differentiable in `log_p`.
    """
    count = len(chosen)
    top = torch.full((count,), LEAST, device=log_p.device)
    top.scatter_reduce_(0, place, log_p.detach(), "amax")
    mass = torch.zeros_like(top).index_add(0, place, (log_p - top[place]).exp())
    normalised = log_p - (mass.log() + top)[place]
    log_prob = normalised[token == chosen[place]]
    if not entropy:
        return log_prob, None
    return log_prob, -torch.zeros_like(top).index_add(0, place, normalised.exp() * normalised)
