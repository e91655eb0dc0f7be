"""`rpg compare` beside evalstats on the same simulated samples: false differences and power.

    pip install evalstats==0.3.3        # in an environment of its own
    python -m benchmarks.compare_evalstats --pairs 400

Both judge the same pairs of models, evalstats with its defaults. "equal": models that are equal
over problems of the kind, and differ at those that were drawn. "better": the second model's logits
are .5 higher. A cell is a number of problems and of samples of each, clusters of five or none;
evalstats takes no clusters.
"""

import argparse
import warnings

import numpy as np
from scipy import special

from benchmarks.compare_levels import Cell, accuracies
from rpg.stats import ERROR, OTHERS
from rpg.stats.sampled import answers_of, sampled_family

CELLS = [
    Cell(30, 1, False, OTHERS),
    Cell(30, 8, False, OTHERS),
    Cell(100, 1, False, OTHERS),
    Cell(100, 8, False, OTHERS),
    Cell(100, 8, True, OTHERS),
]
BETTER = 0.5
"""How much higher the better model's logits are."""


def differs_here(cell: Cell, right: np.ndarray) -> bool:
    """Whether the interval of `rpg compare`, for others like them, excludes zero; right: counts (2,
    P)."""
    drawn = answers_of(right[None], np.full((2, cell.problems), cell.samples))
    low, high = sampled_family([drawn], [cell.labels]).intervals(ERROR, scope=OTHERS)
    return bool(low[0, 0] > 0 or high[0, 0] < 0)


def differs_there(cell: Cell, right: np.ndarray) -> bool:
    """The same of evalstats, from one row per sample."""
    import evalstats

    rows = [
        {"model": model, "item": f"p{problem}", "run": sample, "score": float(sample < count)}
        for model, counts in zip("ab", right, strict=True)
        for problem, count in enumerate(counts)
        for sample in range(cell.samples)
    ]
    compared = evalstats.compare_models(evalstats.load_from(rows), baseline="a")
    [pair] = compared.to_dict()["pairwise"]
    return bool(pair["significant"])


def shares(cell: Cell, pairs: int, better: float, seed: int) -> tuple[float, float]:
    """Shares of pairs that rpg and evalstats call different."""
    rng = np.random.default_rng(seed)
    chances = accuracies(cell, pairs, rng)
    chances[:, 1] = special.expit(special.logit(chances[:, 1]) + better)
    right = rng.binomial(cell.samples, chances)
    here = np.mean([differs_here(cell, each) for each in right])
    there = np.mean([differs_there(cell, each) for each in right])
    return float(here), float(there)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=400)
    pairs = parser.parse_args().pairs
    warnings.filterwarnings("ignore")
    print("| problems | samples | clusters | equal: rpg | evalstats | better: rpg | evalstats |")
    print("|--:|--:|---|--:|--:|--:|--:|")
    for number, cell in enumerate(CELLS):
        equal = shares(cell, pairs, 0.0, number)
        better = shares(cell, pairs, BETTER, number)
        clusters = "of five" if cell.clusters else ""
        numbers = " | ".join(f"{share:.3f}" for share in (*equal, *better))
        print(f"| {cell.problems} | {cell.samples} | {clusters} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
