"""What a distance from the initial model buys: accuracy against KL, a path per variant; and pass@k and maj@k over k."""

import streamlit as st

from dashboard.drawing import rows_of, show_chart, show_legend
from dashboard.selection import choose, choose_many, choose_part, choose_sweep
from dashboard.view import View, series_labels
from rpg.report import charts, frontier, theme

KL, OVER_K = "Accuracy against KL", "pass@k and maj@k"
PER = {"a response": "per_response", "a token": "per_token"}


def page(view: View) -> None:
    columns = st.columns([2, 2, 1])
    with columns[0]:
        sweep = choose_sweep(view)
    if sweep is None:
        st.text("No sweeps yet.")
        return
    names = {key.variant: label for key, label in series_labels(view, [sweep]).items()}
    part = choose_part([KL, OVER_K], "part")
    if part == KL:
        with columns[1]:
            axes = frontier.numeric_axes(view.ask("manifests", sweep))
            known = [one.name for one in axes] + [frontier.TRAINING]
            usual = next((name for name in known if name.endswith("beta")), known[0])
            along = choose("A path goes along", known, "along", usual)
        with columns[2]:
            per = choose("KL of", list(PER), "per")
        _paths(
            view, sweep, names, next((one for one in axes if one.name == along), None), PER[per or "a token"]
        )
    else:
        _over_k(view, sweep, names)


def _paths(view: View, sweep: str, names: dict[str, str], along: frontier.Along | None, per: str) -> None:
    name = along.name if along else frontier.TRAINING
    of = frontier.path_labels(view.ask("manifests", sweep), names, name)
    labels = list(dict.fromkeys(of[variant] for variant in names if variant in of))
    chosen = choose_many("Paths", labels, "paths", theme.first_shown(labels))
    data = frontier.paths(view.ask("frontier", sweep), of, along, per)
    data = data[data["label"].isin(chosen)]
    if data.empty:
        st.text(
            "Nothing to draw: no checkpoint of these variants has both an accuracy and a KL to the initial model, which "
            "the embedded trainer's evaluations measure."
        )
        return
    show_legend(labels, chosen)
    unit = "nats per response" if per == "per_response" else "nats per token"
    for (direction, heading), column in zip(frontier.DIRECTIONS.items(), rows_of(2, 2), strict=True):
        with column:
            part = data[data["direction"] == direction]
            if part.empty:
                st.text(f"{heading} was not measured.")
                continue
            show_chart(
                charts.frontier(part, labels, name=name, x=f"{heading}, {unit}"), f"frontier {direction}"
            )
    seeds = int(data["seeds"].max())
    over = (
        f"Means over {seeds} seeds, strokes from the lowest to the highest. " if seeds > 1 else "One seed. "
    )
    st.text(
        f"Vertical: mean accuracy. Numbers at the points: {name}. {over}Further up is more accurate, further left is closer "
        "to the initial model."
    )


def _over_k(view: View, sweep: str, names: dict[str, str]) -> None:
    labels = list(names.values())
    chosen = choose_many("Variants", labels, "variants", theme.first_shown(labels))
    data = view.over_k(sweep, [variant for variant, label in names.items() if label in chosen])
    if data.empty:
        st.text("No checkpoint has been evaluated on all benchmarks yet.")
        return
    data = data.assign(label=data["label"].map(names))
    show_legend(labels, chosen)
    headings = {
        "pass": "pass@k: one of k samples is right",
        "maj": "maj@k: the most frequent of k answers is right",
    }
    for (measure, heading), column in zip(headings.items(), rows_of(2, 2), strict=True):
        with column:
            part = data[data["measure"] == measure]
            show_chart(charts.over_k(part, labels, heading=heading), f"over k {measure}")
    st.text(
        "Means over seeds, problems and benchmarks at the last checkpoint, with 95 % intervals. A line that starts higher "
        "and ends lower has traded diversity for accuracy."
    )
