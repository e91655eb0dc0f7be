"""Tests of the variants' differences from a baseline, for the tables of rpg.report.summary.

A table has two families, each judged at the whole level: the differences of the mean over
benchmarks, and those of all single benchmarks. Runs are compared at places: a checkpoint, or a
mixture of two, which is how accuracies are interpolated to equal tokens or seconds.

A verdict is one word of stats.verdict (better, worse, within noise), or one of NO_VERDICT, which
says why there is none.
"""

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
TOO_FEW_MOVE = "too few problems move"
NOT_MEASURED = "not measured"
"""At equal spending: the checkpoints of a variant do not carry a verdict."""
NO_VERDICT = (TOO_FEW, TOO_FEW_MOVE, NOT_MEASURED, stats.NOT_TESTABLE)


class Difference(NamedTuple):
    """A variant's difference from the baseline; without a p-value if it cannot be tested.

    Bounds and `p_corrected` hold for all differences of the table together, and `verdict` says on
    which side of zero the bounds are: it is about other problems of the kind. `these_verdict` is
    about the problems at hand, where seeds alone vary. `p_mixed` is that of a plain crossed mixed
    model, for comparison.
    """

    difference: float
    low: float
    high: float
    p: float
    p_corrected: float
    verdict: str
    p_mixed: float = math.nan
    these_low: float = math.nan
    these_high: float = math.nan
    these_verdict: str = ""


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


def at_last(chosen: Checkpoints, sampled: Sampled, baseline: str | None) -> Pairs:
    """Variants that share seeds with the baseline, at the last step at which both have samples of
    these."""
    if baseline is None or baseline not in chosen:
        return {}
    pairs: Pairs = {}
    theirs = sampled[baseline]
    (last, base) = chosen[baseline]
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
            place
            for _, place in sorted(further.items())
            if all(self.row(benchmark, *place) is not None for benchmark in parts)
        ]
        strata = list[np.ndarray]()
        others = list[np.ndarray]()
        clusters = list[Sequence[str] | None]()
        for benchmark in parts:
            rows = [self.row(benchmark, *place) for place in [*shared, *more]]
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


def families(
    scores: ProblemScores, pairs: Pairs, parts: Sequence[str]
) -> Iterator[tuple[list[str], stats.Family]]:
    """Variants that share the same seeds and places with the baseline and have all benchmarks, and
    their differences. Seeds that only the baseline has count, too."""
    alike: dict[Any, list[str]] = {}
    for name, (runs, base) in pairs.items():
        if scores.block(parts, [base, runs]):
            shared = tuple((seed, base[seed]) for seed in sorted(set(runs) & set(base)))
            further = tuple((seed, base[seed]) for seed in sorted(set(base) - set(runs)))
            alike.setdefault((shared, further), []).append(name)
    for (shared, further), names in alike.items():
        variants = [dict(shared), *(pairs[name][0] for name in names)]
        compared = scores.compared(parts, variants, dict(further))
        if compared:
            yield names, compared.family()


def compare(
    scores: ProblemScores,
    pairs: Pairs,
    benchmarks: Mapping[str, Sequence[str]],
    level: float = stats.ERROR,
) -> dict[tuple[str, str], Difference]:
    """(variant, benchmark) -> its difference, all of them tested together; `benchmarks` are names
    with their parts (a mean has several)."""
    fitted = []
    for name, parts in benchmarks.items():
        fitted += [(name, *family) for family in families(scores, pairs, parts)]
    comparisons = sum(len(variants) for _, variants, _ in fitted)
    results: dict[tuple[str, str], Difference] = {}
    for benchmark, variants, family in fitted:
        differences = differences_of(family, comparisons, level)
        results |= {
            (variant, benchmark): result
            for variant, result in zip(variants, differences, strict=True)
        }
    return results


def differences_of(family: stats.Family, comparisons: int, level: float) -> list[Difference]:
    """The differences of one table's family, judged together with all `comparisons`.

    The verdict: too few seeds; else too few problems move; else by the interval.
    """
    low, high = family.intervals(level, comparisons)
    these_low, these_high = family.intervals(level, comparisons, stats.THESE)
    # Scaled so that it can be compared with 0.05 at every look.
    corrected = np.minimum(family.together(comparisons=comparisons) * (stats.ERROR / level), 1.0)
    columns = {
        "difference": family.difference,
        "low": low,
        "high": high,
        "p": family.p_values(),
        "p_corrected": corrected,
        "p_mixed": family.mixed_p(comparisons),
        "these_low": these_low,
        "these_high": these_high,
    }
    few_seeds = family.seeds < stats.MINIMUM_SEEDS
    few_move = moves_too_little(family)
    rows = []
    for values in zip(*(column[0].tolist() for column in columns.values()), strict=True):
        row = Difference(**dict(zip(columns, values, strict=True)), verdict="")
        if math.isnan(row.p):
            row = row._replace(low=math.nan, high=math.nan, these_low=math.nan, these_high=math.nan)
        row = row._replace(
            verdict=stats.verdict(row.low, row.high),
            these_verdict=stats.verdict(row.these_low, row.these_high),
        )
        if few_seeds and not math.isnan(row.p):
            row = _untested(row, TOO_FEW)
        elif few_move:
            # Nothing is known of other problems where these hardly move: no interval either.
            row = _untested(row, TOO_FEW_MOVE)._replace(low=math.nan, high=math.nan)
        rows.append(row)
    return rows


def moves_too_little(family: stats.Family) -> bool:
    """Whether so few problems move that nothing is known of others like them."""
    return float(family.moving[0]) < stats.MINIMUM_MOVING


def _untested(row: Difference, why: str) -> Difference:
    return row._replace(
        p=math.nan,
        p_corrected=math.nan,
        p_mixed=math.nan,
        verdict=why,
        these_low=math.nan,
        these_high=math.nan,
        these_verdict=why,
    )


def outcomes(results: Mapping[tuple[str, str], Difference]) -> dict[str, tuple[float, float, str]]:
    """As rpg.stats.Look.results has them."""
    return {
        json.dumps(key): (result.low, result.high, result.verdict)
        for key, result in results.items()
    }


def grown(
    looks: Sequence[stats.Look], name: str, pairs: Pairs, finished: set[str]
) -> Iterator[stats.Look]:
    """The earlier looks that count, with what they found.

    A look counts if it had the same baseline and benchmarks, some of its variants are still
    compared with runs that it saw, and these have new finished runs or another step; or if it is
    this very look (`name`) again. Any other costs no level: it asked another question, of other
    data, or saw all that there is. What it found is kept only for the same steps.
    """
    baseline, _, steps, benchmarks = json.loads(name)
    for look in (
        look for look in looks if look.compared.startswith("[")
    ):  # not over levels of factors
        of, variants, at, parts = json.loads(look.compared)
        seen = set(look.runs)
        sides = {each: pairs[each] for each in variants if each in pairs}
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
    """With what earlier looks have found: the interval is the intersection with theirs, stretched
    to contain the difference that is seen now, and the verdict is read from it.

    So a verdict stays while the difference has its sign, and goes with it. `p_corrected` stays that
    of this look: it can be above .05 beside "better".
    """
    combined = {}
    for key, result in results.items():
        before = [
            look.results[json.dumps(key)] for look in earlier if json.dumps(key) in look.results
        ]
        intervals = [(low, high) for low, high, _ in before if not math.isnan(low)]
        if result.verdict not in NO_VERDICT and not math.isnan(result.low):
            low = min(max([result.low, *(low for low, _ in intervals)]), result.difference)
            high = max(min([result.high, *(high for _, high in intervals)]), result.difference)
            verdict = stats.verdict(low, high)
            result = result._replace(low=low, high=high, verdict=verdict)
        combined[key] = result
    return combined


def seed_accuracies(
    scores: ProblemScores, variants: Mapping[str, Runs], parts: Sequence[str]
) -> dict[str, dict[int, float]]:
    """Variant -> seed -> its mean over the benchmarks, where it has samples of all."""
    found: dict[str, dict[int, float]] = {}
    for name, runs in variants.items():
        of_variant = found.setdefault(name, {})
        for seed, place in runs.items():
            rows = [scores.row(benchmark, *place) for benchmark in parts]
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
