"""Accuracy against the KL from the initial model, a path per variant; pass@k and maj@k over k;
accuracy over compute."""

import streamlit as st

from dashboard import widgets
from dashboard.view import View, choose_sweep, series_labels
from rpg.report import charts, compute_curves, frontier
from rpg.store.queries import Series

KL = "Accuracy against KL"
OVER_K = "pass@k and maj@k"
COMPUTE = "Accuracy over compute"


def page(view: View) -> None:
    columns = st.columns(2)
    sweep = choose_sweep(view, column=columns[0])
    names = {key.variant: label for key, label in series_labels(view, [sweep]).items()}
    part = widgets.choose_part([KL, OVER_K, COMPUTE], "part")
    if part == KL:
        axes = frontier.numeric_axes(view.ask("manifests", sweep))
        axis_names = [*axes, frontier.TRAINING]
        default = next((name for name in axis_names if name.endswith("beta")), axis_names[0])
        along = widgets.choose("Paths follow", axis_names, "along", default, column=columns[1])
        _paths(view, sweep, names, along, axes.get(along))
        return
    x = widgets.choose_axis(columns[1]) if part == COMPUTE else ""
    labels = list(names.values())
    chosen = widgets.choose_many("Variants", labels, "variants")
    shown = {variant: label for variant, label in names.items() if label in chosen}
    if part == OVER_K:
        _over_k(view, sweep, labels, shown)
        return
    series = {Series(sweep, variant): label for variant, label in shown.items()}
    benchmarks = view.ask("benchmarks", (sweep,))
    data = (
        view.compute(compute_curves.measured, series, benchmarks, x)
        if benchmarks and series
        else ()
    )
    if not len(data):
        raise widgets.Nothing(
            "No checkpoint of these variants has both an accuracy and a known compute."
        )
    widgets.show_section(compute_curves.section(data, list(shown.values()), labels, x))


def _paths(
    view: View, sweep: str, names: dict[str, str], name: str, along: dict[str, float] | None
) -> None:
    paths = frontier.path_labels(view.ask("manifests", sweep), names, name)
    labels = list(dict.fromkeys(paths[variant] for variant in names if variant in paths))
    chosen = widgets.choose_many("Paths", labels, "paths")
    data = frontier.paths(view.ask("frontier", sweep), paths, along)
    data = data[data["label"].isin(chosen)]
    if data.empty:
        raise widgets.Nothing(
            "Nothing to draw: no checkpoint of these variants has both an accuracy and a KL "
            "to the initial model. "
            "Evaluations by the embedded trainer measure this KL; those by vLLM or on Ray and "
            "imported runs have none, since measuring it needs the probabilities of the whole "
            "vocabulary."
        )
    if len(labels) > charts.MOST_ENDS:
        widgets.show_legend(labels, chosen)
    for (direction, heading), column in zip(
        frontier.DIRECTIONS.items(), widgets.rows_of(2, 2), strict=True
    ):
        with column:
            part = data[data["direction"] == direction]
            if part.empty:
                st.text(f"{heading} was not measured.")
                continue
            chart = charts.frontier(part, labels, name=name, x=f"{heading}, nats per response")
            widgets.show_chart(chart, f"frontier {direction}")
    seeds = int(data["seeds"].max())
    bars = "bars from the lowest to the highest seed."
    up_to = (
        "" if data["seeds"].min() == seeds else "up to "
    )  # runs behind their variant's are left out
    means = f"Means over {up_to}{seeds} seeds, {bars}" if seeds > 1 else "One seed."
    st.text(
        f"Vertical: mean accuracy. A number at a point is its {name}; some are left out where "
        f"points are close. {means} Higher is more accurate; further left is closer to the initial "
        "model."
    )


def _over_k(view: View, sweep: str, labels: list[str], shown: dict[str, str]) -> None:
    data = view.compute(frontier.over_k, sweep, shown)
    if data.empty:
        raise widgets.Nothing("No checkpoint has been evaluated on all benchmarks yet.")
    widgets.show_legend(labels, [label for label in shown.values() if label in set(data["label"])])
    headings = {
        "pass": "pass@k: at least one of k samples is right",
        "maj": "maj@k: the most frequent of k answers is right",
    }
    for (measure, heading), column in zip(headings.items(), widgets.rows_of(2, 2), strict=True):
        with column:
            part = data[data["measure"] == measure]
            widgets.show_chart(charts.over_k(part, labels, heading=heading), f"over k {measure}")
    st.text(
        "Means over seeds, problems and benchmarks at the last checkpoint, with 95 % "
        "intervals. A line that starts higher "
        "and ends lower has traded diversity for accuracy."
    )
