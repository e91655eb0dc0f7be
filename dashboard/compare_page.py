"""Curves of any variants, benchmarks and metrics of one or several sweeps, like the paper's figure."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas
import streamlit as st
import vl_convert

from dashboard.view import View, series_labels
from dashboard.widgets import Nothing, choose, choose_many, notice, show_panels
from rpg.metrics import shown as shown_metrics
from rpg.report import curves, sweep_report, theme
from rpg.report.shared_page import Choice
from rpg.store import queries

HOW = (
    "Drag to move all panels, hold Shift and scroll to zoom, double-click to reset. Click a legend entry to "
    "highlight it, and again to undo."
)
POINTS = 560  # of all curves of a panel together: more would take a browser noticeable time


def page(view: View) -> None:
    with st.sidebar:
        all_sweeps = view.ask("sweeps")["sweep"].tolist()
        sweeps = choose_many("Sweeps", all_sweeps, "sweeps", all_sweeps[:1])
        superseded = st.toggle(
            "Include superseded runs", key="superseded", bind="query-params", persist_state="session",
            help="Older runs of the same name, with other settings, as separate variants",
        )  # fmt: skip
        names = series_labels(view, sweeps, superseded)
        chosen = choose_many("Variants", list(names.values()), "variants")
        benchmarks = sweep_report.score_names(view.ask("benchmarks", tuple(sweeps)))
        metrics = view.ask("metric_names")
        default = [*benchmarks, *(name for name in shown_metrics() if name in metrics)]
        panels = choose_many("Panels", [*benchmarks, *metrics], "panels", default)
        x = choose("Horizontal axis", list(curves.X_TITLES), "x")
        smooth = st.slider("Moving average (points)", 1, 25, 1, key="smooth", bind="query-params",
                           persist_state="session")  # fmt: skip
        shown_labels = {key: label for key, label in names.items() if label in chosen}
        data = curve_data(view, shown_labels, panels, x)
        bands = choose("Bands", [curves.AUTOMATIC, curves.RANGE, curves.SEEDS, curves.NONE], "bands")
    if data.empty:
        raise Nothing("Nothing to show: select sweeps, variants and panels on the left.")
    for sweep in sweeps:
        for line in view.ask("differences", sweep):
            notice(f"! {sweep}: {line}")
    labels = list(names.values())
    shown = curves.panels_of(data, panels)
    constants = curves.constant(data, [name for name in shown if name not in benchmarks])
    shown = [name for name in shown if name not in constants] or shown
    two = bands == curves.AUTOMATIC and int(data["seeds"].max()) == 2
    apart = two or bands == curves.SEEDS
    by_seed = curve_data(view, shown_labels, panels, x, each_seed=True) if apart else None
    draw = partial(
        curves.panels, data, labels, shown, benchmarks, x, by_seed, bands=bands, smooth=smooth, legend=chosen
    )
    show_panels(draw(height=210, linked=True), chosen, "curves")
    explanation = curves.explanation(data, bands, smooth, each=two)
    if imported := _imported(view, shown_labels):
        explanation = [*explanation, f"Trained elsewhere: {', '.join(imported)}."]
    st.text(" ".join(filter(None, [*explanation, curves.folded(constants), HOW])))

    def figure(across: int) -> str:
        chart = curves.figure(draw(), ", ".join(sweeps), explanation, columns=across)
        return vl_convert.vegalite_to_svg(curves.still(theme.specification(chart)))

    with st.container(horizontal=True):
        choice = Choice(tuple(sweeps), tuple(chosen), tuple(panels), x=x, superseded=superseded)
        selection = repr((shown_labels, panels, x, bands, smooth, chosen, view.version))
        made: dict[str, Callable[[int], Any]] = {
            SHARED: lambda _: view.shared_page(choice),
            CSV: lambda _: curve_data(view, shown_labels, panels, x, thin=False).to_csv(index=False),
        }
        made = {kind: lambda across, draw=draw: draw(figure(across)) for kind, draw in FORMATS.items()} | made
        _save(made, len(shown), selection)


def _imported(view: View, labels: Mapping[queries.Series, str]) -> list[str]:
    """Labels of the variants whose runs were imported: neither their settings nor their data are known."""
    runs = {sweep: view.ask("runs", sweep) for sweep in dict.fromkeys(key.sweep for key in labels)}
    imported = {sweep: set(rows.loc[rows["imported"].notna(), "variant"]) for sweep, rows in runs.items()}
    return [label for key, label in labels.items() if key.variant in imported[key.sweep]]


FORMATS: dict[str, Callable[[str], Any]] = {
    "PNG": lambda svg: vl_convert.svg_to_png(svg, scale=3),
    "SVG": lambda svg: svg,
    "PDF": vl_convert.svg_to_pdf,
}
SHARED, CSV = "HTML", "CSV"
"""One self-contained file with the curves and the sweeps' tables, tests and notes; every step of every curve."""
FILES = {SHARED: ("Page as HTML", "report.html"), CSV: ("Data as CSV", "curves.csv")}


def _save(made: Mapping[str, Callable[[int], Any]], panels: int, selection: str) -> None:
    """Make a file, then offer it for download: `made` is {format: its contents, given the panels per row}. Streamlit would
    lose a file that it makes after the click on the download if that took longer than the time until the page checks for
    newer results.
    """
    with st.popover("Save or share"):
        across = st.slider("Panels per row", 1, max(2, min(6, panels)), max(1, min(4, panels)), key="across")
        kind = str(st.segmented_control("Format", list(made), default="PNG", required=True, key="format"))
        request = (selection, across, kind)
        if st.button("Make"):
            with st.spinner("Making the file"):
                st.session_state["figure"] = request, made[kind](across)
        request_made, file = st.session_state.get("figure", (None, None))
        if request_made == request:
            label, name = FILES.get(kind, (f"Figure as {kind}", f"figure.{kind.lower()}"))
            st.download_button(label, file, name, on_click="ignore", type="primary")


def curve_data(
    view: View,
    labels: Mapping[queries.Series, str],
    panels: Sequence[str],
    x: str,
    thin: bool = True,
    each_seed: bool = False,
) -> pandas.DataFrame:
    """Curves of benchmarks and metrics in one frame (rpg.report.sweep_report.curve_data), KLs by their reference.

    `thin`: no more points than a panel of three in a row can show, and fewer if many curves share it.
    """
    points = min(queries.POINTS, max(POINTS // max(1, len(labels)), 40)) if thin else None
    metrics = view.ask("metric_names")
    scores = [name for name in panels if name not in metrics]
    data = view.compute(sweep_report.curve_data, labels, scores, panels, x, points, each_seed)
    sweeps = tuple(dict.fromkeys(key.sweep for key in labels))
    return curves.by_reference(data, view.ask("references", sweeps))
