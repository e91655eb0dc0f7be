"""Last and best as papers print them, the paired difference from a baseline, and what is within noise."""

import streamlit as st

from dashboard import settings_table
from dashboard.drawing import show_chart
from dashboard.selection import address, choose, choose_many, choose_part, choose_sweep
from dashboard.text import show_grid, show_notices
from dashboard.view import View
from rpg.report import charts, tables

JUDGED, BY_SETTING = "Judged", "By setting"


def page(view: View) -> None:
    left, middle, right = st.columns([2, 2, 3])
    with left:
        sweep = choose_sweep(view)
    if not sweep:
        return
    if choose_part([JUDGED, BY_SETTING], "part") == BY_SETTING:
        settings_table.part(view, sweep)
        return
    usual = view.summary(sweep)
    with middle:
        names = {usual.labels[variant]: variant for variant in usual.variants}
        baseline = choose("Baseline", list(names), "baseline", tables.baseline_label(usual))
    with right:
        benchmarks = choose_many("Benchmarks", usual.benchmarks, "benchmarks")
    same = names.get(baseline) == usual.baseline and benchmarks == usual.benchmarks
    summary = usual if same else view.summary(sweep, names.get(baseline), benchmarks)
    if summary.table.empty:
        st.text("No checkpoint has been evaluated on all of these benchmarks yet.")
    else:
        first = view.ask("runs", sweep).groupby("variant")["run"].first()
        links = {
            summary.labels[variant]: address("run", sweep=sweep, run=run)
            for variant, run in first.items()
            if variant in summary.labels
        }
        if summary.spending:
            st.text(summary.spending)
        for grid in tables.grids(summary):
            st.subheader("Accuracy" if grid.title.startswith("Accuracy on ") else grid.title)
            show_grid(grid, links=links)
        st.caption(" ".join(tables.caption(summary)))
        judged = tables.judged(summary)
        if len(judged):
            st.subheader("What is real")
            show_chart(charts.differences(judged, baseline), "differences")
    show_notices(summary.notes, "notes")
    buttons = st.columns([1, 1, 1, 5])
    files = (
        ("LaTeX", "tex", lambda: tables.latex(summary)),
        ("Markdown", "md", lambda: tables.markdown(summary)),
        ("CSV", "csv", lambda: summary.table.to_csv(index=False)),
    )
    for button, (name, suffix, make) in zip(buttons, files, strict=False):
        button.download_button(name, make, f"table.{suffix}", on_click="ignore", key=f"save {name}")
