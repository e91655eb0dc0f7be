"""How often the log-rank test over rearrangements (rpg.stats.times) calls equal times different.

    python -m benchmarks.times_level                  # the table of docs/error-rates.md
    python -m benchmarks.times_level --pairs 200      # quicker

Times of both variants have one distribution (log-normal, deviation 0.5). Runs that are not there
by a bound are unfinished; `censored` is the share of runs that a variant's bound leaves unfinished,
on average. Where it differs between the variants, their runs are not exchangeable, which is what a
rearrangement assumes. `ties` is the number of moments that times are rounded up to: evaluations are
few. The exit code is 1 if a cell has more than 0.05 of p below 0.05, by more than 1.64 standard
errors of the simulation.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import ndtri

from rpg.stats.times import Times, compare_times

LEVEL = 0.05
BEYOND = 1.64
"""Standard errors of the simulation that the level may be exceeded by."""
DEVIATION = 0.5
SEEDS = ((3, 3), (4, 4), (5, 5), (3, 9), (9, 9))
CENSORED = ((0.0, 0.0), (0.3, 0.3), (0.0, 0.5), (0.2, 0.8))
TIES = (None, 8, 3)


@dataclass(frozen=True)
class Cell:
    """Two variants with equal times. `censored`: the share of unfinished runs of each; `ties`: the
    number of moments, None for times that all differ."""

    seeds: tuple[int, int]
    censored: tuple[float, float]
    ties: int | None

    def draw(self, rng: np.random.Generator) -> tuple[Times, Times]:
        first, second = (
            self._variant(rng, seeds, censored)
            for seeds, censored in zip(self.seeds, self.censored, strict=True)
        )
        return first, second

    def _variant(self, rng: np.random.Generator, seeds: int, censored: float) -> Times:
        z = rng.standard_normal(seeds)
        bound = -ndtri(censored) if censored else math.inf
        if self.ties is not None:
            moments = ndtri(np.arange(1, self.ties) / self.ties)
            z = np.append(moments, 3.0)[np.searchsorted(moments, z)]
        has_reached = z <= bound
        times = np.exp(DEVIATION * z)
        unfinished = np.full((~has_reached).sum(), math.exp(DEVIATION * bound) if censored else 0.0)
        return Times(tuple(times[has_reached]), tuple(unfinished))


def rate(cell: Cell, pairs: int) -> float:
    """The share of pairs of equal variants with p of at most LEVEL."""
    rng = np.random.default_rng(0)
    return float(np.mean([compare_times(*cell.draw(rng)) <= LEVEL for _ in range(pairs)]))


def is_above(share: float, pairs: int) -> bool:
    return share > LEVEL + BEYOND * math.sqrt(LEVEL * (1 - LEVEL) / pairs)


def rows(pairs: int) -> Iterator[tuple[str, bool]]:
    """The rows of the table as Markdown, and whether a cell of the row is above the level."""
    for seeds, censored in product(SEEDS, CENSORED):
        shares = [rate(Cell(seeds, censored, ties), pairs) for ties in TIES]
        cells = " | ".join(f"{share:.3f}" for share in shares)
        first, second = (f"{100 * share:.0f} %" for share in censored)
        row = f"| {seeds[0]} and {seeds[1]} | {first} and {second} | {cells} |"
        yield row, any(is_above(share, pairs) for share in shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=1000)
    pairs = parser.parse_args().pairs
    print("| seeds | censored | times differ | 8 moments | 3 moments |")
    print("|---|---|--:|--:|--:|")
    above = False
    for row, is_row_above in rows(pairs):
        print(row, flush=True)
        above |= is_row_above
    sys.exit(int(above))


if __name__ == "__main__":
    main()
