"""`rpg report`: the summary on the terminal, and figure, page and tables under reports/<sweep>/."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pandas
from rich.console import Console

from rpg.metrics import shown as shown_metrics
from rpg.report import charts, tables, theme
from rpg.report.intervals import score_curves
from rpg.report.summary import MEAN, Summary, summarise
from rpg.store import Layout, StoreError, atomic_write_bytes, atomic_write_text, queries, user_cache
from rpg.store.database import connect

POINTS = 60  # points per curve of the figure: its panels are two fingers wide


def print_report(layout: Layout, sweep: str, console: Console, superseded: bool = False) -> None:
    """Print tables and notes of a sweep; StoreError when the database does not hold it.

    `superseded`: with older runs of the same name as variants of their own.
    """
    with connect(layout) as db:
        console.print(tables.terminal(_summary(layout, db, sweep, superseded)))


def _summary(layout: Layout, db: duckdb.DuckDBPyConnection, sweep: str, superseded: bool = False) -> Summary:
    """With what is known about the problems among its notes."""
    found = summarise(db, sweep, superseded=superseded)
    return found._replace(notes=[*found.notes, *layout.read_data_notes(sweep)])


def write_report(layout: Layout, sweep: str) -> list[Path]:
    """Write report.html, report.png, report.svg, table.md, table.tex, table.csv and curves.csv; their paths.

    A sweep without any curve yet gets no figure. Raises StoreError when the database does not hold the
    sweep or a file cannot be written.
    """
    folder = layout.reports(sweep)
    with connect(layout) as db:
        summary = _summary(layout, db, sweep)
        data, every = curve_data(db, summary, POINTS), curve_data(db, summary)
    written = []

    def write(name: str, content: str | bytes) -> None:
        path = folder / name
        (atomic_write_bytes if isinstance(content, bytes) else atomic_write_text)(path, content)
        written.append(path)

    curves = None if data.empty else charts.specification(figure(summary, data))
    if curves:
        import vl_convert

        drawing = vl_convert.vegalite_to_svg(charts.still(curves))
        write("report.png", vl_convert.svg_to_png(drawing, scale=2))
        write("report.svg", drawing)
    drawn = [("Curves", curves)] if curves else []
    write("report.html", document(sweep, [section(summary, drawn)], library()))
    write("table.md", tables.markdown(summary))
    write("table.tex", tables.latex(summary))
    write("table.csv", summary.table.to_csv(index=False))
    write("curves.csv", every.to_csv(index=False))
    return written


def curve_data(
    db: duckdb.DuckDBPyConnection, summary: Summary, points: int | None = None
) -> pandas.DataFrame:
    """All curves of the figure in one frame: name (benchmark or metric), label, and the queries' columns.

    `points`: at most so many per training curve, averaging neighbours; None keeps every step.
    """
    series = [queries.Series(summary.sweep, variant) for variant in summary.variants]
    known = queries.metric_names(db)
    names = [MEAN, *summary.benchmarks] if len(summary.benchmarks) > 1 else summary.benchmarks
    scores = score_curves(db, series, names)
    metrics = queries.metric_curves(
        db, series, [name for name in shown_metrics() if name in known], points=points
    )
    data = pandas.concat([scores, metrics.rename(columns={"metric": "name"})], ignore_index=True)
    return charts.labelled(data[data["mean"].notna()], summary.labels)


def figure(summary: Summary, data: pandas.DataFrame) -> Any:
    """The figure of the report: benchmarks first, then what training did."""
    scores = [MEAN, *summary.benchmarks]
    shown = [summary.labels[variant] for variant in summary.variants]
    present = [label for label in shown if label in set(data["label"])]
    seeds = int(data["seeds"].max())
    panels = [
        charts.curves(
            data[data["name"] == name],
            shown,
            name=name,
            band=charts.band_for(seeds, name in scores),
            legend=present,
            points=name in scores,
        )
        for name in [*scores, *shown_metrics()]
        if (data["name"] == name).any()
    ]
    return charts.figure(panels, summary.sweep, [*charts.explanation(data), *tables.real(summary)])


def library() -> str:
    """The JavaScript that draws charts; kept, because putting it together takes more than a second each time."""
    import vl_convert

    kept = user_cache() / f"vega-{vl_convert.__version__}.js"
    if kept.is_file():
        return kept.read_text("utf-8")
    made: str = vl_convert.javascript_bundle()
    with contextlib.suppress(OSError, StoreError):  # a home that cannot be written: made each time
        atomic_write_text(kept, made)
    return made


@dataclass(frozen=True)
class Section:
    """A part of a page. `charts`: (title, specification)."""

    title: str
    grids: Sequence[tables.Grid] = ()
    charts: Sequence[tuple[str, dict[str, Any]]] = ()
    caption: Sequence[str] = ()
    notes: Sequence[str] = ()
    lines: Sequence[str] = ()
    """Sentences before everything else."""


def section(summary: Summary, specs: Sequence[tuple[str, dict[str, Any]]] = (), title: str = "") -> Section:
    """The tables of a sweep with what is real above its charts `specs`."""
    judged = summary.table
    judged = judged[(judged["benchmark"] == tables.headline(summary)) & (judged["verdict"] != "")]
    real = []
    if len(judged):
        baseline = summary.labels.get(summary.baseline, summary.baseline)
        chart = theme.themed(charts.differences(judged, baseline))
        real = [("What is real", charts.specification(chart))]
    empty = summary.table.empty
    grids = [] if empty else [tables.main_table(summary), tables.benchmark_table(summary)]
    return Section(
        title,
        [grid for grid in grids if grid],
        [*real, *specs],
        tables.caption(summary),
        summary.notes,
        ["No checkpoint has been evaluated on all benchmarks yet."] if empty else [],
    )


def document(title: str, sections: Sequence[Section], library: str) -> str:
    """Sections as one HTML file that needs nothing but itself; everything in it is text, but for the charts' library."""
    import jinja2

    template = jinja2.Environment(autoescape=True).from_string(
        resources.files("rpg.report").joinpath("page.html").read_text("utf-8")
    )
    shown, count = [], 0
    for one in sections:
        drawn = []
        for name, spec in one.charts:
            count += 1
            drawn.append((count, name, _script(spec)))
        shown.append((one, drawn))
    return template.render(title=title, sections=shown, count=count, library=_inline(library))


def _script(spec: dict[str, Any]) -> Any:
    """JSON that cannot end the script element it stands in."""
    import markupsafe

    text = json.dumps(spec, separators=(",", ":"))
    return markupsafe.Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _inline(code: str) -> Any:
    import markupsafe

    return markupsafe.Markup(code.replace("</script", "<\\/script"))
