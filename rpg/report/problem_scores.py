"""Accuracies of a sweep's runs per problem, and the places at which runs are compared.

A place is a checkpoint, or a mixture of two, which is how accuracies are interpolated to equal
tokens or seconds.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rpg import stats
from rpg.store import queries
from rpg.store.queries import Database

Place = tuple[tuple[int, float], ...]
"""Steps with their weights, which add up to 1."""
Runs = dict[int, tuple[str, Place]]
"""Seed -> run and place."""

Checkpoints = dict[str, tuple[int, dict[int, str]]]
"""Variant -> the step at which it is judged, and its runs there by seed."""
StepRuns = dict[str, dict[int, dict[int, str]]]
"""Variant -> step -> some of its runs there, by seed."""
Pairs = dict[str, tuple[Runs, Runs]]
"""Variant -> its runs, and the baseline's at the same place."""


@dataclass(frozen=True)
class Scores:
    """What rpg.stats.family takes: scores of the variants, of further seeds of the baseline, and
    the clusters of the problems, per benchmark."""

    strata: list[np.ndarray]
    further: list[np.ndarray]
    clusters: list[Sequence[str] | None]

    def family(self) -> stats.Family:
        return stats.family(
            [scores[None] for scores in self.strata],
            further=[scores[None] for scores in self.further],
            clusters=self.clusters,
        )


def at_step(runs: Mapping[int, str], step: int) -> Runs:
    return {seed: (run, ((step, 1.0),)) for seed, run in runs.items()}


def at_last(chosen: Checkpoints, with_samples: StepRuns, baseline: str | None) -> Pairs:
    """Variants that share seeds with the baseline, at the last step at which both have samples of
    these."""
    if baseline is None or baseline not in chosen:
        return {}
    pairs: Pairs = {}
    theirs = with_samples[baseline]
    last, base = chosen[baseline]
    for variant, (end, runs) in chosen.items():
        if variant == baseline or not set(runs) & set(base):
            continue
        ours = with_samples[variant]
        common = [step for step in ours if set(ours[step]) & set(theirs.get(step, ()))]
        # Without a common step there is no test, but the variant is in the table.
        step = max(common, default=min(end, last))
        own_runs = at_step(ours.get(step, runs), step)
        base_runs = at_step(theirs.get(step, base), step)
        pairs[variant] = (own_runs, base_runs)
    return pairs


class ProblemScores:
    """Accuracy per run and problem at these checkpoints, fetched in one query."""

    def __init__(self, db: Database, sweep: str, checkpoints: set[tuple[str, int]]) -> None:
        scores = queries.problem_scores(db, sweep, sorted(checkpoints))
        self.fewest_samples = (
            scores.groupby(["run", "step", "benchmark"])["samples"].min().to_dict()
        )
        self._tables = {}
        self._clusters: dict[Hashable, np.ndarray] = {}
        for benchmark, part in scores.groupby("benchmark"):
            table = part.pivot(index=["run", "step"], columns="problem_id", values="accuracy")
            places = {key: at for at, key in enumerate(table.index)}
            self._tables[benchmark] = places, table.to_numpy()
            labels = part.groupby("problem_id")["cluster"].first().reindex(table.columns)
            # A problem without a cluster is one by itself.
            self._clusters[benchmark] = labels.fillna(labels.index.to_series()).to_numpy()

    def row(self, benchmark: str, run: str, place: Place) -> np.ndarray | None:
        """(problems of the sweep,), NaN for those without a sample; None without any."""
        index, values = self._tables.get(benchmark, ({}, None))
        if values is None or any((run, step) not in index for step, _ in place):
            return None
        return np.asarray(sum(weight * values[index[run, step]] for step, weight in place))

    def array(self, benchmark: str, runs: Runs) -> np.ndarray | None:
        """(seeds, problems that all of the runs have)."""
        block = self.block([benchmark], [runs])
        return block[0][0] if block else None

    def block(self, parts: Sequence[str], variants: Sequence[Runs]) -> list[np.ndarray] | None:
        """Scores (V, S, P) per benchmark, of the seeds and problems that all variants have; None
        without any."""
        compared = self.compared(parts, variants, {})
        return compared.strata if compared else None

    def compared(
        self, parts: Sequence[str], variants: Sequence[Runs], further: Runs
    ) -> Scores | None:
        """Scores of the seeds and problems that all variants have, and of further runs of the
        baseline on these problems, as far as those have all benchmarks; None without any."""
        seeds = sorted(set.intersection(*map(set, variants)))
        if not seeds:
            return None
        shared = [runs[seed] for runs in variants for seed in seeds]
        more = [
            (run, place)
            for _, (run, place) in sorted(further.items())
            if all(self.row(benchmark, run, place) is not None for benchmark in parts)
        ]
        strata = list[np.ndarray]()
        others = list[np.ndarray]()
        clusters = list[Sequence[str] | None]()
        for benchmark in parts:
            rows = [self.row(benchmark, run, place) for run, place in [*shared, *more]]
            if any(row is None for row in rows):
                return None
            values = np.array(rows)
            whole = ~np.isnan(values).any(axis=0)
            if not whole.any():
                return None
            values = values[:, whole]
            strata.append(values[: len(shared)].reshape(len(variants), len(seeds), -1))
            others.append(values[len(shared) :])
            labels = self._clusters[benchmark][whole]
            clusters.append(list(labels) if len(set(labels)) < len(labels) else None)
        return Scores(strata, others, clusters)


def checkpoints(pairs: Pairs) -> set[tuple[str, int]]:
    """(run, step) of all places."""
    sides = [runs for pair in pairs.values() for runs in pair]
    return {(run, step) for runs in sides for run, place in runs.values() for step, _ in place}


def seed_accuracies(
    scores: ProblemScores, variants: Mapping[str, Runs], parts: Sequence[str]
) -> dict[str, dict[int, float]]:
    """Variant -> seed -> its mean over the benchmarks, where it has samples of all."""
    found: dict[str, dict[int, float]] = {}
    for name, runs in variants.items():
        of_variant = found.setdefault(name, {})
        for seed, (run, place) in runs.items():
            rows = [scores.row(benchmark, run, place) for benchmark in parts]
            whole = [row for row in rows if row is not None]
            if len(whole) == len(parts):
                of_variant[seed] = float(np.mean([np.nanmean(row) for row in whole]))
    return found


def without(pairs: Pairs, baseline: str, collapses: Sequence[stats.Collapse]) -> Pairs:
    """The pairs without collapsed seeds, of the variants and of the baseline."""
    gone = {(each.variant, each.seed) for each in collapses}

    def left(name: str, runs: Runs) -> Runs:
        return {seed: place for seed, place in runs.items() if (name, seed) not in gone}

    kept = {name: (left(name, runs), left(baseline, base)) for name, (runs, base) in pairs.items()}
    return {name: sides for name, sides in kept.items() if set(sides[0]) & set(sides[1])}
