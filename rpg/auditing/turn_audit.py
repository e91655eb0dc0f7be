"""What survives masking: losses on responses in which an environment has a turn, by enumeration.

The policy writes a token, the environment answers with one, the policy writes two more. The environment is deterministic or
random; in a third world one of its answers ends the response. `masked` is the loss with the environment's token left out, as
it has to be; `leaked` the same loss with that token taken for one of the policy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from rpg.auditing.audit_report import markdown_table
from rpg.auditing.measure import EXACT
from rpg.auditing.moments import LossFunction, batch_slopes, batches_of, moments, relative
from rpg.auditing.objectives import LEVELS, Objective, gradient
from rpg.auditing.subjects import ratio_levels
from rpg.auditing.worlds import World, of_responses
from rpg.catalogue import algorithm
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import policy_loss

BETA, DRIFTS, SEEDS = 0.3, (0.0, 0.4), (0, 1)
SYMBOLS, LENGTH, SAID = 3, 4, 1  # of the language; of a response; the place of the environment's token


def turn_world(kind: str, seed: int = 0) -> World:
    """The world of a `deterministic` or `random` environment, or of one that `ends` some responses."""
    g = torch.Generator().manual_seed(seed)
    chances = torch.randn(SYMBOLS, SYMBOLS, generator=g, dtype=torch.float64).log_softmax(-1)
    if kind == "deterministic":
        chances = torch.where(chances == chances.amax(-1, keepdim=True), 0.0, -torch.inf)
    possible = [r for r in product(range(SYMBOLS), repeat=LENGTH) if chances[r[0], r[SAID]].isfinite()]
    ended = {r[: SAID + 1] if kind == "ends" and r[SAID] == 0 else r for r in possible}
    base = of_responses(sorted(ended), SYMBOLS, LENGTH, seed)
    environment = torch.zeros(base.mask.shape, dtype=torch.float64)
    environment[:, SAID] = chances[base.tokens[:, 0], base.tokens[:, SAID]]
    world = replace(base, mask=base.mask & (torch.arange(LENGTH) != SAID), environment=environment)
    return replace(world, rewards=world.rewards - world.probabilities(world.old) @ world.rewards)


def leaky(world: World) -> World:
    """The world as a loss sees it that takes the environment's tokens for the policy's."""
    return replace(world, mask=world.mask | (torch.arange(LENGTH) == SAID), environment=None)


def expected_step(loss: LossFunction, world: World, drift: float, leak: bool) -> Tensor:
    """The average step (S * V,), of a sum over responses, under the sampling policy and the true environment."""
    view, logits = leaky(world) if leak else world, world.policy(drift)
    inputs = batches_of(view, logits, world.ref, world.rewards[:, None] * view.mask)
    slopes = batch_slopes(loss, inputs(torch.arange(len(world.tokens))))
    return moments(view, logits, slopes, weights=world.probabilities(world.old)).mean


@dataclass(frozen=True)
class TurnRow:
    """One loss in one world: what it is exact for, and how far off it is with a leak."""

    loss: str
    environment: str
    exact: tuple[str, ...]  # objectives whose gradient the masked loss has, whatever the drift
    masked: float
    """Bias against the objective it is named for, the worst over drifts and seeds; of an aggregation, up to its scale."""
    leaked: float  # the same with a leak


def _levels(kind: str) -> list[TurnRow]:
    rows = []
    for subject in ratio_levels(BETA):
        bias = {(level, leak): 0.0 for level in LEVELS for leak in (False, True)}
        for seed, drift, leak in product(SEEDS, DRIFTS, (False, True)):
            world = turn_world(kind, seed)
            moved = expected_step(subject.loss, world, drift, leak)
            for level in LEVELS:
                objective = Objective(level, subject.divergence)
                exact = gradient(objective, world, world.policy(drift), world.ref, BETA)
                bias[level, leak] = max(bias[level, leak], relative(moved, exact))
        level = "token" if subject.name.endswith("token") else "sequence"
        exact_for = [x for x in LEVELS if bias[x, False] <= EXACT]
        names = tuple(Objective(x, subject.divergence).short for x in exact_for)
        rows.append(TurnRow(subject.name, kind, names, bias[level, False], bias[level, True]))
    return rows


def _aggregations(kind: str) -> list[TurnRow]:
    """Against E[R], on-policy."""
    world, rows, target = turn_world(kind), [], Objective("sequence", "none")
    exact = gradient(target, world, world.old, world.ref, 0.0)
    for mode in ("seq-mean-token-sum", "seq-mean-token-sum-norm", "token-mean", "seq-mean-token-mean"):
        algo, errors = algorithm("reinforce", loss_agg_mode=mode), []
        for leak in (False, True):
            mask = leaky(world).mask if leak else world.mask
            tokens = float(world.probabilities(world.old) @ mask.sum(-1).double()) * len(mask)
            loss = partial(policy_loss, algo, counts=Counts(tokens, len(mask), LENGTH))  # of a large batch
            moved = expected_step(loss, world, 0.0, leak)
            scale = moved @ exact / (exact @ exact)
            errors.append(relative(moved, scale * exact))
        rows.append(TurnRow(mode, kind, (target.short,) if errors[0] <= EXACT else (), *errors))
    return rows


def audit_turns() -> list[TurnRow]:
    """Every divergence at every ratio level, and the four aggregations, with each kind of environment."""
    rows = [row for kind in ("deterministic", "random") for row in _levels(kind)]
    return rows + [row for kind in ("random", "ends") for row in _aggregations(kind)]


def as_markdown(rows: Sequence[TurnRow]) -> str:
    """A table of them."""
    words, figures = ("loss", "environment", "masked: exact for"), ("masked: bias", "leaked: bias")
    lines = []
    for row in rows:
        biases = ("0" if bias <= EXACT else f"{bias:.0%}" for bias in (row.masked, row.leaked))
        lines.append([row.loss, row.environment, ", ".join(row.exact) or "none", *biases])
    return markdown_table(words, figures, lines)
