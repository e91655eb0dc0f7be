"""The paper's figure for any sweeps, variants and quantities."""

from collections.abc import Callable
from typing import Any

import pandas
import streamlit as st
import vl_convert

from dashboard.drawing import show_panels
from dashboard.selection import choose, choose_many
from dashboard.text import notice
from dashboard.view import View, series_labels
from rpg.metrics import shown as shown_metrics
from rpg.report import charts, theme
from rpg.report.shared_page import Choice
from rpg.report.summary import MEAN
from rpg.store import queries

HOW = (
    "Drag moves all panels, Shift and wheel zooms them, double click resets. What is clicked in the legend stands out; "
    "another click takes it back."
)
POINTS = 560  # of all curves of a panel together: what a browser draws without a wait


def page(view: View) -> None:
    with st.sidebar:
        known = view.ask("sweeps")["sweep"].tolist()
        sweeps = choose_many("Sweeps", known, "sweeps", known[:1])
        superseded = st.toggle(
            "Superseded runs too", key="superseded", bind="query-params", persist_state="session",
            help="Older runs of the same name, with other settings: as variants of their own",
        )  # fmt: skip
        names = series_labels(view, sweeps, superseded)
        chosen = choose_many(
            "Variants", list(names.values()), "variants", theme.first_shown(list(names.values()))
        )
        benchmarks = view.ask("benchmarks", tuple(sweeps))
        benchmarks = [MEAN, *benchmarks] if len(benchmarks) > 1 else benchmarks
        metrics = view.ask("metric_names")
        default = [*benchmarks, *(name for name in shown_metrics() if name in metrics)]
        panels = choose_many("Panels", [*benchmarks, *metrics], "panels", default)
        x = choose("Horizontal axis", list(charts.X_TITLES), "x")
        smooth = st.slider("Moving average (points)", 1, 25, 1, key="smooth", bind="query-params",
                           persist_state="session")  # fmt: skip
        series = tuple(key for key, label in names.items() if label in chosen)
        wanted = {"series": series, "panels": tuple(panels), "x": x, "names": names}
        data = curve_data(view, **wanted)
        bands = choose("Bands", [charts.AUTOMATIC, charts.RANGE, charts.SEEDS, charts.NONE], "bands")
    if data.empty:
        st.text("Nothing to show: choose sweeps, variants and panels on the left.")
        return
    for sweep in sweeps:
        for line in view.ask("differences", sweep):
            notice(f"! {sweep}: {line}")
    labels = list(names.values())
    shown = charts.panels_of(data, panels)
    seeds = int(data["seeds"].max())

    two = bands == charts.AUTOMATIC and seeds == 2
    every = curve_data(view, **wanted, each_seed=True) if bands == charts.SEEDS or two else None

    def panel(name: str, **options: Any) -> Any:
        scores = name in benchmarks  # few checkpoints: shown as points, never smoothed
        only = two and not scores  # a mean of two says nothing that the two do not say
        kinds = {charts.RANGE: "range", charts.NONE: None, charts.SEEDS: None}
        return charts.curves(
            data[data["name"] == name],
            labels,
            name=name,
            x=x,
            band=kinds.get(str(bands), charts.band_for(seeds, scores)),
            points=scores,
            smooth=1 if scores else smooth,
            each=every[every["name"] == name]
            if every is not None and (only or bands == charts.SEEDS)
            else None,
            mean=not only,
            **options,
        )

    panels_shown = [panel(name, legend=chosen, height=210, linked=True) for name in shown]
    show_panels(panels_shown, chosen, "curves")
    explanation = charts.explanation(data, bands, smooth, each=two)
    if elsewhere := _imported(view, series, names):
        explanation = [*explanation, f"Trained elsewhere: {', '.join(elsewhere)}."]
    st.text(" ".join([*explanation, HOW]))

    def figure(across: int) -> str:
        alone = [panel(name, legend=chosen) for name in shown]
        chart = charts.figure(alone, ", ".join(sweeps), explanation, columns=across)
        return vl_convert.vegalite_to_svg(charts.still(charts.specification(chart)))

    with st.container(horizontal=True):
        choice = Choice(tuple(sweeps), tuple(chosen), tuple(panels), x=x, superseded=superseded)
        of = repr((sorted(wanted.items(), key=str), bands, smooth, chosen, view.version))
        _save(figure, lambda: view.shared(choice), len(shown), of)
        st.download_button(
            "Data as CSV",
            lambda: curve_data(view, **wanted, thin=False).to_csv(index=False),
            "curves.csv",
            on_click="ignore",
        )


def _imported(view: View, series: tuple[queries.Series, ...], names: dict[queries.Series, str]) -> list[str]:
    """Labels of the variants whose runs were imported: `rpg import` knows neither their settings nor their data."""
    found = {sweep: view.ask("runs", sweep) for sweep in dict.fromkeys(key.sweep for key in series)}
    there = {sweep: set(runs.loc[runs["imported"].notna(), "variant"]) for sweep, runs in found.items()}
    return [names[key] for key in series if key.variant in there[key.sweep]]


FORMATS: dict[str, Callable[[str], Any]] = {
    "PNG": lambda svg: vl_convert.svg_to_png(svg, scale=3),
    "SVG": lambda svg: svg,
    "PDF": vl_convert.svg_to_pdf,
}


SHARED = "HTML"
"""One file with the curves and the sweeps' tables, tests and notes, which needs nothing but itself."""


def _save(figure: Callable[[int], str], share: Callable[[], str], panels: int, of: str) -> None:
    """Make the figure (or the page), then offer it. Streamlit forgets a file that it makes itself after the click, if that
    takes longer than it takes the page to look for newer results; one that is there it keeps.
    """
    with st.popover("Save or share"):
        across = st.slider("Panels in a row", 1, max(2, min(6, panels)), max(1, min(4, panels)), key="across")
        kind = st.segmented_control("Format", [*FORMATS, SHARED], default="PNG", required=True, key="format")
        asked = (of, across, kind)
        if st.button("Make"):
            with st.spinner("Drawing"):
                made = share() if kind == SHARED else FORMATS[str(kind)](figure(across))
                st.session_state["figure"] = asked, made
        made = st.session_state.get("figure")
        if made and made[0] == asked:
            name = "report.html" if kind == SHARED else f"figure.{str(kind).lower()}"
            label = "Page as HTML" if kind == SHARED else f"Figure as {kind}"
            st.download_button(label, made[1], name, on_click="ignore", type="primary")


def curve_data(
    view: View, series, panels, x, names, thin: bool = True, each_seed: bool = False
) -> pandas.DataFrame:
    """Curves of benchmarks and metrics in one frame, column `name` saying which; `each_seed`: of every seed.

    `thin`: no more points than a panel of three in a row can show, the fewer the more curves share it.
    """
    points = min(queries.POINTS, max(POINTS // max(1, len(series)), 40)) if thin else None
    metrics = view.ask("metric_names")
    wanted = tuple(name for name in panels if name in metrics)
    benchmarks = tuple(name for name in panels if name not in metrics)
    scores: pandas.DataFrame | tuple[()] = ()
    if benchmarks and each_seed:
        scores = view.ask("score_curves", series, benchmarks, x, True).rename(columns={"benchmark": "name"})
    elif benchmarks:
        scores = view.scores(series, benchmarks, x)
    curves = view.ask("metric_curves", series, wanted, x, points, each_seed).rename(
        columns={"metric": "name"}
    )
    parts = [part for part in (scores, curves) if len(part)]
    if not parts:
        return pandas.DataFrame(columns=["name", "seeds"])
    data = pandas.concat(parts, ignore_index=True)
    references = view.ask("references", tuple(dict.fromkeys(key.sweep for key in series)))
    data = charts.by_reference(data, references)
    return charts.labelled(data[data["mean"].notna()], names)
