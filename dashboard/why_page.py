"""Why a variant behaves as it does: ratios, clipping and KL during training, and the exact
objective of its loss."""

import streamlit as st

from dashboard.compare_page import Panels, curve_data, show_curves
from dashboard.view import View, choose_sweep, series_labels
from dashboard.widgets import Nothing, choose, choose_many, choose_part, show_legend, show_panels
from rpg.metrics import groups
from rpg.next_steps import command
from rpg.report import charts
from rpg.store import queries

AUDIT = "What the loss optimises"
GROUPS = {
    **{name: groups()[name] for name in ("Ratios and clipping", "Divergence", "Updates")},
    AUDIT: (),
}
REFERENCES = {"the old policy (as in the paper)": "old", "another policy": "third"}
Labels = dict[queries.Series, str]


def page(view: View) -> None:
    with st.sidebar:
        sweep = choose_sweep(view)
        names = series_labels(view, [sweep])
        chosen = choose_many("Variants", list(names.values()), "variants")
    shown = {key: label for key, label in names.items() if label in chosen}
    group = choose_part(list(GROUPS), "group")
    if group == AUDIT:
        show_legend(list(names.values()), chosen)
        _audit(view, shown, names)
    else:
        _curves(view, shown, list(names.values()), GROUPS[group])


def _curves(view: View, shown: Labels, labels: list[str], metrics: tuple[str, ...]) -> None:
    data = curve_data(view, shown, metrics, "step")
    if data.empty:
        raise Nothing("Nothing measured yet.")
    show_curves(view, shown, labels, Panels(metrics))


def _audit(view: View, shown: Labels, names: Labels) -> None:
    reports = view.ask("audits")
    if not reports:
        raise Nothing(f"No audits yet. Make one with: {command('audit', layout=view.layout)}")
    left, right = st.columns(2)
    audit = choose("Audit", list(reports), "audit", column=left)
    reference = REFERENCES[
        choose("Reference of the KL", list(REFERENCES), "reference", column=right)
    ]
    variants = view.ask("variants", tuple(dict.fromkeys(key.sweep for key in names)))
    algorithm = {(row.sweep, row.variant): row.algorithm for row in variants.itertuples()}
    labels: dict[str, str] = {}
    for key, label in shown.items():
        labels.setdefault(algorithm[key], label)
    rows = charts.audited(reports[audit], list(labels))
    if rows.empty:
        raise Nothing("This audit covers none of the selected variants' algorithms.")
    rows = rows[rows["reference"] == reference].assign(label=rows["loss"].map(labels))
    show_panels(charts.audit(rows, list(names.values())), "audit", across=2)
    st.text(
        "Bias: distance of the expected gradient from the gradient of the objective that "
        "the loss claims, relative to the "
        "norm of the latter. Noise: standard deviation of one sample's gradient, relative "
        "to the norm of the mean gradient. "
        "Both are exact, since small policies are enumerated. They are shown against the drift of "
        "the policy from the one that drew the samples."
    )
