"""How often intervals of the expected best of k trials hold: the jackknife's (rpg.stats.searches),
and the bootstrap's.

    python -m benchmarks.expected_best                        # 1,000 searches per row, a minute

The accuracies of a search's trials follow one of four distributions. Shown is the share of searches
whose interval contains the expected highest of k new trials, jackknife / bootstrap (percentiles of
500 samples), for k up to a quarter of the trials and for half of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from rpg.stats.searches import ENOUGH, expected_best, jackknife

DRAWN: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "symmetric": lambda rng, shape: rng.beta(2, 2, shape),
    "mostly good": lambda rng, shape: rng.beta(5, 1.5, shape),
    "seldom good": lambda rng, shape: rng.beta(1, 3, shape),
    "two groups": lambda rng, shape: (
        np.where(rng.random(shape) < 0.4, 0.1, 0.6) + 0.07 * rng.normal(size=shape)
    ),
}
TRIALS = 8, 12, 24, 48


def covered(
    rng: np.random.Generator, name: str, trials: int, searches: int
) -> tuple[np.ndarray, np.ndarray]:
    """(k,) shares of searches in which the jackknife's and the bootstrap's interval contain the
    truth."""
    draw = DRAWN[name]
    truth = np.array([draw(rng, (40_000, k)).max(axis=1).mean() for k in range(1, trials // 2 + 1)])
    hits = np.zeros((2, len(truth)))
    for _ in range(searches):
        values = draw(rng, (trials,))
        best, half = expected_best(values)[: len(truth)], jackknife(values, len(truth))
        again = expected_best(values[rng.integers(trials, size=(500, trials))])[:, : len(truth)]
        low, high = np.quantile(again, (0.025, 0.975), axis=0)
        hits += [abs(best - truth) <= half, (low <= truth) & (truth <= high)]
    first, second = hits / searches
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=1000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| accuracies | trials | k = 1 | k = n/8 | k = n/4 | k = n/2 |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in DRAWN:
        for trials in TRIALS:
            both = covered(rng, name, trials, options.searches)
            cells = [
                " / ".join(f"{each[max(1, k) - 1]:.0%}" for each in both)
                for k in (1, trials // 8, trials // ENOUGH, trials // 2)
            ]
            print(f"| {name} | {trials} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
