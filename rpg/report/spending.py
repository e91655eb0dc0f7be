"""What variants have spent, and their differences where all have spent the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import duckdb
import numpy as np
import pandas

from rpg.report import verdicts
from rpg.report.verdicts import Checkpoints

SPENT = ("responses", "tokens", "updates", "seconds")
"""Columns of the table: what a variant had spent when it was last measured, mean over seeds."""
UNEQUAL = 1.1
"""Spending that differs by more than this factor is reported as unequal."""


class Equal(NamedTuple):
    """Variants at the same `budget` of tokens or seconds (`axis`), accuracies interpolated between checkpoints."""

    axis: str
    budget: float
    table: pandas.DataFrame  # variant, label, seeds, accuracy and the fields of verdicts.Difference


def add_spending(table: pandas.DataFrame, spent: pandas.DataFrame, chosen: Checkpoints) -> None:
    """Fill in the columns `SPENT`; `spent` are queries.spending by run and step."""
    for place, row in table.iterrows():
        step, runs = chosen[row["variant"]]
        known = spent.reindex([(run, step) for run in runs.values()])
        for name in SPENT:
            table.loc[place, name] = known[name].astype(float).mean(skipna=False)


def unequal(table: pandas.DataFrame, labels: Mapping[str, str]) -> str:
    """How unequally variants have spent, in one line; empty if they have not, or nobody knows."""
    each = table.drop_duplicates("variant").set_index("variant")
    for name in ("tokens", "responses", "updates"):
        values = each[name].astype(float).dropna()
        if len(values) > 1 and values.min() > 0 and (factor := values.max() / values.min()) > UNEQUAL:
            most, least = (labels[str(variant)] for variant in (values.idxmax(), values.idxmin()))
            return (
                f"Unequal spending: {most} has spent {factor:.1f} times as many {name} as {least} "
                f"({values.max():,.0f} and {values.min():,.0f})."
            )
    return ""


def at_equal_spending(
    db: duckdb.DuckDBPyConnection,
    sweep: str,
    complete: set[tuple[str, int]],
    chosen: Checkpoints,
    baseline: str | None,
    spent: pandas.DataFrame,
    benchmarks: Mapping[str, Sequence[str]],
    labels: Mapping[str, str],
) -> Iterator[Equal]:
    """At equal tokens and at equal seconds, if variants differ in them: at the least that a compared run has spent.

    `complete` are the evaluated (run, step); `benchmarks` as in verdicts.compare.
    """
    if baseline not in chosen:
        return
    for axis in ("tokens", "seconds"):
        curves = _curves(spent[axis], complete)
        able = {
            variant: (step, runs)
            for variant, (step, runs) in chosen.items()
            if all(step in dict(curves.get(run, ())) for run in runs.values())
        }
        totals = [[dict(curves[run])[step] for run in runs.values()] for step, runs in able.values()]
        means = [float(np.mean(values)) for values in totals]
        budget = min(map(min, totals), default=0.0)
        if baseline not in able or budget <= 0 or max(means) < UNEQUAL * min(means):
            continue
        places: dict[str, verdicts.Runs] = {
            variant: {seed: (run, verdicts.at_budget(curves[run], budget)) for seed, run in runs.items()}
            for variant, (_, runs) in able.items()
        }
        others = {name: runs for name, runs in places.items() if name != baseline}
        group = verdicts.Group(places[baseline], others)
        yield Equal(axis, budget, _compared(db, sweep, group, baseline, benchmarks, labels))


def _curves(spent: pandas.Series, complete: set[tuple[str, int]]) -> dict[str, list[tuple[int, float]]]:
    """Run -> its evaluated steps with what had been spent there; without runs of which that is not known throughout."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for run, step in sorted(complete):
        curves.setdefault(run, []).append((step, float(spent.get((run, step), math.nan))))
    return {run: curve for run, curve in curves.items() if not any(math.isnan(value) for _, value in curve)}


def _compared(
    db: duckdb.DuckDBPyConnection,
    sweep: str,
    group: verdicts.Group,
    baseline: str,
    benchmarks: Mapping[str, Sequence[str]],
    labels: Mapping[str, str],
) -> pandas.DataFrame:
    problems = verdicts.ProblemScores(db, sweep, verdicts.checkpoints([group]))
    differences = verdicts.compare(problems, [group], benchmarks)
    rows = []
    for benchmark, parts in benchmarks.items():
        for variant, runs in {baseline: group.baseline, **group.variants}.items():
            arrays = [array for part in parts if (array := problems.array(part, runs)) is not None]
            if len(arrays) == len(parts):
                accuracy = float(np.mean([array.mean() for array in arrays]))
                row = {"variant": variant, "label": labels[variant], "seeds": len(runs), "accuracy": accuracy}
                found = differences.get((variant, benchmark))
                rows.append(row | (found._asdict() if found else {"verdict": ""}))
    return pandas.DataFrame(
        rows, columns=["variant", "label", "seeds", "accuracy", *verdicts.Difference._fields]
    )
