"""Tests of the variants' differences from a baseline, for the tables of rpg.report.summary.

All differences of a table are one family (rpg.stats.family). Runs are compared at places: a
checkpoint, or a mixture of two, which is how accuracies are interpolated to equal tokens or
seconds.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
Sampled = dict[str, dict[int, dict[int, str]]]
"""Variant -> step -> those of its runs that have samples there, by seed."""
Pairs = dict[str, tuple[Runs, Runs]]
"""Variant -> its runs, and the baseline's at the same place."""

REAL = ("better", "worse")
TOO_FEW = "too few seeds"


class Difference(NamedTuple):
    """A variant's difference from the baseline; without a p-value if it cannot be tested."""

    difference: float
    low: float
    high: float
    p: float
    p_corrected: float
    verdict: str


def at_step(runs: Mapping[int, str], step: int) -> Runs:
    return {seed: (run, ((step, 1.0),)) for seed, run in runs.items()}


def at_last(chosen: Checkpoints, sampled: Sampled, baseline: str | None) -> Pairs:
    """Variants that share seeds with the baseline, at the last step at which both have samples of
    these."""
    if baseline is None or baseline not in chosen:
        return {}
    pairs: Pairs = {}
    theirs, (last, base) = sampled[baseline], chosen[baseline]
    for variant, (end, runs) in chosen.items():
        ours = sampled[variant]
        common = [step for step in ours if set(ours[step]) & set(theirs.get(step, ()))]
        step = max(
            common, default=min(end, last)
        )  # without any there is no test, but it is in the table
        if variant != baseline and set(runs) & set(base):
            pairs[variant] = (
                at_step(ours.get(step, runs), step),
                at_step(theirs.get(step, base), step),
            )
    return pairs


class ProblemScores:
    """Accuracy per run and problem at these checkpoints, fetched in one query."""

    def __init__(self, db: Database, sweep: str, checkpoints: set[tuple[str, int]]) -> None:
        scores = queries.problem_scores(db, sweep, sorted(checkpoints))
        self.samples = scores.groupby(["run", "step", "benchmark"])["samples"].min().to_dict()
        self._tables = {}
        for benchmark, part in scores.groupby("benchmark"):
            table = part.pivot(index=["run", "step"], columns="problem_id", values="accuracy")
            self._tables[benchmark] = (
                {key: at for at, key in enumerate(table.index)},
                table.to_numpy(),
            )

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
        seeds = sorted(set.intersection(*map(set, variants)))
        strata = []
        for benchmark in parts:
            rows = [[self.row(benchmark, *runs[seed]) for seed in seeds] for runs in variants]
            if not seeds or any(row is None for line in rows for row in line):
                return None
            values = np.array(rows)
            values = values[..., ~np.isnan(values).any(axis=(0, 1))]
            if not values.size:
                return None
            strata.append(values)
        return strata


def checkpoints(pairs: Pairs) -> set[tuple[str, int]]:
    """(run, step) of all places."""
    sides = [runs for pair in pairs.values() for runs in pair]
    return {(run, step) for runs in sides for run, place in runs.values() for step, _ in place}


def families(
    scores: ProblemScores, pairs: Pairs, parts: Sequence[str]
) -> Iterator[tuple[list[str], stats.Family]]:
    """Variants that share the same seeds and places with the baseline and have all benchmarks, and
    their differences."""
    alike: dict[Any, list[str]] = {}
    for name, (runs, base) in pairs.items():
        if scores.block(parts, [base, runs]):
            shared = tuple((seed, base[seed]) for seed in sorted(set(runs) & set(base)))
            alike.setdefault(shared, []).append(name)
    for shared, names in alike.items():
        if block := scores.block(parts, [dict(shared), *(pairs[name][0] for name in names)]):
            yield names, stats.family([array[None] for array in block])


def compare(
    scores: ProblemScores,
    pairs: Pairs,
    benchmarks: Mapping[str, Sequence[str]],
    level: float = stats.ERROR,
) -> dict[tuple[str, str], Difference]:
    """(variant, benchmark) -> its difference, all of them one family; `benchmarks` are names with
    their parts (a mean has several)."""
    fitted = []
    for name, parts in benchmarks.items():
        fitted += [(name, *family) for family in families(scores, pairs, parts)]
    together = sum(len(variants) for _, variants, _ in fitted)
    results: dict[tuple[str, str], Difference] = {}
    for benchmark, variants, family in fitted:
        columns = np.concatenate(
            [family.difference, *family.intervals(level / together), family.p_values()]
        )
        for variant, (estimate, low, high, p) in zip(variants, columns.T.tolist(), strict=True):
            few = family.seeds < stats.MINIMUM_SEEDS and not math.isnan(p)
            if math.isnan(p):
                low = high = math.nan
            tested, verdict = (math.nan, TOO_FEW) if few else (p, "")
            results[variant, benchmark] = Difference(estimate, low, high, tested, math.nan, verdict)
    corrected = stats.holm(np.array([result.p for result in results.values()])) * (
        stats.ERROR / level
    )
    for (key, result), p in zip(
        list(results.items()), np.minimum(corrected, 1.0).tolist(), strict=True
    ):
        verdict = result.verdict or stats.verdict(result.difference, p)
        results[key] = result._replace(p_corrected=p, verdict=verdict)
    return results


def outcomes(results: Mapping[tuple[str, str], Difference]) -> dict[str, tuple[float, float, str]]:
    """As rpg.stats.Look.results has them."""
    return {
        json.dumps(key): (result.low, result.high, result.verdict)
        for key, result in results.items()
    }


def grown(
    looks: Sequence[stats.Look], name: str, pairs: Pairs, finished: set[str]
) -> Iterator[stats.Look]:
    """Looks at data that are still there and have grown since, with what they found at these steps;
    and this one (`name`).

    Another baseline or other benchmarks are another question, and runs that took the place of
    others are other data. If there are other variants now, but nothing is new of those at which a
    look was, it costs nothing.
    """
    baseline, _, steps, benchmarks = json.loads(name)
    for look in (
        look for look in looks if look.compared.startswith("[")
    ):  # not over levels of factors
        of, variants, at, parts = json.loads(look.compared)
        seen, sides = set(look.runs), {each: pairs[each] for each in variants if each in pairs}
        still = {
            n: p for n, p in sides.items() if all(seen & {run for run, _ in s.values()} for s in p)
        }
        new = still and (at != steps or {run for run, _ in checkpoints(still)} & finished - seen)
        if (of, parts) == (baseline, benchmarks) and (
            new or (look.compared, seen) == (name, finished)
        ):
            found = {
                key: r
                for key, r in look.results.items()
                if at == steps and json.loads(key)[0] in still
            }
            yield look._replace(results=found)


def looked_at(
    results: Mapping[tuple[str, str], Difference], earlier: Sequence[stats.Look]
) -> dict[tuple[str, str], Difference]:
    """With what earlier looks have found: a verdict stays while the sign does, and all intervals
    hold together."""
    combined = {}
    for key, result in results.items():
        before = [
            look.results[json.dumps(key)] for look in earlier if json.dumps(key) in look.results
        ]
        low = max([result.low, *(former[0] for former in before)])
        high = min([result.high, *(former[1] for former in before)])
        if low <= result.difference <= high:
            result = result._replace(low=low, high=high)
        settled = [former[2] for former in before if former[2] == REAL[result.difference < 0]]
        combined[key] = result._replace(verdict=settled[0]) if settled else result
    return combined
