"""How often a verdict at equal tokens depends on how often checkpoints were evaluated.

`python -m benchmarks.spacings --pairs 500` simulates pairs of variants with concave curves, judges
each at equal tokens from every step, and again from evaluations that are further apart.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rpg.report import equal_spending
from rpg.report.equal_spending import Curve
from rpg.report.problem_scores import ProblemScores

STEPS = 40
SPACINGS = (2, 4, 5, 8, 10, 20)
SEEDS = 3
PROBLEMS = 100
SAMPLES = 4
NOISE = "within noise"
REFUSED = "refused"


class Simulated(ProblemScores):
    """Scores of one benchmark in memory."""

    def __init__(self, index: Mapping[tuple[str, int], int], values: Sequence[np.ndarray]) -> None:
        self._tables = {"only": (dict(index), np.array(values))}
        self._clusters = {"only": np.arange(len(values[0]) if len(values) else 0)}


class Pair:
    """Two variants with concave curves, three seeds each, evaluated on the same problems at every
    step."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.runs: dict[str, dict[int, str]] = {"base": {}, "ours": {}}
        self.spent: dict[str, Curve] = {}
        self.accuracies: dict[str, dict[int, float]] = {}
        self._index: dict[tuple[str, int], int] = {}
        self._values: list[np.ndarray] = []
        start = rng.uniform(0.05, 0.25)
        difficulty = rng.normal(0, 1.5, PROBLEMS)
        for name in self.runs:
            self._add_variant(rng, name, start, difficulty)
        self.problems = Simulated(self._index, self._values)

    def _add_variant(
        self, rng: np.random.Generator, name: str, start: float, difficulty: np.ndarray
    ) -> None:
        end = rng.uniform(0.35, 0.95)
        scale = rng.uniform(2, 30)
        cost = 100 if name == "base" else 100 * rng.uniform(0.4, 3)
        spread = rng.uniform(0.05, 0.3)
        for seed in range(SEEDS):
            run = f"{name}{seed}"
            self.runs[name][seed] = run
            tokens_of_steps = cost * rng.uniform(0.95, 1.05, STEPS)
            total = np.concatenate([[0], tokens_of_steps.cumsum()])
            self.spent[run] = {step: float(tokens) for step, tokens in enumerate(total)}
            self.accuracies[run] = {}
            seed_effect = rng.normal(0, spread) + rng.normal(0, 0.5, PROBLEMS)
            for step in range(STEPS + 1):
                mean = start + (end - start) * (1 - np.exp(-step / scale))
                ability = 1.35 * np.log(mean / (1 - mean)) + min(1, step / 5) * seed_effect
                chance = 1 / (1 + np.exp(-ability - difficulty))
                scores = rng.binomial(SAMPLES, chance) / SAMPLES
                self._index[run, step] = len(self._values)
                self._values.append(scores)
                self.accuracies[run][step] = float(scores.mean())

    def verdict(self, steps: set[int]) -> str:
        """At equal tokens, from evaluations at these steps."""
        spent = {run: _at(curve, steps) for run, curve in self.spent.items()}
        accuracies = {run: _at(curve, steps) for run, curve in self.accuracies.items()}
        budget = min(curve[STEPS] for curve in spent.values())
        variants = {
            name: equal_spending.around(runs, spent, accuracies, budget)
            for name, runs in self.runs.items()
        }
        differences, refused = equal_spending.compare(
            self.problems, variants, "base", ["only"], 0.05
        )
        assert set(differences) | set(refused) == {"ours"}
        return differences["ours"].verdict if differences else REFUSED


def _at(curve: Mapping[int, float], steps: set[int]) -> dict[int, float]:
    return {step: value for step, value in curve.items() if step in steps}


def evaluated(spacing: int) -> set[int]:
    """Every `spacing` steps and at the end."""
    return {*range(0, STEPS, spacing), STEPS}


@dataclass(frozen=True)
class Agreement:
    """Verdicts from every step beside those from evaluations that are `spacing` steps apart."""

    spacing: int
    counts: Mapping[tuple[str, str], int]
    """(verdict from every step, verdict from the spacing) -> pairs."""

    @property
    def pairs(self) -> int:
        return sum(self.counts.values())

    @property
    def opposite(self) -> int:
        """Pairs that are better by one and worse by the other."""
        return self.counts.get(("better", "worse"), 0) + self.counts.get(("worse", "better"), 0)

    @property
    def refused(self) -> int:
        return sum(count for (_, other), count in self.counts.items() if other == REFUSED)

    @property
    def against_noise(self) -> int:
        """Pairs that are within noise by one, and better or worse by the other."""
        return sum(
            count
            for (dense, other), count in self.counts.items()
            if REFUSED not in (dense, other) and dense != other and NOISE in (dense, other)
        )


def simulate(pairs: int, spacings: Sequence[int], seed: int) -> list[Agreement]:
    rng = np.random.default_rng(seed)
    counts: dict[int, Counter[tuple[str, str]]] = {spacing: Counter() for spacing in spacings}
    for _ in range(pairs):
        pair = Pair(rng)
        dense = pair.verdict(evaluated(1))
        for spacing in spacings:
            counts[spacing][dense, pair.verdict(evaluated(spacing))] += 1
    return [Agreement(spacing, counts[spacing]) for spacing in spacings]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    print("spacing  opposite  against noise  refused  pairs")
    for each in simulate(options.pairs, SPACINGS, options.seed):
        print(
            f"{each.spacing:7}  {each.opposite:8}  {each.against_noise / each.pairs:13.1%}  "
            f"{each.refused / each.pairs:7.1%}  {each.pairs:5}"
        )


if __name__ == "__main__":
    main()
