"""Several sweeps, or a selection from one, as one HTML file that can be sent to somebody.

Every sweep has its own tables and tests: its variants share problems and seeds, those of another sweep may not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import altair as alt
from rich.console import Console

from rpg.metrics import shown as shown_metrics
from rpg.report import curves, tables
from rpg.report.labels import series_labels
from rpg.report.summary import Summary, history, summarise
from rpg.report.sweep_report import POINTS, Section, curve_data, document, score_names, section
from rpg.report.theme import specification
from rpg.store import Layout, StoreError, atomic_write_text, queries
from rpg.store.database import connect
from rpg.store.queries import Database


@dataclass(frozen=True)
class Choice:
    """What to show. Empty means everything; of the metrics, those that reports show by default."""

    sweeps: tuple[str, ...]
    variants: tuple[str, ...] = ()
    """By name or label."""
    panels: tuple[str, ...] = ()
    """Benchmarks (`mean`: their mean) and metrics."""
    baseline: str | None = None
    x: str = "step"
    superseded: bool = False
    """Include older runs of the same name, as variants of their own."""


def shared_page(layout: Layout, db: Database, choice: Choice) -> str:
    """The page. Raises StoreError: the database does not hold a sweep, a variant, a panel or the baseline."""
    chosen = _series(db, choice)
    summaries = [_summary(db, layout, sweep, choice, chosen) for sweep in choice.sweeps]
    chart = _curves(db, choice, chosen)
    drawn = [] if chart is None else [("Curves", specification(chart))]
    if len(summaries) == 1:
        sections = [section(summaries[0], drawn)]
    else:
        lines = [_benchmarks_in_common(summaries)]
        sections = [Section("", [_overview(summaries)], drawn, [_SEVERAL], lines=lines)]
        sections += [section(summary, title=summary.sweep) for summary in summaries]
    return document(", ".join(choice.sweeps), sections)


_SEVERAL = (
    "Variants are tested only within their sweep, against its baseline (below): other sweeps may have used other problems, "
    "seeds or budgets."
)


def write_shared(layout: Layout, choice: Choice, path: Path) -> Path:
    """Write the page to `path`. Raises StoreError, as :func:`shared_page`."""
    with connect(layout) as db:
        atomic_write_text(path, shared_page(layout, db, choice))
    return path


def default_path(layout: Layout, choice: Choice) -> Path:
    return layout.reports("+".join(choice.sweeps)) / "shared.html"


def print_shared(layout: Layout, choice: Choice, console: Console) -> None:
    """The sweeps' tables, one after another."""
    with connect(layout) as db:
        chosen = _series(db, choice)
        for sweep in choice.sweeps:
            console.print(tables.terminal(_summary(db, layout, sweep, choice, chosen)))


def _summary(
    db: Database,
    layout: Layout,
    sweep: str,
    choice: Choice,
    chosen: Mapping[queries.Series, str],
) -> Summary:
    """A sweep's summary with the chosen variants and benchmarks; tests are corrected for all of its variants."""
    benchmarks = [name for name in queries.benchmarks(db, [sweep]) if name in choice.panels]
    baseline, past = _baseline(db, sweep, choice), history(layout, sweep)
    summary = summarise(db, sweep, baseline, benchmarks or None, choice.superseded, past)
    notes = [*summary.notes, *layout.read_data_notes(sweep), *_notes_and_tags(db, sweep)]
    kept = [variant for variant in summary.variants if queries.Series(sweep, variant) in chosen]
    if len(kept) < len(summary.variants):
        shown = f"{len(kept)} of {len(summary.variants)} variants are shown"
        notes.append(f"{shown}; tests are corrected for all of them")
    table = summary.table[summary.table["variant"].isin(kept)].reset_index(drop=True)
    return summary._replace(table=table, variants=kept, notes=notes)


def _baseline(db: Database, sweep: str, choice: Choice) -> str | None:
    if choice.baseline is None:
        return None
    labels = series_labels(queries.variants(db, [sweep]), {sweep: None}, [sweep])
    for series, label in labels.items():
        if choice.baseline in (series.variant, label):
            return series.variant
    if len(choice.sweeps) > 1:
        return None  # a variant of another sweep
    accepted = ", ".join(series.variant for series in labels)
    raise StoreError(f"--baseline {choice.baseline!r}: {sweep} has {accepted or 'no variants yet'}")


def _series(db: Database, choice: Choice) -> dict[queries.Series, str]:
    """The chosen variants with their labels. Raises StoreError if one of them does not exist."""
    baselines = queries.sweeps(db).set_index("sweep")["baseline"]
    labels = series_labels(queries.variants(db, choice.sweeps, choice.superseded), baselines, choice.sweeps)
    names = {series: {series.variant, label, label.rpartition(" · ")[2]} for series, label in labels.items()}
    for name in choice.variants:
        if not any(name in accepted for accepted in names.values()):
            existing = ", ".join(dict.fromkeys(series.variant for series in labels))
            raise StoreError(f"--variant {name!r}: there are {existing or 'none yet'}")
    chosen = set(choice.variants)
    return {series: label for series, label in labels.items() if not chosen or names[series] & chosen}


def _curves(db: Database, choice: Choice, labels: dict[queries.Series, str]) -> alt.ConcatChart | None:
    """All chosen panels in one figure; None if there is nothing to draw."""
    metrics = queries.metric_names(db)
    scores = score_names(queries.benchmarks(db, list(choice.sweeps)))
    panels = choice.panels or (*scores, *(name for name in shown_metrics() if name in metrics))
    for name in panels:
        if name not in scores and name not in metrics:
            raise StoreError(f"--panel {name!r}: accepted are {', '.join([*scores, *metrics])}")
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


def _benchmarks_in_common(summaries: Sequence[Summary]) -> str:
    benchmarks = [set(summary.benchmarks) for summary in summaries]
    common, total = set.intersection(*benchmarks), set.union(*benchmarks)
    some = f"{len(common)} of {len(total)} benchmarks in common"
    return f"{len(summaries)} sweeps with {'the same benchmarks' if common == total else some}."


def _notes_and_tags(db: Database, sweep: str) -> list[str]:
    rows = queries.notes_and_tags(db)
    rows = rows[rows["sweep"] == sweep]
    tags = [f"tags: {text}" for text in rows["tags"] if text]
    return [*tags, *(f"note: {line}" for text in rows["notes"] for line in str(text or "").splitlines())]
