"""What variants have spent, and their differences where all have spent the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas

from rpg import stats
from rpg.report import verdicts
from rpg.report.comparison import SPENT, UNTESTED, Comparison
from rpg.report.selection import Selection
from rpg.report.verdicts import Checkpoints, Difference
from rpg.store import queries
from rpg.store.queries import Database

UNEQUAL = 1.1
"""Spending that differs by more than this factor is reported as unequal."""

Curve = dict[int, float]
"""Step, ascending -> what a run had spent by then."""


class Equal(NamedTuple):
    """Variants at the same `budget` of tokens or seconds (`axis`), accuracies interpolated between
    checkpoints."""

    axis: str
    budget: float
    table: pandas.DataFrame  # variant, label, seeds, accuracy and the fields of verdicts.Difference


@dataclass(frozen=True)
class Spending:
    """The table of a comparison with what variants have spent, and differences at equal spending."""

    table: pandas.DataFrame
    equal: tuple[Equal, ...]
    unequal: str
    """One line that says how unequally variants have spent; empty if they have not."""
    look: stats.Look | None
    """The look of the comparison, with the differences at equal spending."""
    notes: list[str]


def price(
    db: Database, selection: Selection, comparison: Comparison, planned: float | None
) -> Spending:
    """What variants have spent, and their differences at equal tokens and equal seconds.

    `planned`: the tokens at which the sweep's file asks for a comparison.
    """
    spent = queries.spending(db, selection.sweep).set_index(["run", "step"])
    table = _with_spending(comparison.table, spent, selection.chosen)
    notes: list[str] = []
    equal = []
    look = comparison.look
    if selection.baseline in selection.chosen:
        for axis in ("tokens", "seconds"):
            budget = planned if axis == "tokens" else None
            curves = _curves(spent[axis], selection.complete)
            chosen = _affordable(selection, curves, axis, budget, notes)
            if chosen is None:
                continue
            part, results = _at_budget(db, selection, comparison, curves, chosen)
            equal.append(part)
            if look:
                look = look._replace(results={**look.results, **verdicts.outcomes(results)})
    notes += short_of(planned, spent, selection.chosen, selection.labels)
    return Spending(
        table=table,
        equal=tuple(equal),
        unequal=unequal(table, selection.labels),
        look=look,
        notes=notes,
    )


def _with_spending(
    table: pandas.DataFrame, spent: pandas.DataFrame, chosen: Checkpoints
) -> pandas.DataFrame:
    """The table with the columns `SPENT`; `spent` are queries.spending by run and step."""
    table = table.copy()
    for variant, (step, runs) in chosen.items():
        at_step = spent.reindex([(run, step) for run in runs.values()])[list(SPENT)].astype(float)
        table.loc[table["variant"] == variant, list(SPENT)] = at_step.mean(skipna=False).tolist()
    return table


def short_of(
    planned: float | None, spent: pandas.DataFrame, chosen: Checkpoints, labels: Mapping[str, str]
) -> list[str]:
    """A note if runs ended before the tokens at which variants were to be compared; `spent` are
    queries.spending by run and step."""
    if planned is None:
        return []
    short = []
    for variant, (step, runs) in chosen.items():
        places = [(run, step) for run in runs.values()]
        least = spent["tokens"].reindex(places).astype(float).min()
        if least < planned:
            short.append(f"{labels[variant]} ({least:,.0f})")
    if not short:
        return []
    return [f"runs ended before the budget of {planned:,.0f} tokens: {', '.join(short)}"]


def unequal(table: pandas.DataFrame, labels: Mapping[str, str]) -> str:
    """How unequally variants have spent, in one line; empty if they have not, or nobody knows."""
    each = table.drop_duplicates("variant").set_index("variant")
    for name in ("tokens", "responses", "updates"):
        values = each[name].astype(float).dropna()
        if len(values) < 2 or values.min() <= 0:
            continue
        factor = values.max() / values.min()
        if factor > UNEQUAL:
            most = labels[str(values.idxmax())]
            least = labels[str(values.idxmin())]
            return (
                f"Unequal spending: {most} has spent {factor:.1f} times as many {name} as {least} "
                f"({values.max():,.0f} and {values.min():,.0f})."
            )
    return ""


@dataclass(frozen=True)
class _Affordable:
    """Variants that were measured before and after they had spent a budget, the baseline first."""

    axis: str
    budget: float
    variants: list[str]


def _curves(spent: pandas.Series, complete: set[tuple[str, int]]) -> dict[str, Curve]:
    """Run -> what it had spent at its checkpoints with all benchmarks, where that is known."""
    runs = spent.reindex(sorted(complete)).groupby("run")
    return {
        run: dict(part.droplevel("run").astype(float)) for run, part in runs if part.notna().all()
    }


def _affordable(
    selection: Selection,
    curves: Mapping[str, Curve],
    axis: str,
    planned: float | None,
    notes: list[str],
) -> _Affordable | None:
    """The least that a compared run has spent, or the planned budget where all have spent it.

    None if variants have spent alike, or if there is nothing to compare with the baseline. A
    variant of which a run was first evaluated when it had spent more is left out, and named in a
    line that is added to `notes`.
    """
    totals = {}
    chosen = selection.chosen
    for variant in sorted(chosen, key=lambda name: name != selection.baseline):
        step, runs = chosen[variant]
        if all(step in curves.get(run, ()) for run in runs.values()):
            totals[variant] = [curves[run][step] for run in runs.values()]
    means = [float(np.mean(values)) for values in totals.values()]
    budget = min((min(values) for values in totals.values()), default=0.0)
    if planned is not None:
        budget = min(budget, planned)
    elif means and max(means) < UNEQUAL * min(means):
        return None

    late = []
    for variant in totals:
        _, runs = chosen[variant]
        if any(min(curves[run].values()) > budget for run in runs.values()):
            late.append(variant)
    if late and budget > 0:
        names = ", ".join(selection.labels[variant] for variant in late)
        notes.append(
            f"not compared at equal {axis}: {names} (first evaluated when more had been spent)"
        )
    variants = [variant for variant in totals if variant not in late]
    if selection.baseline not in variants or budget <= 0 or (late and len(variants) == 1):
        return None
    return _Affordable(axis, budget, variants)


def _at_budget(
    db: Database,
    selection: Selection,
    comparison: Comparison,
    curves: Mapping[str, Curve],
    chosen: _Affordable,
) -> tuple[Equal, dict[tuple[str, str], Difference]]:
    """The variants' accuracies and differences where their runs had spent the budget."""
    places: dict[str, verdicts.Runs] = {}
    for variant in chosen.variants:
        _, runs = selection.chosen[variant]
        places[variant] = {
            seed: (run, verdicts.at_budget(curves[run], chosen.budget))
            for seed, run in runs.items()
        }
    baseline = places[str(selection.baseline)]
    pairs = {
        name: (place, baseline) for name, place in places.items() if name != selection.baseline
    }
    problems = verdicts.ProblemScores(db, selection.sweep, verdicts.checkpoints(pairs))
    name = f"equal {chosen.axis}"  # not that of a benchmark, which has no blank
    tested = verdicts.compare(problems, pairs, {name: selection.judged}, comparison.level)
    differences = verdicts.looked_at(tested, comparison.earlier)

    rows = []
    for variant, place in places.items():
        block = problems.block(selection.judged, [place])
        if block:
            rows.append(
                {
                    "variant": variant,
                    "label": selection.labels[variant],
                    "seeds": len(place),
                    "accuracy": float(np.mean([array.mean() for array in block])),
                    **differences.get((variant, name), UNTESTED)._asdict(),
                }
            )
    columns = ["variant", "label", "seeds", "accuracy", *Difference._fields]
    table = pandas.DataFrame(rows, columns=columns)
    return Equal(chosen.axis, chosen.budget, table), differences
