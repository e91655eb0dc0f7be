"""`rpg report SWEEP`: the summary on the terminal, and figure, page and tables under
reports/<sweep>/."""

import base64
import contextlib
import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import markupsafe
import numpy as np
import pandas
import vl_convert
from rich.console import Console

from rpg import stats
from rpg.metrics import shown as shown_metrics
from rpg.report import charts, curves, problem_scores, resolution, tables
from rpg.report.conclusion import conclusion
from rpg.report.csv_text import csv_text
from rpg.report.selection import MEAN
from rpg.report.spending import remedy
from rpg.report.summary import Summary, record_look, summarise, terms_of
from rpg.report.theme import ON_DARK, specification, themed
from rpg.store import Layout, StoreError, atomic_write_bytes, atomic_write_text, queries, user_cache
from rpg.store.current import current_runs
from rpg.store.damage import damage_notes
from rpg.store.database import connect
from rpg.store.queries import Database

POINTS = 60  # points per training curve of the figure, whose panels are small


def print_summary(summary: Summary, console: Console) -> None:
    """Print the tables and notes of a sweep."""
    console.print(tables.terminal(summary))


def summary_of(layout: Layout, sweep: str) -> Summary:
    """What the database says of a sweep, for whoever shows it to a person: a new look at its
    differences is recorded. Raises StoreError: the database does not hold it."""
    with connect(layout) as db:
        return _summarise_and_record(layout, db, sweep)


def as_values(summary: Summary) -> dict[str, Any]:
    """A summary for programs: its conclusion, notes and tables, a mapping for each row."""
    equal = [
        {"axis": part.axis, "budget": part.budget, "table": part.table.to_dict("records")}
        for part in summary.equal
    ]
    return {
        "sweep": summary.sweep,
        "baseline": summary.baseline,
        "benchmarks": summary.benchmarks,
        "conclusion": conclusion(summary),
        "table": summary.table.to_dict("records"),
        "equal": equal,
        "notes": summary.notes,
    }


def _summarise_and_record(layout: Layout, db: Database, sweep: str) -> Summary:
    """The summary, with the notes on the sweep's data among its notes. A new look at its
    differences is recorded."""
    terms = terms_of(layout, sweep)
    summary = summarise(db, sweep, terms=terms)
    record_look(layout, summary, terms)
    damage = damage_notes(current_runs(layout, sweep))
    notes = [*summary.notes, *remedy(layout, summary), *damage, *layout.read_data_notes(sweep)]
    return summary._replace(notes=notes)


def write_report(layout: Layout, sweep: str, summary: Summary | None = None) -> list[Path]:
    """Write report.html, .png and .svg, verdict.txt, table.md, .tex and .csv, equal.csv and
    curves.csv; their paths. `summary`: what the caller has just read of the sweep.

    A sweep without any curve yet gets no figure. Raises StoreError if the database does not hold
    the sweep or a file cannot be written.
    """
    folder = layout.reports(sweep)
    with connect(layout) as db:
        if summary is None:
            summary = _summarise_and_record(layout, db, sweep)
        accuracies = _accuracy_curves(db, summary)
        data = _with_accuracies(db, summary, accuracies, POINTS)
        every_step = _with_accuracies(db, summary, accuracies)
    written = []

    def write(name: str, content: str) -> None:
        atomic_write_text(folder / name, content)
        written.append(folder / name)

    chart = _curves_figure(summary, data)
    if chart:
        drawing = vl_convert.vegalite_to_svg(curves.still(chart))
        atomic_write_bytes(folder / "report.png", vl_convert.svg_to_png(drawing, scale=2))
        written.append(folder / "report.png")
        write("report.svg", drawing)
    write("report.html", document(sweep, [section(summary, chart)], _links(layout, sweep)))
    write(
        "verdict.txt", "\n\n".join([" ".join(summary.question.split()), conclusion(summary)]) + "\n"
    )
    write("table.md", tables.markdown(summary))
    write("table.tex", tables.latex(summary))
    write("table.csv", csv_text(summary.table))
    if summary.equal:
        each = [
            part.table.assign(axis=part.axis, budget=part.budget, caution=summary.caution)
            for part in summary.equal
        ]
        write("equal.csv", csv_text(pandas.concat(each)))
    write("curves.csv", csv_text(every_step))
    return written


def _links(layout: Layout, sweep: str) -> dict[str, str]:
    """Text -> address of the pages about a sweep that were served while it ran."""
    pages = {
        "In the dashboard": layout.dashboard_url(sweep),
        "Flow run in Prefect": layout.flow_run_url(sweep),
    }
    return {text: url for text, url in pages.items() if url and pages["In the dashboard"]}


def _curves_figure(summary: Summary, data: pandas.DataFrame) -> dict[str, Any] | None:
    """All curves of a sweep in one figure: first accuracies, then what training did; None without
    any."""
    if data.empty:
        return None
    scores = [MEAN, *summary.benchmarks]
    varied, constants = curves.folded(data, [*scores, *shown_metrics()], scores)
    panels = curves.panels(data, list(summary.series.values()), varied, scores)
    explained = curves.explanation(data, varied, scores)
    lines = [*explained, *constants, *tables.significant(summary)]
    return specification(curves.figure(panels, summary.sweep, lines))


def sweep_curves(db: Database, summary: Summary, points: int | None = None) -> pandas.DataFrame:
    """All curves of the figure in one frame, see `curve_data`."""
    return _with_accuracies(db, summary, _accuracy_curves(db, summary), points)


def _accuracy_curves(db: Database, summary: Summary) -> pandas.DataFrame | None:
    """None: no checkpoint is evaluated yet."""
    names = score_names(summary.benchmarks)
    return score_curves(db, list(summary.series), names) if names else None


def _with_accuracies(
    db: Database, summary: Summary, accuracies: pandas.DataFrame | None, points: int | None = None
) -> pandas.DataFrame:
    """These curves, and those of training."""
    training = _training_curves(db, list(summary.series), shown_metrics(), points=points)
    return _in_one_frame(accuracies, training, summary.series)


def score_names(benchmarks: Sequence[str]) -> list[str]:
    """The accuracies there are: on each benchmark, and first their mean if there are several."""
    return [MEAN, *benchmarks] if len(benchmarks) > 1 else list(benchmarks)


def curve_data(
    db: Database,
    labels: Mapping[queries.Series, str],
    scores: Sequence[str],
    metrics: Sequence[str],
    x: str = "step",
    points: int | None = None,
    each_seed: bool = False,
) -> pandas.DataFrame:
    """Curves of variants in one frame: name (benchmark or metric), label, and the columns of the
    queries.

    `points`: the most points per training curve, as averages of neighbours; None keeps every step.
    `each_seed`: a curve for every seed.
    """
    series = list(labels)
    accuracies = None
    if scores and each_seed:
        each = queries.score_curves(db, series, scores, x, each_seed=True)
        accuracies = each.rename(columns={"benchmark": "name"})
    elif scores:
        accuracies = score_curves(db, series, scores, x)
    training = _training_curves(db, series, metrics, x, points, each_seed)
    return _in_one_frame(accuracies, training, labels)


def _training_curves(
    db: Database,
    series: Sequence[queries.Series],
    metrics: Sequence[str],
    x: str = "step",
    points: int | None = None,
    each_seed: bool = False,
) -> pandas.DataFrame:
    """`queries.metric_curves` of those metrics that were recorded, with `name` for `metric`, and
    where it was measured with what rounding alone makes of them."""
    recorded = queries.metric_names(db)
    measured = [name for name in metrics if name in recorded]
    training = queries.metric_curves(db, series, measured, x, points, each_seed)
    noises = [name for name in resolution.noises(measured) if name in recorded]
    if noises:
        noise = queries.metric_curves(db, series, noises, x, points, each_seed)
        training = resolution.with_noise(training, noise)
    return training.rename(columns={"metric": "name"})


def _in_one_frame(
    accuracies: pandas.DataFrame | None,
    training: pandas.DataFrame,
    labels: Mapping[queries.Series, str],
) -> pandas.DataFrame:
    """Both without points that have no value, and with the labels of their variants."""
    parts = [training] if accuracies is None else [accuracies, training]
    parts = [part for part in parts if len(part)] or parts
    data = pandas.concat(parts, ignore_index=True)
    data = data.dropna(subset=["mean", "x"])
    return data.assign(
        label=[labels[key] for key in map(queries.Series, data["sweep"], data["variant"])]
    )


def score_curves(
    db: Database, series: Sequence[queries.Series], names: Sequence[str], x: str = "step"
) -> pandas.DataFrame:
    """`queries.score_curves` with `name` for `benchmark`, and low and high from `stats.accuracy`.

    With two or three seeds an interval over seeds alone is of little use. A point whose seeds did
    not answer the same problems keeps Student's interval over seeds.
    """
    curves = queries.score_curves(db, series, names, x).rename(columns={"benchmark": "name"})
    bounds: dict[Hashable, tuple[float, float]] = {}
    for sweep in dict.fromkeys(key.sweep for key in series):
        bounds |= _bounds_over_problems(db, sweep, curves[curves["sweep"] == sweep])
    # Whole columns at once: pandas takes milliseconds to set a single cell.
    low = [bounds.get(place, (old, 0.0))[0] for place, old in curves["low"].items()]
    high = [bounds.get(place, (0.0, old))[1] for place, old in curves["high"].items()]
    return curves.assign(low=low, high=high)


def _bounds_over_problems(
    db: Database, sweep: str, drawn: pandas.DataFrame
) -> dict[Hashable, tuple[float, float]]:
    """Index of a drawn point -> its interval over seeds and problems, where its seeds answered the
    same problems."""
    scores = queries.scores(db, sweep)
    shown = scores[scores["variant"].isin(drawn["variant"])]
    runs: dict[tuple[str, int, str], list[str]] = {}
    points = zip(shown["variant"], shown["step"], shown["benchmark"], strict=True)
    for point, run in zip(points, shown["run"], strict=True):
        runs.setdefault(point, []).append(run)
    problems = problem_scores.ProblemScores(
        db, sweep, set(zip(shown["run"], shown["step"], strict=True))
    )
    benchmarks = queries.benchmarks(db, [sweep])
    bounds: dict[Hashable, tuple[float, float]] = {}
    for point in drawn.itertuples():
        numbered = dict(enumerate(runs[point.variant, point.step, point.name]))
        seeds = problem_scores.at_step(numbered, point.step)
        # The mean is over the run's own benchmarks; one that was imported may bring others into
        # the sweep.
        parts = benchmarks if point.name == MEAN else [point.name]
        arrays = [array for name in parts if (array := problems.array(name, seeds)) is not None]
        if not arrays:
            continue
        estimate = stats.accuracy(arrays)
        if np.isclose(estimate.mean, point.mean):
            bounds[point.Index] = (estimate.low, estimate.high)
    return bounds


class Section(NamedTuple):
    """A part of a page. `lines`: sentences before everything else. `charts`: (name of its file,
    title, Altair chart, or its specification; on a page of the dashboard also a list of panels that
    stand side by side)."""

    title: str
    lines: Sequence[str] = ()
    grids: Sequence[tables.Grid] = ()
    charts: Sequence[tuple[str, str, Any]] = ()
    caption: Sequence[str] = ()
    notes: Sequence[str] = ()


def section(summary: Summary, curves: Mapping[str, Any] | None = None, title: str = "") -> Section:
    """The tables of a sweep, the chart of its differences from the baseline, and the specification
    of its curves."""
    drawn = [] if curves is None else [("report", "Curves", curves)]
    chart = charts.differences(summary)
    if chart:
        drawn.insert(0, ("differences", "Differences from the baseline", chart))
    lines = [line for line in (summary.question, conclusion(summary), summary.spending) if line]
    return Section(
        title, lines, tables.grids(summary), drawn, tables.caption(summary), summary.notes
    )


def sweep_section(layout: Layout, db: Database, sweep: str) -> tuple[Summary, Section]:
    """The summary of a sweep, and the part of a page about it. A new look at its differences is
    recorded. Raises StoreError: the database does not hold it."""
    summary = _summarise_and_record(layout, db, sweep)
    figure = _curves_figure(summary, sweep_curves(db, summary, POINTS))
    return summary, section(summary, figure)


def field_page(losses: str, corrections: Sequence[Mapping[str, Any]]) -> str:
    """`rpg audit --field`: the losses (JSON) and the corrections for samples of another policy, as
    one page."""
    words = (
        "Filled: a trainer's default; hollow: an option. Points of one place stand side by side."
    )
    figures = [("losses", "Losses", charts.field_figure(losses))]
    beside = [("samplers", "Bias against noise", charts.corrections_figure(corrections))]
    parts = [
        Section("", charts=figures),
        Section("Samples of another policy", [words], charts=beside),
    ]
    return document("Losses as trainers ship them", parts)


def document(
    title: str,
    sections: Sequence[Section],
    links: Mapping[str, str] | None = None,
    generator: str = "rpg report",
) -> str:
    """The page. All of it is escaped, and only the script that draws its charts may run.

    `links`, below the title: text -> address, or file beside the page.
    """
    parts = []
    count = 0
    for part in sections:
        numbered = [
            (count + i, name, _script(spec)) for i, (_, name, spec) in enumerate(part.charts, 1)
        ]
        count += len(numbered)
        parts.append((part, numbered))
    drawing = library().replace("</script", "<\\/script") + packaged("page.js") if count else ""
    return rendered(
        "page.html",
        drawing,
        title=title,
        sections=parts,
        links=links or {},
        generator=generator,
        shades=json_element(ON_DARK) if count else "",
    )


def rendered(template: str, script: str, **values: Any) -> str:
    """A template of this package with its script, which is the only one that its policy allows."""
    page = jinja2.Environment(autoescape=True).from_string(packaged(template))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return page.render(script=markupsafe.Markup(script), policy=policy, **values)


def packaged(name: str) -> str:
    """The text of a file of this package."""
    return resources.files("rpg.report").joinpath(name).read_text("utf-8")


def library() -> str:
    """The JavaScript that draws charts; cached, because bundling it takes more than a second."""
    cache = user_cache() / f"vega-{vl_convert.__version__}.js"  # type: ignore[attr-defined]  # lacks in its stubs
    if cache.is_file():
        return cache.read_text("utf-8")
    code: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stubs ask for an optional argument
    with contextlib.suppress(
        OSError, StoreError
    ):  # the cache cannot be written: bundled again each time
        atomic_write_text(cache, code)
    return code


def _script(chart: Any) -> markupsafe.Markup:
    return json_element(chart if isinstance(chart, dict) else specification(themed(chart)))


def json_element(value: Any) -> markupsafe.Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"))
    return markupsafe.Markup(
        text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    )
