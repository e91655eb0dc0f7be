"""What variants have spent, and their differences where all have spent the same."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas

from rpg import stats
from rpg.report import verdicts
from rpg.report.verdicts import Checkpoints
from rpg.store.queries import Database

SPENT = ("responses", "tokens", "updates", "seconds")
"""Columns of the table: what a variant had spent when it was last measured, mean over seeds."""
UNEQUAL = 1.1
"""Spending that differs by more than this factor is reported as unequal."""


class Equal(NamedTuple):
    """Variants at the same `budget` of tokens or seconds (`axis`), accuracies interpolated between
    checkpoints."""

    axis: str
    budget: float
    table: pandas.DataFrame  # variant, label, seeds, accuracy and the fields of verdicts.Difference


def add_spending(table: pandas.DataFrame, spent: pandas.DataFrame, chosen: Checkpoints) -> None:
    """Fill in the columns `SPENT`; `spent` are queries.spending by run and step."""
    for variant, (step, runs) in chosen.items():
        at_step = spent.reindex([(run, step) for run in runs.values()])[list(SPENT)].astype(float)
        table.loc[table["variant"] == variant, list(SPENT)] = at_step.mean(skipna=False).tolist()


def short_of(
    planned: float | None, spent: pandas.DataFrame, chosen: Checkpoints, labels: Mapping[str, str]
) -> list[str]:
    """A note if runs ended before the tokens at which variants were to be compared; `spent` as in
    `add_spending`."""
    short = []
    for variant, (step, runs) in chosen.items():
        tokens = spent["tokens"].reindex([(run, step) for run in runs.values()]).astype(float)
        if (least := tokens.min()) < (planned or 0.0):
            short.append(f"{labels[variant]} ({least:,.0f})")
    return (
        [f"runs ended before the budget of {planned:,.0f} tokens: {', '.join(short)}"]
        if short
        else []
    )


def unequal(table: pandas.DataFrame, labels: Mapping[str, str]) -> str:
    """How unequally variants have spent, in one line; empty if they have not, or nobody knows."""
    each = table.drop_duplicates("variant").set_index("variant")
    for name in ("tokens", "responses", "updates"):
        values = each[name].astype(float).dropna()
        if (
            len(values) > 1
            and values.min() > 0
            and (factor := values.max() / values.min()) > UNEQUAL
        ):
            most, least = (labels[str(variant)] for variant in (values.idxmax(), values.idxmin()))
            return (
                f"Unequal spending: {most} has spent {factor:.1f} times as many {name} as {least} "
                f"({values.max():,.0f} and {values.min():,.0f})."
            )
    return ""


def at_equal_spending(
    db: Database,
    sweep: str,
    complete: set[tuple[str, int]],
    chosen: Checkpoints,
    baseline: str | None,
    spent: pandas.DataFrame,
    benchmarks: Sequence[str],
    labels: Mapping[str, str],
    planned: float | None,
    notes: list[str],
    earlier: Sequence[stats.Look],
    look: stats.Look | None,
) -> tuple[list[Equal], stats.Look | None]:
    """At equal tokens and at equal seconds, if variants differ in them: at the least that a
    compared run has spent; at `planned` tokens, where a budget was named and all have spent it.

    `complete` are the (run, step) with all `benchmarks`, over which accuracies are means. A variant
    of which a run was first evaluated when it had spent more is left out, and named in a line that
    is added to `notes`. `earlier` looks were taken before `look`, which is returned with what was
    found.
    """
    if baseline not in chosen:
        return [], look
    level, tables = look.level if look else stats.ERROR, list[Equal]()
    for axis in ("tokens", "seconds"):
        curves = {
            run: dict(part.droplevel("run").astype(float))
            for run, part in spent[axis].reindex(sorted(complete)).groupby("run")
            if part.notna().all()
        }
        totals = {
            variant: [curves[run][step] for run in runs.values()]
            for variant, (step, runs) in sorted(
                chosen.items(), key=lambda item: item[0] != baseline
            )
            if all(step in curves.get(run, ()) for run in runs.values())
        }
        means = [float(np.mean(values)) for values in totals.values()]
        budget = min(map(min, totals.values()), default=0.0)
        if axis == "tokens" and planned is not None:
            budget = min(budget, planned)
        elif means and max(means) < UNEQUAL * min(means):
            continue
        late = [
            v
            for v in totals
            if any(min(curves[run].values()) > budget for run in chosen[v][1].values())
        ]
        if late and budget > 0:
            named = ", ".join(labels[variant] for variant in late)
            notes.append(
                f"not compared at equal {axis}: {named} (first evaluated when more had been spent)"
            )
            totals = {variant: values for variant, values in totals.items() if variant not in late}
        if baseline not in totals or budget <= 0 or (late and len(totals) == 1):
            continue
        places: dict[str, verdicts.Runs] = {}
        for variant in totals:
            runs = chosen[variant][1].items()
            places[variant] = {
                seed: (run, verdicts.at_budget(curves[run], budget)) for seed, run in runs
            }
        pairs = {name: (places[name], places[baseline]) for name in totals if name != baseline}
        problems = verdicts.ProblemScores(db, sweep, verdicts.checkpoints(pairs))
        name = f"equal {axis}"  # not that of a benchmark, which has no blank
        differences = verdicts.looked_at(
            verdicts.compare(problems, pairs, {name: benchmarks}, level), earlier
        )
        look = look and look._replace(results={**look.results, **verdicts.outcomes(differences)})
        rows = []
        for variant, place in places.items():
            if block := problems.block(benchmarks, [place]):
                accuracy = float(np.mean([array.mean() for array in block]))
                tested = differences.get((variant, name), (*[np.nan] * 5, ""))
                rows.append([variant, labels[variant], len(place), accuracy, *tested])
        columns = ["variant", "label", "seeds", "accuracy", *verdicts.Difference._fields]
        tables.append(Equal(axis, budget, pandas.DataFrame(rows, columns=columns)))
    return tables, look
