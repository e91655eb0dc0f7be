"""Why a variant behaves as it does: ratios, clipping and KL during training, and what its loss optimises exactly."""

import json

import pandas
import streamlit as st

from dashboard.common import View, choose, choose_many, choose_sweep, series_labels, show_chart, show_legend
from dashboard.compare import caption, curve_data
from rpg.report import charts

GROUPS = {
    "Importance ratios": ("ratio_mean", "ratio_max", "ess"),
    "Clipping": ("clip_fraction", "clip_fraction_upper", "clip_fraction_lower", "clip_fraction_dual"),
    "Divergence": (
        "kl_old_to_policy",
        "kl_policy_to_old",
        "kl_ref_to_policy",
        "kl_policy_to_ref",
        "reference_age",
    ),
    "Updates": ("grad_norm", "grad_norm_max", "entropy", "truncation_rate"),
}

REFERENCES = {"old (the paper)": "old", "another policy than old": "third"}


def page(view: View) -> None:
    with st.sidebar:
        sweep = choose_sweep(view)
        if sweep is None:
            return
        names = series_labels(view, [sweep])
        chosen = choose_many("Variants", list(names.values()), "variants")
    series = tuple(key for key, label in names.items() if label in chosen)
    labels = list(names.values())
    show_legend(labels, chosen)
    known = view.ask("metric_names")
    text = ""
    for title, metrics in GROUPS.items():
        shown = [name for name in metrics if name in known]
        data = curve_data(view, series, tuple(shown), "step", names)
        if data.empty:
            continue
        st.subheader(title)
        seeds = int(data["seeds"].max())
        text = caption(data, seeds, charts.band_for(seeds))
        columns = st.columns(3)
        for place, name in enumerate(shown):
            part = data[data["name"] == name]
            if len(part):
                with columns[place % 3]:
                    band = charts.band_for(seeds) if seeds > 1 else None
                    panel = charts.curves(
                        part, labels, name=name, band=band, legend=False, height=190, zoom=True
                    )
                    show_chart(panel, f"{title} {name}")
    if text:
        st.text(text)
    _audit(view, series, names)


def _audit(view: View, series, names) -> None:
    st.subheader("What the loss optimises, by exact enumeration")
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
