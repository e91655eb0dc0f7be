"""How much error a comparison may still make when it is looked at again, with more runs than
before.

Alpha spending by information: while the planned runs come in, little is spent (as O'Brien and
Fleming do), so that nearly all of `ERROR` is left for the complete sweep. Runs that are added later
share `LATER_ERROR`. Looks are treated as if they were unrelated, so any number of them, at any
time, keeps the sum. That holds for looks that were recorded: who shows verdicts records the look
(`rpg.report.summary.record_look`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rpg.stats.comparisons import ERROR

LATER_ERROR = 0.01


class Look(NamedTuple):
    """One look at the differences of `compared` (a text that identifies them): its finished runs,
    and what was found.

    `number` counts looks from 1. `planned` is the number of runs that the first expected; `level`
    the error that this one may make. `spreads` are those of rpg.stats.Spreads on the benchmarks.
    `results` has low, high and verdict of every difference by name.
    """

    compared: str
    runs: Sequence[str]
    planned: int
    number: int
    level: float
    benchmarks: Sequence[str]
    spreads: Sequence[float] | None
    results: Mapping[str, tuple[float, float, str]]


def next_look(
    looks: Sequence[Look], compared: str, runs: Sequence[str], planned: int
) -> tuple[list[Look], int, float]:
    """The looks taken before this one; the number of runs planned at the first; and the level
    (alpha) that is left for this one.

    The same runs again are not a new look: they get the level they had. A look that saw more runs
    than are here now, and those after it, are not counted.
    """
    earlier: list[Look] = []
    at_hand = set(runs)
    for look in looks:
        seen = set(look.runs)
        if look.compared == compared and seen == at_hand:
            return earlier, look.planned, look.level
        if at_hand < seen:
            break
        earlier.append(look)
    planned = looks[0].planned if looks else max(planned, len(runs))
    spent = sum(look.level for look in earlier)
    level = max(_allowed(len(runs) / planned) - spent, 1e-6)
    return earlier, planned, level


def _allowed(share: float) -> float:
    """The error of all looks together until this share of the planned runs is there."""
    while_they_come = ERROR * min(1.0, share) ** 3
    later = LATER_ERROR * (1 - 1 / max(1.0, share))
    return while_they_come + later
