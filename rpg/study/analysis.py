"""What a study's trials and reported runs show: numbers for its report, from data frames and stored scores."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas

from rpg import stats
from rpg.report.verdicts import ProblemScores, Runs
from rpg.stats import over_problems, searches
from rpg.stats.variance_components import variance_components
from rpg.store import queries
from rpg.study.registration import Registration
from rpg.study.spec import Space

FACTOR_NAMES = {"model.warm_start.seed": "initial model"}


def held(trials: pandas.DataFrame) -> np.ndarray:
    """What a search has in its hands after each ended trial of a variant, in their order: the accuracy it finished with.

    A pruned trial was trained to the end, but with fewer seeds, and cannot win: it counts with its accuracy so far, or with
    the lowest that finished in its batch if that is lower. A failed one has no accuracy, and counts as 0.
    """
    ended = trials[trials["state"].isin(["finished", "pruned", "failed"])]
    lowest = ended["objective"].where(ended["state"] == "finished").groupby(ended["batch"]).transform("min")
    value = ended["objective"].where(ended["state"] == "finished", np.fmin(ended["objective"], lowest))
    return value.where(ended["state"] != "failed", 0.0).to_numpy(float)


def winner(trials: pandas.DataFrame) -> Any:
    """Index of the finished trial of a variant with the highest objective, of equal ones the first; None without any."""
    finished = trials.loc[trials["state"] == "finished", "objective"]
    return None if finished.empty else finished.idxmax()


def good_share(trials: pandas.DataFrame, space: Space, matters: float) -> float:
    """Share of a variant's space (in logarithms where it is searched in them) whose nearest trial finished within `matters`
    of the best; a pruned or failed trial is none. NaN before one has finished, or with nothing to search."""
    ended = trials[trials["state"].isin(["finished", "pruned", "failed"])]
    best = winner(ended)
    if best is None or not space:
        return math.nan
    good = (ended["state"] == "finished") & (ended["objective"] >= ended.loc[best, "objective"] - matters)
    choices = {at: len(values.choices) for at, values in enumerate(space.values()) if values.choices is not None}
    places = np.stack([_places(ended[field], values) for field, values in space.items()], axis=1)
    return searches.good_region(places, good.to_numpy(), choices)


def _places(column: pandas.Series, values: Any) -> np.ndarray:
    """Settings of one field as places in [0, 1], or as the numbers of choices."""
    if values.choices is not None:
        known = [json.dumps(choice, sort_keys=True) for choice in values.choices]
        return np.array([known.index(json.dumps(_plain(value), sort_keys=True)) for value in column], float)
    ends, at = np.array([values.low, values.high], float), column.to_numpy(float)
    if values.log is not None:
        ends, at = np.log(ends), np.log(at)
    return np.asarray((at - ends[0]) / (ends[1] - ends[0]))


def _plain(value: Any) -> Any:
    """A number of pandas as one of JSON."""
    return value.item() if isinstance(value, np.generic) else value


def effort_curves(trials: pandas.DataFrame) -> tuple[list[str], searches.Effort] | None:
    """The variants that have ended two trials, and what they are expected to reach with more; None of fewer than two."""
    values = {str(name): held(part) for name, part in trials.groupby("variant", sort=False)}
    values = {name: each for name, each in values.items() if len(each) > 1}
    return (list(values), searches.effort(list(values.values()))) if len(values) > 1 else None


class Reported(NamedTuple):
    """Scores of the reported runs: per benchmark (variants, seeds, problems), means over the levels of crossed factors, and
    the same with the levels of each factor as axes before the seeds'. `samples` per problem; `runs` by variant."""

    variants: list[str]
    strata: list[np.ndarray]
    cells: list[np.ndarray]
    samples: int
    runs: dict[str, list[str]]


def reported(db: duckdb.DuckDBPyConnection, registered: Registration) -> Reported | None:
    """Of the registered runs at the last step that all of a variant have been evaluated at on all benchmarks, for the seeds
    that all variants have. None before there are any."""
    last = _last_steps(db, registered)
    factors = list(registered.factors)
    runs: dict[str, dict[tuple[str, ...], Runs]] = {}
    for name, planned in registered.runs.items():
        if name in last:
            level = tuple(json.dumps(planned["factors"][field]) for field in factors)
            place = (name, ((last[name], 1.0),))
            runs.setdefault(planned["variant"], {}).setdefault(level, {})[int(planned["seed"])] = place
    shape = [len(levels) for levels in registered.factors.values()]
    runs = {name: levels for name, levels in runs.items() if len(levels) == math.prod(shape)}
    variants = [name for name in registered.variants if name in runs]
    if not variants:
        return None
    scores = ProblemScores(db, registered.sweep, {(name, step) for name, step in last.items()})
    order = [tuple(levels) for levels in sorted(runs[variants[0]])]
    block = scores.block(registered.benchmarks, [runs[name][level] for name in variants for level in order])
    if block is None:
        return None
    cells = [array.reshape(len(variants), *shape, *array.shape[1:]) for array in block]
    samples = min(scores.samples[name, step, part] for name, step in last.items() for part in registered.benchmarks)
    strata = [array.mean(axis=tuple(range(1, 1 + len(shape)))) if shape else array for array in cells]
    named = {name: [place[0] for level in order for place in runs[name][level].values()] for name in variants}
    return Reported(variants, strata, cells, samples, named)


def _last_steps(db: duckdb.DuckDBPyConnection, registered: Registration) -> dict[str, int]:
    """Registered run -> the last step at which it, and all that have got so far, have every benchmark."""
    scores = queries.scores(db, registered.sweep)
    mine = scores[scores["run"].isin(list(registered.runs)) & scores["benchmark"].isin(registered.benchmarks)]
    whole = mine.groupby(["run", "step"])["benchmark"].nunique()
    steps = whole[whole == len(registered.benchmarks)].reset_index()
    if steps.empty:
        return {}
    return {str(run): int(steps["step"].max()) for run in steps.loc[steps["step"] == steps["step"].max(), "run"]}


class OverProblems(NamedTuple):
    """Of one variant, over all problems of all benchmarks alike."""

    variant: str
    rank: over_problems.Rank
    middle: stats.Estimate
    improvement: stats.Estimate | None
    """Over the baseline; None for the baseline itself."""


def over_all_problems(found: Reported, baseline: str) -> list[OverProblems]:
    together = np.concatenate(found.strata, axis=2)
    places = over_problems.ranks(found.strata) if len(found.variants) > 1 else [over_problems.Rank(1, 1, 1)]
    base = together[found.variants.index(baseline)] if baseline in found.variants else None
    return [
        OverProblems(
            variant,
            place,
            over_problems.interquartile_mean(scores),
            over_problems.probability_of_improvement(scores, base) if base is not None and variant != baseline else None,
        )
        for variant, place, scores in zip(found.variants, places, together, strict=True)
    ]


def profiles(found: Reported) -> pandas.DataFrame:
    """Performance profiles: label, x (threshold), mean (share of seeds and problems that score above it), low, high."""
    together = np.round(np.concatenate(found.strata, axis=2), 9)
    rows = []
    for variant, scores in zip(found.variants, together, strict=True):
        for above in np.union1d(together, [0.0, 1.0]):  # between scores nothing changes
            share = over_problems.profile(scores, above)
            rows.append((variant, above, share.mean, share.low, share.high))
    return pandas.DataFrame(rows, columns=["label", "x", "mean", "low", "high"])


def components(found: Reported, factors: Sequence[str]) -> dict[str, dict[str, float]]:
    """Variant -> variance components by factor (rpg.stats.variance_components), means over benchmarks; empty with one seed,
    one problem or one level of a factor."""
    names = [*(FACTOR_NAMES.get(field, field) for field in factors), "seed", "problem"]
    if any(min(array.shape[1:]) < 2 for array in found.cells):
        return {}
    made = {}
    for at, variant in enumerate(found.variants):
        each = [variance_components(array[at], found.samples, names) for array in found.cells]
        made[variant] = {name: float(np.mean([part[name] for part in each])) for name in each[0]}
    return made


def costs(trials: pandas.DataFrame, spent: pandas.DataFrame, found: Mapping[str, Sequence[str]]) -> pandas.DataFrame:
    """Per variant: trials, and tokens and seconds of tuning and of the reported runs (columns tuning_tokens, ...).

    `spent` is the result of queries.spending for the reported sweep; `found`: variant -> its reported runs.
    """
    tuning = trials.groupby("variant", sort=False)[["tokens", "seconds"]].sum().add_prefix("tuning_")
    tuning.insert(0, "trials", trials.groupby("variant", sort=False).size())
    last = spent.sort_values("step").groupby("run")[["tokens", "seconds"]].last()
    reported = {name: last.reindex(list(runs)).sum(skipna=False) for name, runs in found.items()}
    of_reports = pandas.DataFrame(reported, index=["tokens", "seconds"]).T.add_prefix("report_")
    return tuning.join(of_reports, how="outer").reindex(list(dict.fromkeys([*tuning.index, *of_reports.index])))
