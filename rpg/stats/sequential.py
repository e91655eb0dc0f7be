"""How much error a comparison may still make when it is looked at again, with more runs than before.

Alpha spending by information: while the planned runs come in, little is spent (as O'Brien and Fleming do), so that nearly
all of `ERROR` is left for the complete sweep. Runs that are added later share `LATER_ERROR`. Looks are treated as if they
were unrelated, so any number of them, at any time, keeps the sum.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rpg.stats.comparisons import ERROR

LATER_ERROR = 0.01


class Look(NamedTuple):
    """One look at the differences of `compared` (a text that identifies them): its runs, and what was found.

    `number` counts looks from 1. `planned` is the number of runs that the first expected; `level` the error that this one
    may make. `spreads` are those of rpg.stats.Spreads on the benchmarks. `results` has low, high and verdict of every
    difference by name.
    """

    compared: str
    runs: Sequence[str]
    planned: int
    number: int
    level: float
    benchmarks: Sequence[str]
    spreads: Sequence[float] | None
    results: Mapping[str, tuple[float, float, str]]


def allowance(runs: int, planned: int) -> float:
    """The error that may have been made when this many runs are in."""
    return ERROR * min(1.0, runs / planned) ** 3 + LATER_ERROR * max(0.0, 1 - planned / runs)


def next_look(
    looks: Sequence[Look], compared: str, runs: Sequence[str], planned: int
) -> tuple[list[Look], int, float]:
    """Earlier looks at the same differences with other runs, the number planned at the first, and the level of this one.

    The same runs again are no new look: they get the level they had.
    """
    earlier, alike = list[Look](), [look for look in looks if look.compared == compared]
    for look in alike:
        if set(runs) == set(look.runs):
            return earlier, look.planned, look.level
        if set(runs) < set(look.runs):
            break
        earlier.append(look)
    planned = alike[0].planned if alike else max(planned, len(runs))
    spent = sum(look.level for look in earlier)
    return earlier, planned, max(allowance(len(runs), planned) - spent, 1e-6)
