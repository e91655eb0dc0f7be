"""What survives masking: losses on responses in which an environment has a turn, by enumeration.

The policy writes a token, the environment answers with one, the policy writes two more. The
environment is deterministic or random; in a third world one of its answers ends the response.
`masked` is the loss with the environment's token left out, as it has to be; `leaked` the same loss
with that token taken for one of the policy's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import torch

from rpg.auditing.audit_report import markdown_table
from rpg.auditing.measure import EXACT, exact_gradients
from rpg.auditing.moments import relative
from rpg.auditing.objectives import LEVELS, Objective, gradients
from rpg.auditing.studies import aggregations
from rpg.auditing.subjects import Scene, ratio_levels
from rpg.auditing.worlds import World, of_responses

BETA = 0.3
DRIFTS = (0.0, 0.4)
SEEDS = (0, 1)
SYMBOLS = 3  # of the language
LENGTH = 4  # tokens of a response
SAID = 1  # the place of the environment's token


@cache
def turn_world(kind: str, seed: int = 0) -> World:
    """The world of a `deterministic` or `random` environment, or of one that `ends` some
    responses."""
    g = torch.Generator().manual_seed(seed)
    chances = torch.randn(SYMBOLS, SYMBOLS, generator=g, dtype=torch.float64).log_softmax(-1)
    if kind == "deterministic":
        chances = torch.where(chances == chances.amax(-1, keepdim=True), 0.0, -torch.inf)

    responses = set()
    for response in product(range(SYMBOLS), repeat=LENGTH):
        first, said = response[0], response[SAID]
        if not chances[first, said].isfinite():
            continue
        ends_here = kind == "ends" and said == 0
        responses.add(response[: SAID + 1] if ends_here else response)
    base = of_responses(sorted(responses), SYMBOLS, LENGTH, seed)

    # The environment's token is drawn by its own chances, and no token of the policy.
    environment = torch.zeros(base.mask.shape, dtype=torch.float64)
    environment[:, SAID] = chances[base.tokens[:, 0], base.tokens[:, SAID]]
    of_policy = base.mask & (torch.arange(LENGTH) != SAID)
    world = replace(base, mask=of_policy, environment=environment)

    expected_reward = world.sampled() @ world.rewards
    return replace(world, rewards=world.rewards - expected_reward)


def leaky(world: World) -> World:
    """The world as a loss sees it that takes the environment's tokens for the policy's."""
    mask = world.mask | (torch.arange(LENGTH) == SAID)
    return replace(world, mask=mask, environment=0.0, sampling_chances=world.sampled())


@dataclass(frozen=True)
class TurnRow:
    """One loss in one world: what it is exact for, and how far off it is with a leak."""

    loss: str
    environment: str
    exact: tuple[str, ...]  # objectives whose gradient the masked loss has, whatever the drift
    masked: float
    """Bias against the objective it is named for, the worst over drifts and seeds; of an
    aggregation, up to its scale."""
    leaked: float  # the same with a leak


def _levels(kind: str) -> Iterator[TurnRow]:
    for subject in ratio_levels(BETA):
        bias = dict.fromkeys(product(LEVELS, (False, True)), 0.0)
        for seed, drift, leak in product(SEEDS, DRIFTS, (False, True)):
            world = turn_world(kind, seed)
            step = (
                Scene.of(subject, leaky(world) if leak else world, drift).moments(subject.loss).mean
            )
            exact = exact_gradients(world, drift, True, BETA, True)
            for level in LEVELS:
                error = relative(step, exact[str(Objective(level, subject.divergence))])
                bias[level, leak] = max(bias[level, leak], error)
        level = "token" if subject.name.endswith("token") else "sequence"
        names = tuple(
            Objective(x, subject.divergence).short for x in LEVELS if bias[x, False] <= EXACT
        )
        yield TurnRow(subject.name, kind, names, bias[level, False], bias[level, True])


def _aggregations(kind: str) -> Iterator[TurnRow]:
    """Against E[R], on-policy."""
    world = turn_world(kind)
    target = Objective("sequence", "none")
    exact = gradients(world, world.old, world.ref, "sequence")["reward"]
    for masked, leaked in zip(
        aggregations(world, exact), aggregations(leaky(world), exact), strict=True
    ):
        names = (target.short,) if masked.bias <= EXACT else ()
        yield TurnRow(masked.name, kind, names, masked.bias, leaked.bias)


def audit_turns() -> list[TurnRow]:
    """Every divergence at every ratio level, and the four aggregations, with each kind of
    environment."""
    rows = [row for kind in ("deterministic", "random") for row in _levels(kind)]
    return rows + [row for kind in ("random", "ends") for row in _aggregations(kind)]


def as_markdown(rows: Sequence[TurnRow]) -> str:
    """A table of them."""
    words = ("loss", "environment", "masked: exact for")
    figures = ("masked: bias", "leaked: bias")
    lines = []
    for row in rows:
        line = [row.loss, row.environment, ", ".join(row.exact) or "none"]
        for bias in (row.masked, row.leaked):
            line.append("0" if bias <= EXACT else f"{bias:.0%}")
        lines.append(line)
    return markdown_table(words, figures, lines)
