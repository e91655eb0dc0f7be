"""Why a variant behaves as it does: ratios, clipping and KL during training, and what its loss optimises exactly."""

import json

import pandas
import streamlit as st

from dashboard.compare_page import HOW, curve_data
from dashboard.drawing import show_chart, show_legend, show_panels
from dashboard.selection import choose, choose_many, choose_part, choose_sweep
from dashboard.view import View, series_labels
from rpg.metrics import groups
from rpg.report import charts, theme

AUDIT = "What the loss optimises"
GROUPS = {**{name: groups()[name] for name in ("Ratios and clipping", "Divergence", "Updates")}, AUDIT: ()}
REFERENCES = {"old (the paper)": "old", "another policy than old": "third"}


def page(view: View) -> None:
    with st.sidebar:
        sweep = choose_sweep(view)
        if sweep is None:
            return
        names = series_labels(view, [sweep])
        chosen = choose_many(
            "Variants", list(names.values()), "variants", theme.first_shown(list(names.values()))
        )
    series = tuple(key for key, label in names.items() if label in chosen)
    group = choose_part(list(GROUPS), "group")
    if group == AUDIT:
        show_legend(list(names.values()), chosen)
        _audit(view, series, names)
    else:
        _curves(view, series, names, GROUPS[group])


def _curves(view: View, series, names, metrics: tuple[str, ...]) -> None:
    known = view.ask("metric_names")
    shown = tuple(name for name in metrics if name in known)
    data = curve_data(view, series, shown, "step", names)
    if data.empty:
        st.text("Nothing measured yet.")
        return
    seeds = int(data["seeds"].max())
    band = charts.band_for(seeds, score=False)
    labels = list(names.values())
    every = curve_data(view, series, shown, "step", names, each_seed=True) if seeds == 2 else None
    panels = [
        charts.curves(
            data[data["name"] == name],
            labels,
            name=name,
            band=band,
            legend=[label for label in labels if label in set(data["label"])],
            height=190,
            linked=True,
            each=None if every is None else every[every["name"] == name],
            mean=every is None,
        )
        for name in charts.panels_of(data, shown)
    ]
    show_panels(panels, [label for label in labels if label in set(data["label"])], "curves")
    st.text(" ".join([*charts.explanation(data, each=every is not None), HOW]))


def _audit(view: View, series, names) -> None:
    reports = view.ask("audits")
    if not reports:
        st.text("No audit yet; make one with: rpg audit")
        return
    left, right = st.columns(2)
    with left:
        audit = choose("Audit", list(reports), "audit")
    with right:
        reference = REFERENCES[choose("Reference of the KL", list(REFERENCES), "reference")]
    found = view.ask("variants", tuple(dict.fromkeys(key.sweep for key in names)))
    algorithm = {(row.sweep, row.variant): row.algorithm for row in found.itertuples()}
    labels: dict[str, str] = {}
    for key in series:
        labels.setdefault(algorithm[key], names[key])
    rows = audit_rows(reports[audit], list(labels))
    if rows.empty:
        st.text("This audit holds none of the chosen variants' algorithms.")
        return
    rows = rows[rows["reference"] == reference]
    show_chart(charts.audit(rows.assign(label=rows["loss"].map(labels)), list(names.values())), "audit")
    st.text(
        "Bias: how far the expected gradient is from the gradient of the objective that the loss claims, relative to "
        "its length. Noise: standard deviation of one sample's gradient over the length of the mean. Both on small "
        "policies enumerated exactly, against the drift of the policy from the one that sampled."
    )


def audit_rows(report: str, algorithms: list[str]) -> pandas.DataFrame:
    """Rows of an audit report for these algorithms against the token-level objective that each claims."""
    try:
        content = json.loads(report)
        rows = pandas.DataFrame(content["rows"])
        claimed = {loss["name"]: loss["divergence"] for loss in content["losses"]}
        mine = rows[rows["loss"].isin(algorithms) & (rows["source"] == "rpg") & (rows["level"] == "token")]
        return mine[mine["divergence"] == mine["loss"].map(claimed)]
    except (KeyError, TypeError, ValueError):
        return pandas.DataFrame()
