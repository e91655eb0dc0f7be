"""Several sweeps, or a choice of one, as one HTML file that can be sent to somebody.

Tables and tests are each sweep's own: its variants share problems and seeds, those of another sweep may not.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pandas
from rich.console import Console

from rpg.metrics import shown as shown_metrics
from rpg.report import charts, tables
from rpg.report.intervals import score_curves
from rpg.report.summary import MEAN, Summary, series_labels, summarise
from rpg.report.sweep_report import POINTS, Section, document, library, section
from rpg.store import Layout, StoreError, atomic_write_text, queries
from rpg.store.database import connect


@dataclass(frozen=True)
class Choice:
    """What to show; empty: everything (of the metrics those that reports show)."""

    sweeps: tuple[str, ...]
    variants: tuple[str, ...] = ()
    """By name or label."""
    panels: tuple[str, ...] = ()
    """Benchmarks (`mean`: their mean) and metrics."""
    baseline: str | None = None
    x: str = "step"
    superseded: bool = False
    """Older runs of the same name too, as variants of their own."""


def shared_page(layout: Layout, db: duckdb.DuckDBPyConnection, choice: Choice) -> str:
    """The page.

    Raises:
        StoreError: the database does not hold a sweep, a variant, a panel or the baseline.
    """
    summaries = [_summary(db, layout, sweep, choice) for sweep in choice.sweeps]
    names = _series(db, choice)
    chart = _curves(db, choice, names)
    drawn = [] if chart is None else [("Curves", charts.specification(chart))]
    several = len(summaries) > 1
    sections = [
        Section("", [_overview(summaries)], drawn, [_SEVERAL], lines=[_counted(summaries)])
        if several
        else section(summaries[0], drawn)
    ]
    if several:
        sections += [section(one, title=one.sweep) for one in summaries]
    return document(", ".join(choice.sweeps), sections, library())


_SEVERAL = (
    "Variants are tested within their sweep only, against its baseline, below: other sweeps may have had other problems, "
    "seeds or budgets."
)


def write_shared(layout: Layout, choice: Choice, path: Path) -> Path:
    """Write the page to `path`. Raises StoreError, as :func:`shared_page`."""
    with connect(layout) as db:
        text = shared_page(layout, db, choice)
    atomic_write_text(path, text)
    return path


def default_path(layout: Layout, choice: Choice) -> Path:
    """Where the page lies unless told otherwise."""
    return layout.reports("+".join(choice.sweeps)) / "shared.html"


def print_shared(layout: Layout, choice: Choice, console: Console) -> None:
    """The sweeps' tables, one after another."""
    with connect(layout) as db:
        for sweep in choice.sweeps:
            console.print(tables.terminal(_summary(db, layout, sweep, choice)))


def _summary(db: duckdb.DuckDBPyConnection, layout: Layout, sweep: str, choice: Choice) -> Summary:
    """A sweep's summary with the chosen variants and benchmarks; tests are corrected for all of its variants."""
    known = queries.benchmarks(db, [sweep])
    wanted = [name for name in known if name in choice.panels]
    baseline = _baseline(db, sweep, choice)
    found = summarise(db, sweep, baseline, wanted or None, choice.superseded)
    notes = [*found.notes, *layout.read_data_notes(sweep), *_marks(db, sweep)]
    kept = _kept(found, choice)
    if len(kept) < len(found.variants):
        notes.append(
            f"{len(kept)} of {len(found.variants)} variants are shown; tests are corrected for all of them"
        )
    table = found.table[found.table["variant"].isin(kept)].reset_index(drop=True)
    return found._replace(table=table, variants=kept, notes=notes)


def _baseline(db: duckdb.DuckDBPyConnection, sweep: str, choice: Choice) -> str | None:
    if choice.baseline is None:
        return None
    named = series_labels(queries.variants(db, [sweep]), {sweep: None}, [sweep])
    for series, shown in named.items():
        if choice.baseline in (series.variant, shown):
            return series.variant
    if len(choice.sweeps) > 1:
        return None  # of another of the sweeps
    accepted = ", ".join(series.variant for series in named)
    raise StoreError(f"--baseline {choice.baseline!r}: {sweep} has {accepted or 'no variants yet'}")


def _kept(found: Summary, choice: Choice) -> list[str]:
    if not choice.variants:
        return found.variants
    wanted = set(choice.variants)
    return [
        variant
        for variant in found.variants
        if wanted & {variant, shown := found.labels[variant], f"{found.sweep} · {shown}"}
    ]


def _series(db: duckdb.DuckDBPyConnection, choice: Choice) -> dict[queries.Series, str]:
    """The chosen variants with their labels. Raises StoreError: one that is chosen is not there."""
    known = queries.sweeps(db).set_index("sweep")
    named = series_labels(
        queries.variants(db, choice.sweeps, choice.superseded), known["baseline"], choice.sweeps
    )
    if not choice.variants:
        return named
    found: dict[queries.Series, str] = {}
    used: set[str] = set()
    for series, shown in named.items():
        called = {series.variant, shown, shown.rpartition(" · ")[2]} & set(choice.variants)
        if called:
            found[series] = shown
            used |= called
    for name in choice.variants:
        if name not in used:
            accepted = ", ".join(dict.fromkeys(series.variant for series in named))
            raise StoreError(f"--variant {name!r}: there are {accepted or 'none yet'}")
    return found


def _curves(db: duckdb.DuckDBPyConnection, choice: Choice, names: dict[queries.Series, str]) -> Any:
    """All chosen panels in one figure; None where there is nothing to draw."""
    benchmarks = queries.benchmarks(db, list(choice.sweeps))
    metrics = queries.metric_names(db)
    scores = [MEAN, *benchmarks] if len(benchmarks) > 1 else benchmarks
    panels = choice.panels or (*scores, *(name for name in shown_metrics() if name in metrics))
    for name in panels:
        if name not in scores and name not in metrics:
            raise StoreError(f"--panel {name!r}: accepted are {', '.join([*scores, *metrics])}")
    series = list(names)
    parts = [
        score_curves(db, series, [name for name in panels if name in scores], choice.x),
        queries.metric_curves(
            db, series, [name for name in panels if name in metrics], choice.x, points=POINTS
        ).rename(columns={"metric": "name"}),
    ]
    data = pandas.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    if data.empty:
        return None
    data = charts.by_reference(data, queries.references(db, list(choice.sweeps)))
    data = charts.labelled(data[data["mean"].notna()], names)
    shown, seeds = list(names.values()), int(data["seeds"].max())
    present = [one for one in shown if one in set(data["label"])]
    drawn = [
        charts.curves(
            data[data["name"] == name],
            shown,
            name=name,
            x=choice.x,
            band=charts.band_for(seeds, name in scores),
            legend=present,
            points=name in scores,
        )
        for name in charts.panels_of(data, panels)
    ]
    return charts.figure(drawn, ", ".join(choice.sweeps), charts.explanation(data))


def _overview(summaries: Sequence[Summary]) -> tables.Grid:
    """All variants of all sweeps below each other: last and best, the mean over a sweep's benchmarks."""
    rows = []
    for one in summaries:
        name = tables.headline(one)
        for row in one.table[one.table["benchmark"] == name].itertuples():
            last = tables.plus_minus(row.last, row.low, row.high)
            texts = (one.sweep, row.label, str(row.seeds), str(row.step), last, tables.number(row.best))
            rows.append([tables.Cell(text) for text in (*texts, _benchmarks(one))])
    header = ["Sweep", "Variant", "Seeds", "Step", "Last", "Best", "Accuracy on"]
    return tables.Grid("All sweeps", header, rows)


def _benchmarks(one: Summary) -> str:
    return ", ".join(one.benchmarks) if len(one.benchmarks) < 4 else f"{len(one.benchmarks)} benchmarks"


def _counted(summaries: Sequence[Summary]) -> str:
    common = set.intersection(*(set(one.benchmarks) for one in summaries))
    total = set(itertools.chain.from_iterable(one.benchmarks for one in summaries))
    shared = (
        "the same benchmarks" if common == total else f"{len(common)} of {len(total)} benchmarks in common"
    )
    return f"{len(summaries)} sweeps with {shared}."


def _marks(db: duckdb.DuckDBPyConnection, sweep: str) -> list[str]:
    """Its tags and notes."""
    found = queries.notes_and_tags(db)
    mine = found[found["sweep"] == sweep]
    tagged = [f"tags: {text}" for text in mine["tags"] if text]
    return [*tagged, *(f"note: {line}" for text in mine["notes"] for line in str(text or "").splitlines())]
