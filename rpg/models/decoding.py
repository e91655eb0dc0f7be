"""Sampling responses: one loop over any engine that can prefill, step and reorder its cache.

Responses of a group that are equal so far are one row of the cache: what they have in common (at first the whole
prompt) is computed once, and they part where their draws do. A sharp policy thus costs little more than one response
per prompt.

Shapes: P prompts, G responses per prompt, N = P * G responses (response i answers prompt i // G), T new tokens,
R rows of the cache, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rpg.models.response_batch import Batch
from rpg.models.stop_strings import Stopper
from rpg.models.truncated_sampling import LEAST, WHOLE, Lists, Restriction, Support


class Engine(Protocol):
    """A model with its key-value cache. Logits are (R, V), rows in the order of the cache."""

    device: torch.device

    def prefill(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Tensor:
        """One row per prompt; logits behind each."""

    def select(self, index: Tensor) -> None:
        """The rows become the rows `index`, which may repeat and leave out."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token (R,) to every row; logits behind it."""


@dataclass(frozen=True)
class Samples:
    """What was sampled, and what the sampling policy (at its temperature, among the tokens that could be drawn) thought
    of it.
    """

    batch: Batch
    log_prob: Tensor
    """(N, T) of the sampled tokens, zero behind a row's length."""
    entropy: Tensor
    """(N, T) of the distributions they were drawn from, nats; zero behind a row's length."""
    truncated: Tensor
    """(N,) bool: the length limit came before an end token or a stop text."""


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
    tell: Callable[[int, int], None] = lambda finished, position: None,
) -> Samples:
    """Sample `group_size` responses to each prompt.

    `restriction` says which tokens can be drawn; its stop texts are those of `stopper`.
    `tell` is called at every position with how many responses are finished.

    `uniforms` (N, max_new_tokens) in [0, 1) are all the randomness there is: token t of row i is the inverse
    distribution function at uniforms[i, t], so a row's response does not depend on which rows are beside it. None
    is greedy decoding (log-probabilities are then those at `temperature`).

    Raises:
        ValueError: no prompts, or uniforms of the wrong shape.
    """
    rows = len(prompts) * group_size
    if not rows or max_new_tokens < 1:
        raise ValueError(
            f"nothing to generate: {len(prompts)} prompts x {group_size}, {max_new_tokens} tokens"
        )
    if uniforms is not None and tuple(uniforms.shape) != (rows, max_new_tokens):
        raise ValueError(f"uniforms: shape {tuple(uniforms.shape)}, accepted: {(rows, max_new_tokens)}")
    device = engine.device
    # Made outside inference mode, so that they can be used in a graph later.
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
        active = torch.arange(rows, device=device)  # responses that go on
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
            parts, row_of = torch.unique(row_of * logits.shape[1] + drawn, return_inverse=True)
            row_of, order = row_of.sort(stable=True)
            active = active[order]
            parents = parts // logits.shape[1]
            if len(parents) != len(logits) or bool((parents[1:] == parents[:-1]).any()):
                engine.select(parents)
            logits = engine.step(parts % logits.shape[1])
    width = int(lengths.max())
    prompt_of = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
    support = None
    if lists is not None:
        support = lists.support(width)
    elif restriction.min_tokens:
        support = Support(closed=restriction.min_tokens, ends=tuple(stop))
    batch = Batch([list(p) for p in prompts], prompt_of, tokens[:, :width], lengths, support)
    return Samples(batch, log_prob[:, :width], entropy[:, :width], truncated)


def draw(
    logits: Tensor, u: Tensor | None, temperature: float, row_of: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(token, its log-probability, the distribution's entropy), each (rows,); greedy where `u` is None.

    With `row_of`, one draw for each of its entries from that row of `logits`; `u` has as many numbers.
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
        # Below the total also where u rounds up to it: a token of probability zero is never drawn.
        below = torch.nextafter(total, torch.zeros_like(total))
        target = torch.minimum(u * total[row_of], below[row_of])
        apart = len(row_of) == len(cumulative) and bool((row_of[1:] > row_of[:-1]).all())
        cumulative = cumulative if apart else cumulative[row_of]
        token = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
    log_prob = log_p[row_of, token]
    # Where p is zero its logarithm may be -inf, and zero times that is not a number.
    entropy = -p.mul_(log_p.clamp_(min=LEAST)).sum(-1)
    return token, log_prob, entropy[row_of]
