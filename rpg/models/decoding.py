"""Sampling responses: one loop for every engine that can prefill, step and reorder its key-value cache.

Responses of a group that are identical so far share one row of the cache: their common prefix (at first the prompt) is
computed once, and the row is split where they sample different tokens. A peaked policy thus costs little more than one
response per prompt.

Shapes: P prompts, G responses per prompt, N = P * G responses (response i answers prompt i // G), T new tokens,
R rows of the cache, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from rpg.models.tokenizer import Stopper
from rpg.models.truncated_sampling import LEAST, WHOLE, Lists, Restriction, Support


class Engine(Protocol):
    """A model with its key-value cache. Logits are (R, V), rows in the order of the cache."""

    device: torch.device

    def prefill(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Tensor:
        """Fill the cache with one row per prompt; logits of each row's next token."""

    def select(self, index: Tensor) -> None:
        """Replace the rows by the rows `index`, which may contain a row several times or not at all."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token (R,) to every row; logits of the next."""


@dataclass(frozen=True)
class Samples:
    """Sampled responses with their log-probabilities under the sampling policy (at its temperature, over the tokens that
    could be sampled).
    """

    batch: Batch
    log_prob: Tensor
    """(N, T) of the sampled tokens, zero after a row's last token."""
    entropy: Tensor
    """(N, T) of the distributions they were drawn from, nats; zero after a row's last token."""
    truncated: Tensor
    """(N,) bool: the length limit was reached before an end token or a stop string."""


def ignore_progress(finished: int, position: int) -> None:
    """For callers that do not report the progress of a generation."""


def generate(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    *,
    group_size: int,
    max_new_tokens: int,
    stop: Sequence[int],
    uniforms: Tensor | None,
    temperature: float = 1.0,
    restriction: Restriction = WHOLE,
    stopper: Stopper | None = None,
    tell: Callable[[int, int], None] = ignore_progress,
) -> Samples:
    """Sample `group_size` responses to each prompt.

    `restriction` says which tokens can be sampled; `stopper` knows its stop strings. `tell` is called at every position
    with the number of finished responses and the position.

    `uniforms` (N, max_new_tokens) in [0, 1) is the only source of randomness: token t of row i is the inverse distribution
    function at uniforms[i, t], so a response does not depend on the other rows. None means greedy decoding
    (log-probabilities are then those at `temperature`). Raises ValueError: no prompts, or uniforms of the wrong shape.
    """
    rows = len(prompts) * group_size
    if not rows or max_new_tokens < 1:
        raise ValueError(
            f"nothing to generate: {len(prompts)} prompts x {group_size}, {max_new_tokens} tokens"
        )
    if uniforms is not None and tuple(uniforms.shape) != (rows, max_new_tokens):
        raise ValueError(f"uniforms: shape {tuple(uniforms.shape)}, accepted: {(rows, max_new_tokens)}")
    device = engine.device
    # Created outside of inference mode, so that autograd can use them later.
    tokens = torch.zeros(rows, max_new_tokens, dtype=torch.long, device=device)
    log_prob = torch.zeros(rows, max_new_tokens, device=device)
    entropy = torch.zeros(rows, max_new_tokens, device=device)
    lengths = torch.full((rows,), max_new_tokens, device=device)
    truncated = torch.ones(rows, dtype=torch.bool, device=device)
    ends = torch.tensor(list(stop), dtype=torch.long, device=device)
    lists = Lists(torch.zeros_like(tokens)) if restriction.truncates else None
    if uniforms is not None:
        uniforms = uniforms.to(device)
    with torch.inference_mode():
        logits = engine.prefill(prompts, max_new_tokens)
        active = torch.arange(rows, device=device)  # unfinished responses
        row_of = active // group_size  # their rows in the cache
        for t in range(max_new_tokens):
            u = None if uniforms is None else uniforms[active, t]
            if t < restriction.min_tokens:
                logits = logits.float().index_fill(1, ends, -torch.inf)
            if lists is not None:
                logits = logits.float() / temperature
                kept = restriction.kept(logits)
                lists.add(active, t, kept, row_of)
                logits = logits.masked_fill_(~kept, -torch.inf)
            heat = temperature if lists is None else 1.0
            drawn, log_prob[active, t], entropy[active, t] = draw(logits, u, heat, row_of)
            tokens[active, t] = drawn
            ended = torch.isin(drawn, ends)
            if stopper is not None and t + 1 >= restriction.min_tokens:
                recent = tokens[active, max(0, t + 1 - stopper.tail) : t + 1].tolist()
                ended |= torch.tensor(stopper(recent), device=device)
            finished = active[ended]
            lengths[finished] = t + 1
            truncated[finished] = False
            active, row_of, drawn = active[~ended], row_of[~ended], drawn[~ended]
            tell(rows - len(active), t + 1)
            if not len(active) or t == max_new_tokens - 1:
                break
            logits, active, row_of = _step(engine, logits, active, row_of, drawn)
    width = int(lengths.max())
    prompt_of = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
    support = lists.support(width) if lists is not None else None
    if lists is None and restriction.min_tokens:
        support = Support(closed=restriction.min_tokens, ends=tuple(stop))
    batch = Batch([list(p) for p in prompts], prompt_of, tokens[:, :width], lengths, support)
    return Samples(batch, log_prob[:, :width], entropy[:, :width], truncated)


def _step(
    engine: Engine, logits: Tensor, active: Tensor, row_of: Tensor, drawn: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Split the cache's rows where responses drew different tokens, append these; (logits, active, row_of) afterwards."""
    vocabulary = logits.shape[1]
    branches, row_of = torch.unique(row_of * vocabulary + drawn, return_inverse=True)
    row_of, order = row_of.sort(stable=True)
    parents = branches // vocabulary
    if len(parents) != len(logits) or bool((parents[1:] == parents[:-1]).any()):
        engine.select(parents)
    return engine.step(branches % vocabulary), active[order], row_of


def draw(
    logits: Tensor, u: Tensor | None, temperature: float, row_of: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(token, its log-probability, the distribution's entropy), each (rows,); greedy if `u` is None.

    With `row_of` there is one draw for each of its entries, from that row of `logits`; `u` has as many numbers.
    """
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    if row_of is None:
        row_of = torch.arange(len(logits), device=logits.device)
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    if u is None:
        token = log_p.argmax(-1)[row_of]
    else:
        cumulative = p.cumsum(-1)
        total = cumulative[:, -1]
        # Strictly below the total even if u rounds up to it: a token of probability zero is never drawn.
        below = torch.nextafter(total, torch.zeros_like(total))
        target = torch.minimum(u * total[row_of], below[row_of])
        one_to_one = len(row_of) == len(cumulative) and bool((row_of[1:] > row_of[:-1]).all())
        cumulative = cumulative if one_to_one else cumulative[row_of]
        token = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
    log_prob = log_p[row_of, token]
    # Where p is zero its logarithm may be -inf, and zero times that is NaN.
    entropy = -p.mul_(log_p.clamp_(min=LEAST)).sum(-1)
    return token, log_prob, entropy[row_of]


@dataclass(frozen=True)
class Batch:
    """Rows refer to their prompt by index, so that work on a prompt is done once for its whole group."""

    prompts: list[list[int]]
    """P non-empty lists of token ids."""
    prompt_of: Tensor
    """(N,) int64: index into `prompts`."""
    tokens: Tensor
    """(N, T) int64 response tokens, including the end token; zero after a row's last token."""
    lengths: Tensor
    """(N,) int64, at least 1 and at most T."""
    support: Support | None = None
    """The tokens that could be sampled, if not the whole vocabulary: log-probabilities are normalised over these."""
    heard: Tensor | None = None
    """(N, T) bool: response tokens that an environment wrote, which are context and nothing else; None: there are none."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def within(self) -> Tensor:
        """(N, T) bool: True on response tokens, whoever wrote them."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    @property
    def mask(self) -> Tensor:
        """(N, T) bool: True on the response tokens that the policy wrote: what losses and log-probabilities see."""
        return self.within if self.heard is None else self.within & ~self.heard

    @property
    def written(self) -> Tensor:
        """(N,) number of response tokens that the policy wrote."""
        return self.lengths if self.heard is None else self.mask.sum(-1)

    def placed(self, values: Tensor) -> Tensor:
        """Values of the tokens in `mask`, row by row, as (N, T); zero elsewhere."""
        return torch.zeros(self.tokens.shape, device=values.device).masked_scatter(self.mask, values)

    def total_lengths(self) -> Tensor:
        """(N,) number of tokens of prompt plus response."""
        sizes = torch.tensor([len(p) for p in self.prompts], device=self.tokens.device)
        return sizes[self.prompt_of] + self.lengths

    def rows(self, index: Tensor) -> Batch:
        """The rows `index` (int64) with the prompts they need, as wide as their longest response."""
        lengths = self.lengths[index]
        used, prompt_of = torch.unique(self.prompt_of[index], return_inverse=True)
        width = int(lengths.max()) if len(lengths) else 0
        prompts = [self.prompts[i] for i in used.tolist()]
        support = None if self.support is None else self.support.rows(index, width)
        heard = None if self.heard is None else self.heard[index, :width]
        return Batch(prompts, prompt_of, self.tokens[index, :width], lengths, support, heard)


@dataclass(frozen=True)
class Scored:
    """What one forward pass says about a batch; C response tokens, row by row."""

    log_prob: Tensor
    """(N, T) of the response tokens, zero after a row's last token."""
    entropy: Tensor | None = None
    """(N, T) of their distributions, nats."""
    states: Tensor | None = None
    """(C, E): what the distributions of the response tokens follow from,"""
    weight: Tensor | None = None
    """(V, E), by a product with this; None: the states are logits."""

    def logits(self, rows: slice, entries: int | None = None) -> Tensor:
        """(rows, V) float32; the first `entries` of the vocabulary only."""
        assert self.states is not None
        if self.weight is None:
            return self.states[rows, :entries].float()
        return F.linear(self.states[rows], self.weight[:entries]).float()


def token_log_prob(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Log-probabilities (...) of `targets` (...) under softmax(logits / temperature); logits (..., V)."""
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    return -losses.view(targets.shape)
