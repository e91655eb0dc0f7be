"""The numbers behind the report and the dashboard's table: first, last and best per variant, and
tests of differences.

`summarise` says how a verdict is made: `selection` chooses runs, checkpoints and benchmarks,
`comparison` measures and tests them, `spending` compares them where all have spent the same, and
`diagnostics` says which trainings are ill.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas

from rpg import stats
from rpg.report import diagnostics, early_ends
from rpg.report.comparison import NO_TERMS, Terms, judge
from rpg.report.diagnostics import Finding, Mean
from rpg.report.selection import MEAN, Selection, select
from rpg.report.spending import Equal, price
from rpg.store import Layout, StoreError, queries
from rpg.store.queries import Database


class Summary(NamedTuple):
    """`table`: one row per variant and benchmark (and `mean`), variants in order, columns as in
    `comparison.COLUMNS`."""

    sweep: str
    baseline: str | None
    benchmarks: list[str]
    variants: list[str]
    labels: dict[str, str]
    table: pandas.DataFrame
    notes: list[str]
    rules: list[str]  # by which answers were graded
    health: tuple[str, ...] = ()
    """Problems of the trainings (rpg.report.diagnostics); the notes contain them too."""
    look: stats.Look | None = None
    """This look at the differences; None if no verdict was given."""
    equal: tuple[Equal, ...] = ()
    """Differences at equal tokens and at equal seconds, where variants have spent unequally."""
    spending: str = ""
    """One line that says how unequally, empty if they have not."""
    at: str = "tokens"
    """Which of `equal` tables show."""
    advice: str = ""
    """The note on what the design can find, and on what a difference that matters would take after
    its semicolon."""
    question: str = ""
    """The description in the sweep's file."""
    collapses: tuple[stats.Collapse, ...] = ()
    """Seeds that ended far below their siblings."""
    caution: str = ""
    """What limits every verdict of the sweep, for example one search per variant of a study."""

    @property
    def series(self) -> dict[queries.Series, str]:
        """The variants with their labels, in order."""
        return {
            queries.Series(self.sweep, variant): self.labels[variant] for variant in self.variants
        }

    @property
    def headline(self) -> str:
        """What variants are judged by: the mean over benchmarks, or the only benchmark."""
        return MEAN if len(self.benchmarks) > 1 else (self.benchmarks or [MEAN])[0]

    @property
    def compared_rows(self) -> pandas.DataFrame:
        """The rows of the table that compare a variant with the baseline, on what variants are
        judged by."""
        return self.table[
            (self.table["benchmark"] == self.headline) & (self.table["verdict"] != "")
        ]

    @property
    def baseline_label(self) -> str:
        return self.labels.get(self.baseline or "", self.baseline or "")


def summarise(
    db: Database,
    sweep: str,
    baseline: str | None = None,
    names: Sequence[str] | None = None,
    terms: Terms = NO_TERMS,
) -> Summary:
    """Judge the variants of a sweep. `baseline` replaces the sweep's own; `names` picks benchmarks
    (default all); `terms`: looks taken at it before, and what its file says. Raises StoreError: the
    database does not hold the sweep; NotComparable: current runs differ in more than the sweep's
    axes (rpg.store.current.require_comparable).
    """
    selection = select(db, sweep, baseline, names)
    comparison = judge(db, selection, terms)
    comparison.table["caution"] = terms.caution
    spending = price(db, selection, comparison, terms.budget)
    health = _health(db, selection)
    early = early_ends.notes(db, sweep, selection.labels, selection.baseline)
    return Summary(
        sweep=sweep,
        baseline=selection.baseline,
        benchmarks=selection.benchmarks,
        variants=selection.variants,
        labels=selection.labels,
        table=spending.table,
        notes=[*selection.notes, *early, *comparison.notes, *spending.notes, *health],
        rules=queries.rules(db, sweep),
        health=tuple(health),
        look=spending.look,
        equal=spending.equal,
        spending=spending.unequal,
        advice=comparison.advice,
        question=selection.question,
        collapses=tuple(comparison.collapses),
        caution=terms.caution,
    )


def record_look(layout: Layout, summary: Summary, terms: Terms) -> None:
    """Write down that these verdicts are shown, unless that is on record: later looks have what is
    left of the level. Whoever shows a summary to a person calls this."""
    look = summary.look
    recorded = [(earlier.compared, earlier.runs) for earlier in terms.looks]
    if look and (look.compared, look.runs) not in recorded:
        layout.add_look(summary.sweep, look._asdict())


def terms_of(layout: Layout, sweep: str) -> Terms:
    """Read the looks, and what the sweep's file says, from the sweep's folder."""
    looks = [stats.Look(**fields) for fields in layout.read_looks(sweep)]
    record: dict[str, Any] = {}
    with contextlib.suppress(StoreError):
        record = layout.read_sweep(sweep)
    return Terms(
        looks=tuple(looks),
        matters=float(record.get("matters", stats.MATTERS)),
        budget=record.get("budget"),
        caution=str(record.get("caution") or ""),
    )


def _health(db: Database, selection: Selection) -> list[str]:
    """Findings of rpg.report.diagnostics, with one line for all runs of a variant that show the
    same."""
    findings = _findings(db, selection.sweep)
    lines = []
    for variant, rows in selection.runs.groupby("variant"):
        by_rule = [
            {finding.rule: finding for finding in findings.get(run, [])} for run in rows["run"]
        ]
        rules = dict.fromkeys(rule for found in by_rule for rule in found)
        for rule in rules:
            shown = [found[rule] for found in by_rule if rule in found]
            label = selection.labels[variant]
            lines.append(f"{label} ({len(shown)} of {len(rows)} runs): {shown[0]}")
    for variants in queries.identical_variants(db, selection.sweep):
        names = [selection.labels[variant] for variant in variants]
        lines.append(str(diagnostics.identical(names)))
    return lines


def _findings(db: Database, sweep: str) -> dict[str, list[Finding]]:
    """Run -> findings on its training, then on its answers."""
    metrics = queries.health_metrics(db, sweep, diagnostics.OFTEN, diagnostics.WINDOW)
    findings = {run: diagnostics.of_training(steps) for run, steps in metrics.items()}
    with_samples = queries.runs_with_samples(db, sweep)
    runs = queries.runs(db, sweep)
    for run in runs["run"][runs["imported"].notna()]:
        unmeasured = diagnostics.not_measured(metrics.get(run, []), run in with_samples)
        findings.setdefault(run, []).extend(unmeasured)
    for row in queries.without_answer(db, sweep).itertuples():
        forms = {entry["key"]: entry["value"] for entry in row.forms} if row.unread else {}
        second_reading = None if pandas.isna(row.second_reading) else row.second_reading
        of_run = findings.setdefault(row.run, [])
        of_run += diagnostics.of_answers(
            row.benchmark, int(row.step), row.missing, row.answer, row.repeated, row.accuracy
        )
        of_run += diagnostics.of_unread(
            row.benchmark, int(row.step), row.unread, forms, (row.accuracy, second_reading)
        )
    for row in queries.reward_and_held_out(db, sweep, diagnostics.WINDOW).itertuples():
        findings.setdefault(row.run, []).extend(
            diagnostics.of_held_out(
                row.benchmark,
                (int(row.best_step), int(row.last_step)),
                (
                    Mean(row.reward_best, row.reward_best_error),
                    Mean(row.reward_last, row.reward_last_error),
                ),
                (Mean(row.best, row.best_error), Mean(row.last, row.last_error)),
            )
        )
    return findings
