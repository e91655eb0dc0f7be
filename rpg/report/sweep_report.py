"""`rpg report SWEEP`: the summary on the terminal, and figure, page and tables under reports/<sweep>/."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import altair as alt
import duckdb
import pandas
import vl_convert
from rich.console import Console

from rpg.metrics import shown as shown_metrics
from rpg.report import curves, tables
from rpg.report.html_page import document, section
from rpg.report.intervals import score_curves
from rpg.report.summary import MEAN, Summary, recorded_looks, summarise
from rpg.report.theme import specification
from rpg.store import Layout, atomic_write_bytes, atomic_write_text, queries
from rpg.store.database import connect

POINTS = 60  # points per training curve of the figure, whose panels are small


def print_report(layout: Layout, sweep: str, console: Console, superseded: bool = False) -> None:
    """Print the tables and notes of a sweep. Raises StoreError if the database does not hold it.

    `superseded`: include older runs of the same name, as variants of their own.
    """
    with connect(layout) as db:
        console.print(tables.terminal(_summary(layout, db, sweep, superseded)))


def _summary(layout: Layout, db: duckdb.DuckDBPyConnection, sweep: str, superseded: bool = False) -> Summary:
    """The summary, with the notes on the sweep's data among its notes. A new look at its differences is recorded."""
    looks = recorded_looks(layout, sweep)
    summary = summarise(db, sweep, superseded=superseded, looks=looks)
    if summary.look and not superseded and summary.look not in looks:
        layout.add_look(sweep, summary.look._asdict())
    return summary._replace(notes=[*summary.notes, *layout.read_data_notes(sweep)])


def write_report(layout: Layout, sweep: str) -> list[Path]:
    """Write report.html, report.png, report.svg, table.md, table.tex, table.csv and curves.csv; their paths.

    A sweep without any curve yet gets no figure. Raises StoreError if the database does not hold the sweep or a file
    cannot be written.
    """
    folder = layout.reports(sweep)
    with connect(layout) as db:
        summary = _summary(layout, db, sweep)
        data, every_step = sweep_curves(db, summary, POINTS), sweep_curves(db, summary)
    written = []

    def write(name: str, content: str) -> None:
        atomic_write_text(folder / name, content)
        written.append(folder / name)

    drawn = [] if data.empty else [("Curves", specification(_figure(summary, data)))]
    for _, chart in drawn:
        drawing = vl_convert.vegalite_to_svg(curves.still(chart))
        atomic_write_bytes(folder / "report.png", vl_convert.svg_to_png(drawing, scale=2))
        written.append(folder / "report.png")
        write("report.svg", drawing)
    write("report.html", document(sweep, [section(summary, drawn)]))
    write("table.md", tables.markdown(summary))
    write("table.tex", tables.latex(summary))
    write("table.csv", summary.table.to_csv(index=False))
    write("curves.csv", every_step.to_csv(index=False))
    return written


def sweep_curves(
    db: duckdb.DuckDBPyConnection, summary: Summary, points: int | None = None
) -> pandas.DataFrame:
    """All curves of the figure in one frame, see `curve_data`."""
    labels = {queries.Series(summary.sweep, name): summary.labels[name] for name in summary.variants}
    return curve_data(db, labels, score_names(summary.benchmarks), shown_metrics(), points=points)


def score_names(benchmarks: Sequence[str]) -> list[str]:
    """The accuracies there are: on each benchmark, and first their mean if there are several."""
    return [MEAN, *benchmarks] if len(benchmarks) > 1 else list(benchmarks)


def curve_data(
    db: duckdb.DuckDBPyConnection,
    labels: Mapping[queries.Series, str],
    scores: Sequence[str],
    metrics: Sequence[str],
    x: str = "step",
    points: int | None = None,
) -> pandas.DataFrame:
    """Curves of variants in one frame: name (benchmark or metric), label, and the columns of the queries.

    `points`: the most points per training curve, as averages of neighbours; None keeps every step.
    """
    known, series = queries.metric_names(db), list(labels)
    measured = [name for name in metrics if name in known]
    training = queries.metric_curves(db, series, measured, x, points=points)
    parts = [score_curves(db, series, scores, x)] if scores else []
    data = pandas.concat([*parts, training.rename(columns={"metric": "name"})], ignore_index=True)
    return curves.labelled(data[data["mean"].notna()], labels)


def _figure(summary: Summary, data: pandas.DataFrame) -> alt.ConcatChart:
    """The figure of the report: benchmarks first, then what training did."""
    scores = [MEAN, *summary.benchmarks]
    labels = [summary.labels[variant] for variant in summary.variants]
    panels = curves.panels(data, labels, [*scores, *shown_metrics()], scores)
    return curves.figure(panels, summary.sweep, [*curves.explanation(data), *tables.significant(summary)])
