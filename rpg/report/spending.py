"""What variants have spent, and their differences where all have spent the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pandas

from rpg import stats
from rpg.errors import plural
from rpg.next_steps import command
from rpg.report import earlier_looks, equal_spending, problem_scores
from rpg.report.comparison import UNTESTED, Comparison
from rpg.report.equal_spending import Around, Curve
from rpg.report.format import amount, times
from rpg.report.measured_rows import SPENT, mean_curves
from rpg.report.problem_scores import Checkpoints
from rpg.report.selection import Selection
from rpg.report.verdicts import NOT_MEASURED, Difference
from rpg.store import Layout, queries
from rpg.store.queries import Database

UNEQUAL = 1.1
"""Spending that differs by more than this factor is reported as unequal."""
LATE = "first evaluated after this budget was spent"
EQUAL_COLUMNS = ["variant", "label", "seeds", "accuracy", *Difference._fields]


class Equal(NamedTuple):
    """Variants at the same `budget` of tokens or seconds (`axis`), accuracies interpolated between
    checkpoints."""

    axis: str
    budget: float
    table: pandas.DataFrame  # variant, label, seeds, accuracy and the fields of verdicts.Difference
    refused: Mapping[str, str] = {}
    """Label -> why a variant was not measured there."""
    spacing: int | None = None
    """Steps between evaluations that would do; None if nothing was refused, or nothing helps."""
    between: Mapping[str, tuple[int, int]] = {}
    """Run -> the checkpoints around the budget, where something was refused."""
    results: Mapping[tuple[str, str], Difference] = {}
    """As a look calls them."""


class _Summarised(Protocol):
    """The part of a summary that `remedy` needs."""

    @property
    def sweep(self) -> str: ...

    @property
    def equal(self) -> tuple[Equal, ...]: ...


@dataclass(frozen=True)
class Spending:
    """The table of a comparison with what variants have spent, and differences at equal
    spending."""

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
    for axis in ("tokens", "seconds"):
        curves = _curves(spent[axis], selection.complete)
        budget = _budget(selection, curves, axis, planned if axis == "tokens" else None)
        if budget is None or selection.baseline not in selection.chosen:
            continue
        part = _at_budget(db, selection, comparison, curves, budget)
        if part is None:
            continue
        equal.append(part)
        notes += refusals(part)
        if look:
            look = look._replace(results={**look.results, **earlier_looks.outcomes(part.results)})
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
    amounts = spent[list(SPENT)].astype(float).itertuples(index=False, name=None)
    known = dict(zip(spent.index, amounts, strict=True))
    unknown = (np.nan,) * len(SPENT)
    means = {}
    for variant, (step, runs) in chosen.items():
        each_run = [known.get((run, step), unknown) for run in runs.values()]
        means[variant] = [float(np.mean(column)) for column in zip(*each_run, strict=True)]
    table = table.copy()
    for place, name in enumerate(SPENT):
        table[name] = [means[variant][place] for variant in table["variant"]]
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
            short.append(f"{labels[variant]} ({amount(least)})")
    if not short:
        return []
    return [f"runs ended before the budget of {amount(planned)} tokens: {', '.join(short)}"]


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
                f"Unequal spending: {most} has spent {times(factor)} times as many {name} as "
                f"{least} ({amount(values.max())} and {amount(values.min())})."
            )
    return ""


@dataclass(frozen=True)
class _Budget:
    """What all compared runs have spent at least, and which variants were evaluated before it."""

    axis: str
    amount: float
    evaluated: list[str]
    late: list[str]
    """Variants of which a run was first evaluated when it had spent more."""


def _curves(spent: pandas.Series, complete: set[tuple[str, int]]) -> dict[str, dict[int, float]]:
    """Run -> what it had spent at its checkpoints with all benchmarks, where that is known."""
    known = dict(zip(spent.index, spent.astype(float), strict=True))
    curves: dict[str, dict[int, float]] = {}
    for run, step in sorted(complete):
        curves.setdefault(run, {})[step] = known.get((run, step), np.nan)
    return {run: curve for run, curve in curves.items() if not np.isnan([*curve.values()]).any()}


def _budget(
    selection: Selection, curves: Mapping[str, Curve], axis: str, planned: float | None
) -> _Budget | None:
    """The least that a compared run has spent, or the planned budget where all have spent it.

    None if variants have spent alike.
    """
    chosen = selection.chosen
    totals = {}
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
    return _Budget(
        axis=axis,
        amount=budget,
        evaluated=[variant for variant in totals if variant not in late],
        late=late,
    )


def _at_budget(
    db: Database,
    selection: Selection,
    comparison: Comparison,
    curves: Mapping[str, Curve],
    budget: _Budget,
) -> Equal | None:
    """The variants' accuracies and differences where their runs had spent the budget.

    None without a baseline, if nothing had been spent, if the baseline alone is there and was
    evaluated too late, or if nobody knows what it had spent.
    """
    baseline = selection.baseline
    nothing_to_compare = budget.late == [baseline] and not budget.evaluated
    if baseline is None or budget.amount <= 0 or nothing_to_compare:
        return None
    if baseline in budget.late:
        return _without_baseline(selection, budget)
    if baseline not in budget.evaluated:
        return None

    curves_of_mean = mean_curves(selection.scores, selection.headline_benchmarks)
    accuracies = {
        run: {step: shares.accuracy for step, shares in curve.items()}
        for run, curve in curves_of_mean.items()
    }
    around = {
        variant: equal_spending.around(
            selection.chosen[variant][1], curves, accuracies, budget.amount
        )
        for variant in budget.evaluated
    }
    problems = problem_scores.ProblemScores(db, selection.sweep, equal_spending.checkpoints(around))
    measured, refused = equal_spending.compare(
        problems, around, baseline, selection.headline_benchmarks, comparison.level
    )
    differences = _with_earlier(measured, budget.axis, comparison.earlier)

    rows = []
    for variant, places in around.items():
        block = problems.block(selection.headline_benchmarks, [places.interpolated])
        if not block:
            continue
        difference = differences.get(variant, UNTESTED)
        if variant in refused:
            difference = UNTESTED._replace(verdict=NOT_MEASURED)
        accuracy = float(np.mean([array.mean() for array in block]))
        rows.append(
            {
                "variant": variant,
                "label": selection.labels[variant],
                "seeds": len(places.interpolated),
                "accuracy": np.nan if places.far_apart else accuracy,
                **difference._asdict(),
            }
        )
    rows += [_unmeasured(selection, variant) for variant in budget.late]
    reasons = refused | dict.fromkeys(budget.late, LATE)
    spacings = [side.spacing() for name in refused for side in (around[name], around[baseline])]
    return Equal(
        axis=budget.axis,
        budget=budget.amount,
        table=pandas.DataFrame(rows, columns=EQUAL_COLUMNS),
        refused={selection.labels[name]: reason for name, reason in reasons.items()},
        spacing=min((steps for steps in spacings if steps), default=None),
        between=_between(around) if refused else {},
        results={_key(name, budget.axis): each for name, each in differences.items()},
    )


def _without_baseline(selection: Selection, budget: _Budget) -> Equal:
    """No variant is measured where the baseline was first evaluated later."""
    others = [name for name in budget.evaluated + budget.late if name != selection.baseline]
    return Equal(
        axis=budget.axis,
        budget=budget.amount,
        table=pandas.DataFrame(
            [_unmeasured(selection, name) for name in others], columns=EQUAL_COLUMNS
        ),
        refused={selection.labels[name]: f"baseline: {LATE}" for name in others},
    )


def _unmeasured(selection: Selection, variant: str) -> dict[str, object]:
    """The row of a variant that was first evaluated when more had been spent."""
    _, runs = selection.chosen[variant]
    return {
        "variant": variant,
        "label": selection.labels[variant],
        "seeds": len(runs),
        "accuracy": np.nan,
        **UNTESTED._replace(verdict=NOT_MEASURED)._asdict(),
    }


def _key(variant: str, axis: str) -> tuple[str, str]:
    """As a look calls a difference. No benchmark has a blank in its name, and looks from before
    checkpoints had to be close enough said `equal tokens`."""
    return variant, f"at equal {axis}"


def _with_earlier(
    measured: Mapping[str, Difference], axis: str, earlier: Sequence[stats.Look]
) -> dict[str, Difference]:
    named = {_key(variant, axis): difference for variant, difference in measured.items()}
    seen = earlier_looks.looked_at(named, earlier)
    return {variant: difference for (variant, _), difference in seen.items()}


def _between(around: Mapping[str, Around]) -> dict[str, tuple[int, int]]:
    """Run -> the steps between which a further evaluation would help."""
    return {
        run: (each.before, each.after)
        for variant in around.values()
        for run, each in variant.brackets.items()
        if each.after - each.before > 1
    }


def not_measured(axis: str) -> str:
    """What is said of variants whose checkpoints do not carry a comparison at equal spending."""
    return f"{NOT_MEASURED} at equal {axis}"


_REASONS = 3
"""How many variants a note gives a reason for."""


def refusals(equal: Equal) -> list[str]:
    """Who was not measured at equal spending, and how often evaluation would have to be. The table
    has them all; of more than a few the first say why."""
    if not equal.refused:
        return []
    reasons = [f"{label} ({reason})" for label, reason in equal.refused.items()]
    note = f"{not_measured(equal.axis)}: {'; '.join(reasons[:_REASONS])}"
    if len(reasons) > _REASONS:
        note += f"; and {len(reasons) - _REASONS} more"
    if equal.spacing:
        note += f"; evaluate every {plural(equal.spacing, 'step').removeprefix('1 ')}"
    return [note]


def remedy(layout: Layout, summary: _Summarised) -> list[str]:
    """How to measure what was not measured at equal spending: the command, or why there is none."""
    lines = []
    for equal in summary.equal:
        if not equal.spacing:
            continue
        stored = any(
            before < step < after
            for run, (before, after) in equal.between.items()
            for step in layout.run(summary.sweep, run).checkpoint_steps()
        )
        setting = f"evaluation.every={equal.spacing}"
        if not stored:
            lines.append(
                f"equal {equal.axis}: no stored checkpoint is close enough to compare at; train "
                f"new runs with --set {setting}"
            )
            continue
        source = _source(layout, summary.sweep)
        again = f"{command('sweep', source, layout=layout)} --set {setting}"
        lines.append(f"equal {equal.axis}: to evaluate the stored checkpoints in between: {again}")
    return lines


def _source(layout: Layout, sweep: str) -> str:
    """The file that a sweep was begun with."""
    path = layout.read_sweep(sweep).get("path")
    return path if isinstance(path, str) and path else "FILE"
