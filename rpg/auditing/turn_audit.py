"""What survives masking: losses on responses in which an environment has a turn, by enumeration.

The policy writes a token, the environment answers with one, the policy writes two more. The environment is deterministic or
random; in a third world one of its answers ends the response. `masked` is the loss with the environment's token left out, as
it has to be; `leaked` the same loss with that token taken for one of the policy's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from rpg.auditing.measure import EXACT
from rpg.auditing.moments import LossFunction, batch_slopes, batches_of, moments, relative
from rpg.auditing.objectives import LEVELS, Objective, gradient
from rpg.auditing.subjects import ratio_levels
from rpg.auditing.worlds import World
from rpg.catalogue import algorithm
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import policy_loss

BETA, DRIFTS, SEEDS = 0.3, (0.0, 0.4), (0, 1)
SYMBOLS = 3
_NEVER = -1e9
"""Logarithm of the probability of an answer that a deterministic environment does not give."""


def turn_world(kind: str, seed: int = 0) -> World:
    """The world of a `deterministic` or `random` environment, or of one that `ends` some responses."""
    g = torch.Generator().manual_seed(seed)
    chances = torch.randn(SYMBOLS, SYMBOLS, generator=g, dtype=torch.float64).log_softmax(-1)
    if kind == "deterministic":
        best = chances.argmax(-1, keepdim=True)
        chances = torch.full_like(chances, _NEVER).scatter(1, best, 0.0)
    whole = list(product(range(SYMBOLS), repeat=4))
    responses = sorted(
        {r[:2] if kind == "ends" and r[1] == 0 else r for r in whole if chances[r[0], r[1]] > _NEVER}
    )
    index: dict[tuple[int, ...], int] = {}
    for response in responses:
        for t in range(len(response)):
            index.setdefault(response[:t], len(index))
    shape = len(responses), 4
    tokens, states = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    within, said = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.float64)
    for n, response in enumerate(responses):
        for t, token in enumerate(response):
            tokens[n, t], states[n, t], within[n, t] = token, index[response[:t]], True
        said[n, 1] = chances[response[0], response[1]]
    old, apart, direction = torch.randn(3, len(index), SYMBOLS, generator=g, dtype=torch.float64)
    rewards = torch.randn(len(responses), generator=g, dtype=torch.float64)
    mask = within & (torch.arange(4) != 1)
    made = World(tokens, states, mask, rewards, old, old + 0.7 * apart, direction, said)
    return replace(made, rewards=rewards - made.probabilities(old) @ rewards)


def leaky(world: World) -> World:
    """The world as a loss sees it that takes the environment's tokens for the policy's."""
    return replace(world, mask=world.mask | (world.environment != 0), environment=None)


def step(loss: LossFunction, world: World, drift: float, leak: bool) -> Tensor:
    """E[step] of a sum over responses, (S * V,), under the sampling policy and the true environment."""
    view, logits = leaky(world) if leak else world, world.policy(drift)
    inputs = batches_of(view, logits, world.ref, world.rewards[:, None] * view.mask)
    slopes = batch_slopes(loss, inputs(torch.arange(len(world.tokens))))
    return moments(view, logits, slopes, weights=world.probabilities(world.old)).mean


@dataclass(frozen=True)
class TurnRow:
    """One loss in one world: what it is exact for, and how far off it is with a leak."""

    loss: str
    environment: str
    exact: tuple[str, ...]
    """Objectives whose gradient the masked loss has, whatever the drift."""
    masked: float
    """Bias against the objective it is named for (the worst over drifts and seeds); of an aggregation, after scaling."""
    leaked: float
    """The same with a leak."""


def _levels(kind: str) -> list[TurnRow]:
    rows = []
    for subject in ratio_levels(BETA):
        bias: dict[tuple[str, bool], float] = {}
        for seed, drift, level, leak in product(SEEDS, DRIFTS, LEVELS, (False, True)):
            world = turn_world(kind, seed)
            exact = gradient(
                Objective(level, subject.divergence), world, world.policy(drift), world.ref, BETA
            )
            error = relative(step(subject.loss, world, drift, leak), exact)
            bias[level, leak] = max(bias.get((level, leak), 0.0), error)
        named = "token" if subject.name.endswith("token") else "sequence"
        is_exact = tuple(
            Objective(level, subject.divergence).short for level in LEVELS if bias[level, False] <= EXACT
        )
        rows.append(TurnRow(subject.name, kind, is_exact, bias[named, False], bias[named, True]))
    return rows


def _aggregations(kind: str) -> list[TurnRow]:
    """Against E[R], on-policy."""
    world, rows = turn_world(kind), []
    exact = gradient(Objective("sequence", "none"), world, world.old, world.ref, 0.0)
    for mode in ("seq-mean-token-sum", "seq-mean-token-sum-norm", "token-mean", "seq-mean-token-mean"):
        algo, errors = algorithm("reinforce", loss_agg_mode=mode), []
        for leak in (False, True):
            mask = leaky(world).mask if leak else world.mask
            tokens = float(world.probabilities(world.old) @ mask.sum(-1).double()) * len(mask)
            counts = Counts(tokens, len(mask), mask.shape[1])  # of a large batch
            loss = partial(policy_loss, algo, counts=counts)
            moved = step(loss, world, 0.0, leak)
            scale = moved @ exact / (exact @ exact)
            errors.append(float((moved - scale * exact).norm() / (scale * exact).norm()))
        is_exact = (Objective("sequence", "none").short,) if errors[0] <= EXACT else ()
        rows.append(TurnRow(mode, kind, is_exact, *errors))
    return rows


def audit_turns() -> list[TurnRow]:
    """Every divergence at every ratio level, and the four aggregations, with each kind of environment."""
    rows = [row for kind in ("deterministic", "random") for row in _levels(kind)]
    return rows + [row for kind in ("random", "ends") for row in _aggregations(kind)]


def as_markdown(rows: list[TurnRow]) -> str:
    """A table of them."""
    lines = [
        "| loss | environment | masked: exact for | masked: bias | leaked: bias |",
        "|---|---|---|---:|---:|",
    ]
    for row in rows:
        biases = ["0" if bias <= EXACT else f"{bias:.0%}" for bias in (row.masked, row.leaked)]
        lines.append(
            f"| {row.loss} | {row.environment} | {', '.join(row.exact) or 'none'} | {biases[0]} | {biases[1]} |"
        )
    return "\n".join(lines)


def as_json(rows: list[TurnRow]) -> str:
    """All rows."""
    return json.dumps([asdict(row) for row in rows], ensure_ascii=False)
