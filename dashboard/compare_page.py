"""Curves of any variants, benchmarks and metrics of one or several sweeps, like the paper's
figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas
import streamlit as st

from dashboard.view import View, series_labels
from dashboard.widgets import Nothing, choose, choose_many, notice, show_legend, show_panels
from rpg.metrics import shown as shown_metrics
from rpg.report import curves, sweep_report
from rpg.report.csv_text import csv_text
from rpg.store import queries

HOW = "Drag to move a panel, hold Shift and scroll to zoom, double-click to reset."
POINTS = 560  # of all curves of a panel together: more would take a browser noticeable time


def page(view: View) -> None:
    with st.sidebar:
        all_sweeps = [
            name for name in view.ask("sweeps")["sweep"] if not view.hidden(name, "sweeps")
        ]
        sweeps = choose_many("Sweeps", all_sweeps, "sweeps", all_sweeps[:1])
        names = series_labels(view, sweeps)
        runs = pandas.concat([view.ask("runs", sweep) for sweep in sweeps] or [pandas.DataFrame()])
        seen = [row for row in runs.itertuples() if not view.hidden(f"{row.sweep}/{row.run}")]
        listed = {(row.sweep, row.variant) for row in seen}
        first = [label for key, label in names.items() if key in listed]
        chosen = choose_many("Variants", list(names.values()), "variants", first)
        benchmarks = sweep_report.score_names(view.ask("benchmarks", tuple(sweeps)))
        metrics = view.ask("metric_names")
        default = [*benchmarks, *(name for name in shown_metrics() if name in metrics)]
        panels = choose_many("Panels", [*benchmarks, *metrics], "panels", default)
        x = choose("Horizontal axis", list(curves.X_TITLES), "x")
        shown_labels = {key: label for key, label in names.items() if label in chosen}
        data = curve_data(view, shown_labels, panels, x)
    if data.empty:
        raise Nothing(
            "Nothing to show: select other sweeps, variants, panels or another axis on the left."
        )
    for sweep in sweeps:
        for line in view.ask("differences", sweep):
            notice(f"! {sweep}: {line}")
    elsewhere = {
        (row.sweep, row.variant) for row in runs.itertuples() if isinstance(row.imported, str)
    }
    imported = [label for key, label in shown_labels.items() if key in elsewhere]
    remark = f"Trained elsewhere: {', '.join(imported)}." if imported else ""
    drawn = Panels(panels, benchmarks, x, height=210)
    show_curves(view, shown_labels, list(names.values()), drawn, remark)
    made = {
        "HTML": lambda: view.shared_page(shown_labels, panels, x),
        "CSV": lambda: csv_text(curve_data(view, shown_labels, panels, x, thin=False)),
    }
    _save(made, repr((shown_labels, panels, x, view.version)))


@dataclass(frozen=True)
class Panels:
    """What is drawn: metrics and benchmarks by name, against `x`."""

    names: Sequence[str]
    benchmarks: Sequence[str] = ()
    x: str = "step"
    height: int = 190


def show_curves(
    view: View,
    shown: Mapping[queries.Series, str],
    labels: Sequence[str],
    chosen: Panels,
    remark: str = "",
) -> None:
    """The `chosen` panels below a legend, but for metrics that never change, and what explains
    them. All `labels` determine the colours."""
    show_legend(labels, list(shown.values()))
    drawn = view.draw(_drawn, shown, labels, chosen)
    show_panels(drawn.panels)
    st.text(" ".join(filter(None, [*drawn.explained, remark, *drawn.constants, HOW])))


class Drawn(NamedTuple):
    """Specifications of panels, and what is said below them."""

    panels: list[dict[str, Any]]
    explained: list[str]
    constants: list[str]
    """About metrics that have no panel, since they never change."""


def _drawn(
    view: View, shown: Mapping[queries.Series, str], labels: Sequence[str], chosen: Panels
) -> Drawn:
    data = curve_data(view, shown, chosen.names, chosen.x)
    names, constants = curves.folded(data, chosen.names, chosen.benchmarks)
    two = int(data["seeds"].max()) == 2
    by_seed = curve_data(view, shown, chosen.names, chosen.x, each_seed=True) if two else None
    style = curves.Style(legend=(), height=chosen.height, zoom=True)
    panels = curves.panels(
        data, labels, names, chosen.benchmarks, chosen.x, each=by_seed, style=style
    )
    explained = curves.explanation(data, names, chosen.benchmarks, each=two)
    missing = curves.undrawn(data, list(shown.values()), chosen.x)
    specifications = [panel.to_dict(validate=False) for panel in panels]
    return Drawn(specifications, [*explained, missing], constants)


FILES = {"HTML": ("Page as HTML", "report.html"), "CSV": ("Data as CSV", "curves.csv")}
"""One self-contained file with the curves and the sweeps' tables, tests and notes; every step of
every curve."""


def _save(made: Mapping[str, Callable[[], str]], selection: str) -> None:
    """Make a file, then offer it for download: `made` is {format: its contents}. Streamlit would
    lose a file that it makes after the click on the download if that took longer than the time
    until the page checks for newer results.
    """
    with st.popover("Save or share"):
        kind = str(
            st.segmented_control("Format", list(made), default="HTML", required=True, key="format")
        )
        if st.button("Make"):
            with st.spinner("Making the file"):
                st.session_state["made"] = (selection, kind), made[kind]()
        request_made, file = st.session_state.get("made", (None, None))
        if request_made == (selection, kind):
            label, name = FILES[kind]
            st.download_button(label, file, name, on_click="ignore", type="primary")


def curve_data(
    view: View,
    labels: Mapping[queries.Series, str],
    panels: Sequence[str],
    x: str,
    thin: bool = True,
    each_seed: bool = False,
) -> pandas.DataFrame:
    """Curves of benchmarks and metrics in one frame (rpg.report.sweep_report.curve_data), KLs by
    their reference.

    `thin`: no more points than a panel of three in a row can show, and fewer if many curves share
    it.
    """
    points = min(queries.POINTS, max(POINTS // max(1, len(labels)), 40)) if thin else None
    metrics = view.ask("metric_names")
    scores = [name for name in panels if name not in metrics]
    data = view.compute(sweep_report.curve_data, labels, scores, panels, x, points, each_seed)
    sweeps = tuple(dict.fromkeys(key.sweep for key in labels))
    return curves.by_reference(data, view.ask("references", sweeps))
