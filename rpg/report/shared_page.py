"""Several sweeps, or a selection from one, as one HTML file that can be sent to somebody.

Every sweep has its own tables and tests: its variants share problems and seeds, those of another sweep may not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from rpg.metrics import shown as shown_metrics
from rpg.report import curves, tables
from rpg.report.labels import series_labels
from rpg.report.summary import Summary, history, summarise
from rpg.report.sweep_report import POINTS, Section, curve_data, document, score_names, section
from rpg.report.theme import specification
from rpg.store import Layout, queries
from rpg.store.queries import Database


@dataclass(frozen=True)
class Choice:
    """What to show. Empty means everything; of the metrics, those that reports show by default."""

    sweeps: tuple[str, ...]
    variants: tuple[str, ...] = ()
    """By label."""
    panels: tuple[str, ...] = ()
    """Benchmarks (`mean`: their mean) and metrics."""
    x: str = "step"


def shared_page(layout: Layout, db: Database, choice: Choice) -> str:
    """The page. Raises StoreError: the database does not hold a sweep."""
    chosen = _series(db, choice)
    summaries = [_summary(db, layout, sweep, choice, chosen) for sweep in choice.sweeps]
    chart = _curves(db, choice, chosen)
    drawn = [] if chart is None else [("Curves", specification(chart))]
    if len(summaries) == 1:
        sections = [section(summaries[0], drawn)]
    else:
        benchmarks = [set(summary.benchmarks) for summary in summaries]
        common, total = set.intersection(*benchmarks), set.union(*benchmarks)
        overlap = f"{len(common)} of {len(total)} benchmarks in common"
        lines = [f"{len(summaries)} sweeps with {'the same benchmarks' if common == total else overlap}."]
        sections = [Section("", [_overview(summaries)], drawn, [_SEVERAL], lines=lines)]
        sections += [section(summary, title=summary.sweep) for summary in summaries]
    return document(", ".join(choice.sweeps), sections)


_SEVERAL = (
    "Variants are tested only within their sweep, against its baseline (below): other sweeps may have used other problems, "
    "seeds or budgets."
)


def _summary(
    db: Database,
    layout: Layout,
    sweep: str,
    choice: Choice,
    chosen: Mapping[queries.Series, str],
) -> Summary:
    """A sweep's summary with the chosen variants and benchmarks; tests are corrected for all of its variants."""
    benchmarks = [name for name in queries.benchmarks(db, [sweep]) if name in choice.panels]
    summary = summarise(db, sweep, names=benchmarks or None, past=history(layout, sweep))
    notes = [*summary.notes, *layout.read_data_notes(sweep), *_notes_and_tags(db, sweep)]
    kept = [variant for variant in summary.variants if queries.Series(sweep, variant) in chosen]
    if len(kept) < len(summary.variants):
        shown = f"{len(kept)} of {len(summary.variants)} variants are shown"
        notes.append(f"{shown}; tests are corrected for all of them")
    table = summary.table[summary.table["variant"].isin(kept)].reset_index(drop=True)
    return summary._replace(table=table, variants=kept, notes=notes)


def _series(db: Database, choice: Choice) -> dict[queries.Series, str]:
    """The chosen variants with their labels."""
    baselines = queries.sweeps(db).set_index("sweep")["baseline"]
    labels = series_labels(queries.variants(db, choice.sweeps), baselines, choice.sweeps)
    return {series: label for series, label in labels.items() if label in (choice.variants or (label,))}


def _curves(db: Database, choice: Choice, labels: dict[queries.Series, str]) -> alt.ConcatChart | None:
    """All chosen panels in one figure; None if there is nothing to draw."""
    metrics = queries.metric_names(db)
    scores = score_names(queries.benchmarks(db, list(choice.sweeps)))
    panels = choice.panels or (*scores, *(name for name in shown_metrics() if name in metrics))
    data = curve_data(db, labels, [name for name in panels if name in scores], panels, choice.x, POINTS)
    if data.empty:
        return None
    data = curves.by_reference(data, queries.references(db, list(choice.sweeps)))
    drawn = curves.panels(data, list(labels.values()), panels, scores, choice.x)
    return curves.figure(drawn, ", ".join(choice.sweeps), curves.explanation(data))


def _overview(summaries: Sequence[Summary]) -> tables.Grid:
    """All variants of all sweeps: last and best, as means over a sweep's benchmarks."""
    rows = []
    for summary in summaries:
        names = summary.benchmarks
        benchmarks = ", ".join(names) if len(names) < 4 else f"{len(names)} benchmarks"
        for row in summary.table[summary.table["benchmark"] == summary.headline].itertuples():
            last = tables.plus_minus(row.last, row.low, row.high)
            texts = (summary.sweep, row.label, str(row.seeds), str(row.step), last, tables.number(row.best))
            rows.append([*texts, benchmarks])
    header = ["Sweep", "Variant", "Seeds", "Step", "Last", "Best", "Accuracy on"]
    return tables.grid_of("All sweeps", "sweeps", header, rows)


def _notes_and_tags(db: Database, sweep: str) -> list[str]:
    rows = queries.notes_and_tags(db)
    rows = rows[rows["sweep"] == sweep]
    tags = [f"tags: {text}" for text in rows["tags"] if text]
    return [*tags, *(f"note: {line}" for text in rows["notes"] for line in str(text or "").splitlines())]
