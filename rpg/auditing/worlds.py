"""Worlds small enough to enumerate: every response, its probability and its reward are known in
float64.

Shapes: N responses (all there are), T tokens, S states (prefixes), V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class World:
    """A tabular autoregressive language: one row of logits per prefix, a random reward per
    response.

    The sampling policy is `old`, the reference `ref`; the trained policy lies at `old + drift *
    direction`.
    """

    tokens: Tensor  # (N, T) long
    states: Tensor  # (N, T) long: which prefix a token continues
    mask: Tensor  # (N, T) bool
    rewards: Tensor  # (N,) centred under old
    old: Tensor  # (S, V) logits
    ref: Tensor  # (S, V) logits
    direction: Tensor  # (S, V) logits
    environment: Tensor | float = 0.0
    """(N, T) log-probability of the tokens that an environment writes, zero elsewhere; these are
    not in `mask`."""
    sampling_chances: Tensor | None = None
    """(N,) probability that a response is sampled; None: it follows from `old` and
    `environment`."""

    def policy(self, drift: float) -> Tensor:
        """Logits (S, V) of the trained policy."""
        return self.old + drift * self.direction

    def log_probs(self, logits: Tensor) -> Tensor:
        """(N, T) log-probability of every token of every response, zero where masked."""
        table = torch.log_softmax(logits, -1)
        return torch.where(self.mask, table[self.states, self.tokens], 0)

    def probabilities(self, logits: Tensor) -> Tensor:
        """(N,) probability of every response."""
        return (self.log_probs(logits) + self.environment).sum(-1).exp()

    def sampled(self) -> Tensor:
        """(N,) probability of every response under the sampling policy."""
        if self.sampling_chances is not None:
            return self.sampling_chances
        return self.probabilities(self.old)

    def state_weights(self, logits: Tensor) -> Tensor:
        """(S,) how often each prefix is visited per response."""
        log_probs = self.log_probs(logits) + self.environment
        reached = (log_probs.cumsum(-1) - log_probs).exp()
        weights = torch.zeros(len(logits), dtype=logits.dtype)
        weights[self.states[self.mask]] = reached[
            self.mask
        ]  # responses that share a prefix agree on it
        return weights


@lru_cache(maxsize=64)
def world(vocabulary: int = 3, length: int = 3, seed: int = 0, eos: bool = False) -> World:
    """All responses of `length` tokens over `vocabulary` symbols; with `eos`, symbol 0 ends a
    response."""
    if not 2 <= vocabulary <= 8 or not 1 <= length <= 6 or vocabulary**length > 2_000:
        accepted = "2 to 8 symbols, 1 to 6 tokens and at most 2,000 responses"
        raise ValueError(f"vocabulary {vocabulary} with length {length}: accepted are {accepted}")
    responses = list(product(range(vocabulary), repeat=length))
    if eos:
        ended = {tuple(r[: r.index(0) + 1]) if 0 in r else r for r in responses}
        responses = sorted(ended, key=lambda r: (len(r), r))
    return of_responses(responses, vocabulary, length, seed)


@lru_cache(maxsize=8)
def padded(seed: int = 0) -> World:
    """Responses of one to three tokens over 3 symbols, of which one ends a response, in tensors
    that are a token wider than the longest."""
    longest = 3
    responses = [
        response
        for size in range(1, longest + 1)
        for response in product(range(3), repeat=size)
        if 0 not in response[:-1] and (size == longest or response[-1] == 0)
    ]
    return of_responses(responses, 3, longest + 1, seed)


def of_responses(
    responses: Sequence[tuple[int, ...]], vocabulary: int, length: int, seed: int
) -> World:
    """A world of these responses, with random logits and rewards."""
    # A state is a prefix; states are numbered in the order in which they are met.
    index: dict[tuple[int, ...], int] = {}
    shape = (len(responses), length)
    tokens = torch.zeros(shape, dtype=torch.long)
    states = torch.zeros(shape, dtype=torch.long)
    written = torch.zeros(shape, dtype=torch.bool)
    for row, response in enumerate(responses):
        for t, token in enumerate(response):
            tokens[row, t] = token
            states[row, t] = index.setdefault(response[:t], len(index))
            written[row, t] = True

    g = torch.Generator().manual_seed(seed)
    old, apart, direction = torch.randn(3, len(index), vocabulary, generator=g, dtype=torch.float64)
    rewards = torch.randn(len(responses), generator=g, dtype=torch.float64)
    world = World(
        tokens=tokens,
        states=states,
        mask=written,
        rewards=rewards,
        old=old,
        ref=old + 0.7 * apart,
        direction=direction,
    )
    return replace(world, rewards=rewards - world.sampled() @ rewards)
