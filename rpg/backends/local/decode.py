"""Sampling responses: one loop over any engine that can prefill, step and drop rows.

Shapes: P prompts, G responses per prompt, N = P * G rows (row i answers prompt i // G), T new tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rpg.backends.local.batch import Batch

_DROP = 8
"""Finished rows leave the cache once they are 1/8 of it: dropping copies what stays."""


class Engine(Protocol):
    """A model with its key-value cache. Logits are (rows, V), rows in the order of the cache."""

    device: torch.device

    def prefill(self, prompts: Sequence[Sequence[int]], group_size: int, max_new_tokens: int) -> Tensor:
        """Logits behind each prompt, (P, V); each prompt is computed once, then shared by its group's rows."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token (rows,) to every row; logits behind it."""

    def keep(self, index: Tensor) -> None:
        """Only the rows `index` go on."""


@dataclass(frozen=True)
class Samples:
    """What was sampled, and what the sampling policy (at its temperature) thought of it."""

    batch: Batch
    log_prob: Tensor
    """(N, T) of the sampled tokens, zero behind a row's length."""
    entropy: Tensor
    """(N, T) of the distributions they were drawn from, nats; zero behind a row's length."""
    truncated: Tensor
    """(N,) bool: the length limit came before an end token."""


def generate(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    *,
    group_size: int,
    max_new_tokens: int,
    stop: Sequence[int],
    uniforms: Tensor | None,
    temperature: float = 1.0,
) -> Samples:
    """Sample `group_size` responses to each prompt.

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
    if uniforms is not None:
        uniforms = uniforms.to(device)
    with torch.inference_mode():
        logits = engine.prefill(prompts, group_size, max_new_tokens).repeat_interleave(group_size, 0)
        active = torch.arange(rows, device=device)  # rows in the cache, in its order
        running = torch.ones(rows, dtype=torch.bool, device=device)  # among them, those not finished
        for t in range(max_new_tokens):
            u = None if uniforms is None else uniforms[active, t]
            drawn, drawn_log_prob, drawn_entropy = draw(logits, u, temperature)
            if len(running) == int(running.sum()):
                write = slice(None)
            else:
                write = running
            at = active[write]
            tokens[at, t], log_prob[at, t], entropy[at, t] = (
                drawn[write],
                drawn_log_prob[write],
                drawn_entropy[write],
            )
            ended = running & torch.isin(drawn, ends)
            rows_ended = active[ended]
            lengths[rows_ended] = t + 1
            truncated[rows_ended] = False
            running = running & ~ended
            left = int(running.sum())
            if not left or t == max_new_tokens - 1:
                break
            if (len(running) - left) * _DROP >= len(running):
                kept = running.nonzero()[:, 0]
                engine.keep(kept)
                active, drawn, running = active[kept], drawn[kept], running[kept]
            logits = engine.step(drawn)
    width = int(lengths.max())
    prompt_of = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
    batch = Batch([list(p) for p in prompts], prompt_of, tokens[:, :width], lengths)
    return Samples(batch, log_prob[:, :width], entropy[:, :width], truncated)


def draw(logits: Tensor, u: Tensor | None, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """(token, its log-probability, the distribution's entropy), each (rows,); greedy where `u` is None."""
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    if u is None:
        token = log_p.argmax(-1)
    else:
        cumulative = p.cumsum(-1)
        total = cumulative[:, -1]
        # Below the total also where u rounds up to it: a token of probability zero is never drawn.
        target = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
        token = (cumulative <= target[:, None]).sum(-1)
    return token, log_p.gather(1, token[:, None])[:, 0], torch.special.entr(p).sum(-1)
