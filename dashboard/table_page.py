"""Last and best as papers print them, the paired difference from a baseline, and what is within
noise."""

import streamlit as st

from dashboard.view import View, choose_sweep
from dashboard.widgets import address, choose, choose_many, show_chart, show_grid, show_notices
from rpg.report import charts, tables


def page(view: View) -> None:
    left, middle, right = st.columns([2, 2, 3])
    sweep = choose_sweep(view, column=left)
    usual = view.summary(sweep)
    names = {usual.labels[variant]: variant for variant in usual.variants}
    baseline = choose("Baseline", list(names), "baseline", usual.baseline_label, column=middle)
    benchmarks = choose_many("Benchmarks", usual.benchmarks, "benchmarks", column=right)
    same = names.get(baseline) == usual.baseline and benchmarks == usual.benchmarks
    summary = usual if same else view.summary(sweep, names.get(baseline), benchmarks)
    if summary.table.empty:
        st.text("No checkpoint has been evaluated on all of these benchmarks yet.")
    else:
        first = view.ask("runs", sweep).groupby("variant")["run"].first()
        known = {
            label: first[variant] for variant, label in summary.labels.items() if variant in first
        }
        links = {label: address("run", sweep=sweep, run=run) for label, run in known.items()}
        if summary.spending:
            st.text(summary.spending)
        for grid in tables.grids(summary):
            st.subheader("Accuracy" if grid.title.startswith("Accuracy on ") else grid.title)
            show_grid(grid, links=links)
        st.caption(" ".join(tables.caption(summary)))
        chart = charts.differences(summary)
        if chart:
            st.subheader("Differences from the baseline")
            show_chart(chart, "differences")
    show_notices(summary.notes, "notes")
