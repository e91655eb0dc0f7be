"""The paper's figure for any sweeps, variants and quantities."""

from typing import Any

import pandas
import streamlit as st
import vl_convert

from dashboard.common import View, choose, choose_many, series_labels, show_chart, show_legend
from rpg.metrics import shown as shown_metrics
from rpg.report import charts
from rpg.report.summary import MEAN
from rpg.store import queries

COLUMNS = 3
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
            "Variants", list(names.values()), "variants", charts.first_shown(list(names.values()))
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
        bands = choose("Bands", [charts.AUTOMATIC, charts.RANGE, charts.NONE], "bands")
    if data.empty:
        st.text("Nothing to show: choose sweeps, variants and panels on the left.")
        return
    labels = list(names.values())
    show_legend(labels, chosen)
    shown = [name for name in panels if (data["name"] == name).any()]
    seeds = int(data["seeds"].max())

    def panel(name: str, **options: Any) -> Any:
        scores = name in benchmarks  # few checkpoints: shown as points, never smoothed
        return charts.curves(
            data[data["name"] == name],
            labels,
            name=name,
            x=x,
            band={charts.RANGE: "range", charts.NONE: None}.get(bands, charts.band_for(seeds, scores)),
            points=scores,
            smooth=1 if scores else smooth,
            **options,
        )

    columns = st.columns(COLUMNS)
    for place, name in enumerate(shown):
        with columns[place % COLUMNS]:
            show_chart(panel(name, legend=False, height=210, zoom=True), f"panel {place}")
    explanation = charts.explanation(data, bands, smooth)
    st.text(" ".join([*explanation, "Drag moves a panel, Shift and wheel zooms, double click resets."]))

    def figure() -> str:
        still = [panel(name, hover=False, legend=chosen) for name in shown]
        chart = charts.figure(still, ", ".join(sweeps), explanation, columns=min(4, len(still)))
        return vl_convert.vegalite_to_svg(chart.to_dict())

    files = {
        "Figure as PNG": ("figure.png", lambda: vl_convert.svg_to_png(figure(), scale=2)),
        "Figure as SVG": ("figure.svg", figure),
        "Data as CSV": ("curves.csv", lambda: curve_data(view, **wanted, thin=False).to_csv(index=False)),
    }
    for place, (label, (file, make)) in zip(st.columns([1, 1, 1, 3]), files.items(), strict=False):
        place.download_button(label, make, file, on_click="ignore")


def curve_data(view: View, series, panels, x, names, thin: bool = True) -> pandas.DataFrame:
    """Curves of benchmarks and metrics in one frame, column `name` saying which.

    `thin`: no more points than a panel of three in a row can show, the fewer the more curves share it.
    """
    points = min(queries.POINTS, max(POINTS // max(1, len(series)), 40)) if thin else None
    metrics = view.ask("metric_names")
    wanted = tuple(name for name in panels if name in metrics)
    benchmarks = tuple(name for name in panels if name not in metrics)
    scores = view.scores(series, benchmarks, x) if benchmarks else ()
    curves = view.ask("metric_curves", series, wanted, x, points).rename(columns={"metric": "name"})
    parts = [part for part in (scores, curves) if len(part)]
    if not parts:
        return pandas.DataFrame(columns=["name", "seeds"])
    data = pandas.concat(parts, ignore_index=True)
    return charts.labelled(data[data["mean"].notna()], names)
