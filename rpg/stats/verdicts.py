"""What is said of the differences of a family: a word, an interval and a p-value, or why none.

The rule for sweeps, studies and `rpg compare`; docs/statistics.md, "No verdict", has it in words.
"""

import math
from dataclasses import dataclass

from rpg.stats.comparisons import ERROR, OTHERS, THESE, Family

MINIMUM_SEEDS = 3
"""Fewer give a difference and an interval, but no verdict: two seeds do not show their spread."""
MINIMUM_MOVING = 10.0
"""Kish's number of problems that move below which there is no verdict."""

BETTER = "better"
WORSE = "worse"
WITHIN_NOISE = "within noise"
NOT_TESTABLE = "not testable"
TOO_FEW_SEEDS = "too few seeds"
TOO_FEW_MOVE = "too few problems move"


@dataclass(frozen=True)
class Judged:
    """What is said of a difference, for one scope."""

    word: str
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    """Corrected for the whole family; NaN without a verdict."""


def judge(
    family: Family, scope: str = OTHERS, comparisons: int | None = None, level: float = ERROR
) -> list[Judged]:
    """Judge each difference of the family's first table. With `comparisons`, the family is a part
    of a larger one that has so many.

    With too few seeds there is no verdict, but an interval; where nothing varies or too few
    problems move there is neither.
    """
    has_interval = not (nothing_varies(family, scope) or moves_too_little(family, scope))
    reason = ""
    if has_few_seeds(family):
        reason = TOO_FEW_SEEDS
    elif nothing_varies(family, scope):
        reason = NOT_TESTABLE
    elif moves_too_little(family, scope):
        reason = TOO_FEW_MOVE

    if not has_interval:
        return [Judged(reason)] * family.comparisons
    low, high = family.intervals(level, comparisons, scope)
    p = family.familywise_p(comparisons=comparisons, scope=scope)
    judged = []
    for at in range(family.comparisons):
        bounds = (float(low[0, at]), float(high[0, at]))
        if reason:
            judged.append(Judged(reason, *bounds))
        else:
            judged.append(Judged(verdict(*bounds), *bounds, p=float(p[0, at])))
    return judged


def verdict(low: float, high: float) -> str:
    """What a simultaneous interval of a difference says."""
    if math.isnan(low):
        return NOT_TESTABLE
    if low > 0:
        return BETTER
    return WORSE if high < 0 else WITHIN_NOISE


def has_few_seeds(family: Family) -> bool:
    """Whether the seeds are too few to show their spread. Where samples vary in their place, a
    verdict is about trained models, and takes no seeds."""
    return not family.sampled and family.seeds < MINIMUM_SEEDS


def moves_too_little(family: Family, scope: str = OTHERS) -> bool:
    """Whether so few problems move that nothing can be said. Clusters say how problems hang
    together, which does not matter where the problems are fixed."""
    moving = family.moving_alone if scope == THESE else family.moving
    return float(moving[0]) < MINIMUM_MOVING


def nothing_varies(family: Family, scope: str) -> bool:
    """Whether there is one seed (or one sample of a problem in its place), which says nothing about
    other seeds with the same problems."""
    return scope == THESE and not family.repeated
