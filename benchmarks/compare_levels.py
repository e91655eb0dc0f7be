"""How often `rpg compare` calls equal models different: simulated pairs, judged by its own test.

    python -m benchmarks.compare_levels                 # every cell, 5,000 pairs each
    python -m benchmarks.compare_levels --pairs 500

A cell is a number of problems, samples of each, and clusters of problems or none. The logit of a
right answer is a problem's ease (standard deviation 1.5). "for others like them": each model adds
its own shift to each problem, or to each cluster of five, so that models are equal over problems of
the kind and differ at any that are drawn. "for these problems": shifts are moved so that both
models have the same accuracy at the problems that were drawn. The exit code is 1 if a cell has more
false differences than 0.06.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import special

from rpg.stats import ERROR, MINIMUM_MOVING, OTHERS, THESE
from rpg.stats.sampled import answers_of, sampled_family

ALLOWED = 0.06
BLOCK = 250
"""Pairs that are drawn at once, to bound memory."""
CLUSTER = 5
"""Problems of a cluster."""


@dataclass(frozen=True)
class Cell:
    problems: int
    samples: int
    clusters: bool
    scope: str
    accuracy: float = 0.5

    @property
    def labels(self) -> Sequence[int] | None:
        return [place // CLUSTER for place in range(self.problems)] if self.clusters else None


def grid() -> Iterator[Cell]:
    for problems, samples, clusters in product(
        (30, 100, 300, 1000), (1, 2, 4, 16, 64), (False, True)
    ):
        yield Cell(problems, samples, clusters, OTHERS)
        if samples > 1:
            yield Cell(problems, samples, clusters, THESE)
    for samples, accuracy in product((1, 2, 16, 64), (0.1, 0.9)):
        yield Cell(100, samples, False, OTHERS, accuracy)
        if samples > 1:
            yield Cell(100, samples, False, THESE, accuracy)


def accuracies(cell: Cell, pairs: int, rng: np.random.Generator) -> np.ndarray:
    """Chances (N, 2, P) of a right answer for two models that are equal in the cell's sense."""
    ease = special.logit(cell.accuracy) + 1.5 * rng.standard_normal((pairs, 1, cell.problems))
    units = cell.problems // CLUSTER if cell.clusters else cell.problems
    shifts = 0.6 * rng.standard_normal((pairs, 2, units))
    if cell.clusters:
        shifts = np.repeat(shifts, CLUSTER, axis=2)
        shifts = shifts + 0.3 * rng.standard_normal((pairs, 2, cell.problems))
    logits = ease + shifts
    if cell.scope == THESE:
        logits = level_out(logits)
    return np.asarray(special.expit(logits))


def level_out(logits: np.ndarray) -> np.ndarray:
    """The second model's logits (N, 2, P) moved by one number until both means are the same."""
    logits = logits.copy()
    for _ in range(30):
        chances = special.expit(logits)
        missing = chances[:, 0].mean(axis=1) - chances[:, 1].mean(axis=1)
        slope = (chances[:, 1] * (1 - chances[:, 1])).mean(axis=1)
        logits[:, 1] += (missing / slope)[:, None]
    return logits


def false_share(cell: Cell, pairs: int, rng: np.random.Generator) -> tuple[float, float]:
    """Shares of pairs that are called different, and that have no verdict."""
    different = 0
    untested = 0
    for start in range(0, pairs, BLOCK):
        size = min(BLOCK, pairs - start)
        right = rng.binomial(cell.samples, accuracies(cell, size, rng))
        drawn = answers_of(right, np.full((2, cell.problems), cell.samples))
        labels = cell.labels if cell.scope == OTHERS else None
        family = sampled_family([drawn], [labels])
        moving = family.moving >= MINIMUM_MOVING
        low, high = family.intervals(ERROR, scope=cell.scope)
        different += int((((low > 0) | (high < 0))[:, 0] & moving).sum())
        untested += int((~moving).sum())
    return different / pairs, untested / pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5000)
    pairs = parser.parse_args().pairs
    print("| problems | samples | clusters | accuracy | verdict | different | none |")
    print("|--:|--:|---|--:|---|--:|--:|")
    worst = 0.0
    for number, cell in enumerate(grid()):
        share, untested = false_share(cell, pairs, np.random.default_rng([7, number]))
        clusters = "of five" if cell.clusters else ""
        print(
            f"| {cell.problems:,} | {cell.samples} | {clusters} | {cell.accuracy:g} | {cell.scope} "
            f"| {share:.3f} | {untested:.3f} |",
            flush=True,
        )
        worst = max(worst, share)
    print(f"\nLargest share of false differences: {worst:.4f} (allowed: {ALLOWED})")
    return 1 if worst > ALLOWED else 0


if __name__ == "__main__":
    raise SystemExit(main())
