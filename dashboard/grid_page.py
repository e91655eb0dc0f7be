"""Accuracy over any two axes of a sweep as a heat map, with the best cell marked and its interval."""

import json
import math
from typing import Any

import pandas
import streamlit as st

from dashboard.view import View, choose_sweep
from dashboard.widgets import choose, show_chart
from rpg.report import charts, frontier
from rpg.report.summary import MEAN

NOTHING = "(nothing)"


def page(view: View) -> None:
    columns = st.columns(4)
    sweep = choose_sweep(view, column=columns[0])
    if not sweep:
        return
    summary = view.summary(sweep)
    settings = axes(view.ask("manifests", sweep))
    if summary.table.empty:
        st.text("No checkpoint has been evaluated on all benchmarks yet.")
        return
    if not settings:
        st.text("Nothing to show: the runs of this sweep differ only in their seed.")
        return
    names = list(next(iter(settings.values())))
    across = choose("Across", names, "across", names[-1], column=columns[1])
    others = [name for name in names if name != across]
    down = choose("Down", [NOTHING, *others], "down", [*others, NOTHING][0], column=columns[2])
    # Imported runs have no axes, so they have no cell.
    evaluated = set(summary.table.loc[summary.table["variant"].isin(settings), "benchmark"])
    benchmarks = [name for name in (MEAN, *summary.benchmarks) if name in evaluated]
    benchmark = choose("Accuracy", benchmarks, "accuracy", column=columns[3])
    if not benchmark:
        st.text("No run that was trained here has been evaluated on all benchmarks yet.")
        return
    data = cells(summary.table[summary.table["benchmark"] == benchmark], settings, across, down)
    show_chart(charts.grid(data, across, "" if down == NOTHING else down), "grid")
    best = data.loc[data["accuracy"].idxmax()]
    place = ", ".join(
        f"{name} = {best[key]}" for name, key in ((across, "across"), (down, "down")) if name != NOTHING
    )
    low, high = best["low"], best["high"]
    if best["variants"] > 1:
        cell = best["across"], best["down"]
        variants = [name for name, at in settings.items() if (at[across], at.get(down, "")) == cell]
        mean = view.compute(frontier.mean_over, sweep, variants, benchmark)
        low, high = (mean.low, mean.high) if mean else (math.nan, math.nan)
    interval = f" [{low:.3f}, {high:.3f}] (95 %)" if not math.isnan(low) else ""
    st.text(f"Best: {place}: {best['accuracy']:.3f}{interval}.")
    others = [name for name in names if name not in (across, down)]
    if data["variants"].max() > 1:
        st.text(f"Cells are means over {', '.join(others)}: up to {data['variants'].max()} variants each.")
    overlapping = data[(data["high"] >= best["low"]) & (data["variants"] == 1)]
    if best["variants"] == 1 and len(overlapping) > 1:
        st.text(
            f"The intervals of {len(overlapping) - 1} other cells overlap that of the best: the page Table tests them."
        )


def axes(manifests: dict[str, dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Variant -> its values on the axes on which the sweep's variants differ, without the seed."""
    settings = {
        manifest["variant"]: {
            name: _text(value) for name, value in manifest["axes"].items() if name != "seed"
        }
        for manifest in manifests.values()
    }
    names = dict.fromkeys(name for values in settings.values() for name in values)
    varied = [name for name in names if len({values.get(name) for values in settings.values()}) > 1]
    return {
        variant: {name: values.get(name, "as in the file") for name in varied}
        for variant, values in settings.items()
        if varied
    }


def _text(value: Any) -> str:
    """A value of an axis as variants are labelled: `grpo(clip=none)`, `every_k(k=64)`, `0.1`."""
    if isinstance(value, dict):
        name = value.get("name", value.get("type", ""))
        parts = [f"{key}={_text(part)}" for key, part in value.items() if key not in ("name", "type")]
        return f"{name}({','.join(parts)})" if parts else str(name)
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value)


def cells(
    table: pandas.DataFrame, settings: dict[str, dict[str, str]], across: str, down: str
) -> pandas.DataFrame:
    """One row per cell: across, down, accuracy (mean over the variants in it), low, high, variants.

    `table` holds one row per variant with last, low and high; bounds of a cell of several variants are NaN.
    """
    rows = table[table["variant"].isin(list(settings))]
    placed = rows.assign(
        across=[settings[variant][across] for variant in rows["variant"]],
        down=[settings[variant].get(down, "") for variant in rows["variant"]],
    )
    data = placed.groupby(["across", "down"], sort=False).agg(
        accuracy=("last", "mean"), low=("low", "min"), high=("high", "max"), variants=("variant", "nunique")
    )
    data.loc[data["variants"] > 1, ["low", "high"]] = float("nan")
    return data.reset_index()
