"""Last and best as papers print them, the paired difference to a baseline, and what is within noise."""

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
    if sweep is None:
        st.text("No sweeps yet.")
        return
    if choose_part([JUDGED, BY_SETTING], "part") == BY_SETTING:
        settings_table.part(view, sweep)
        return
    usual = view.summary(sweep, None, None)
    with middle:
        names = {usual.labels[variant]: variant for variant in usual.variants}
        label = usual.labels.get(usual.baseline) if usual.baseline else None
        baseline = choose("Baseline", list(names), "baseline", label)
    with right:
        benchmarks = choose_many("Benchmarks", usual.benchmarks, "benchmarks")
    same = names.get(baseline) == usual.baseline and benchmarks == usual.benchmarks
    found = usual if same else view.summary(sweep, names.get(baseline), benchmarks)
    if found.table.empty:
        st.text("No checkpoint has been evaluated on all of these benchmarks yet.")
    else:
        first = view.ask("runs", sweep).groupby("variant")["run"].first()
        links = {
            found.labels[variant]: address("run", sweep=sweep, run=run)
            for variant, run in first.items()
            if variant in found.labels
        }
        for grid in (tables.main_table(found), tables.benchmark_table(found)):
            if grid:
                st.subheader(
                    grid.title if grid.title in ("Mean accuracy", "Accuracy per benchmark") else "Accuracy"
                )
                show_grid(grid, links=links)
        st.caption(" ".join(tables.caption(found)))
        judged = found.table[
            (found.table["benchmark"] == tables.headline(found)) & (found.table["verdict"] != "")
        ]
        if len(judged):
            st.subheader("What is real")
            show_chart(charts.differences(judged, baseline), "differences")
    show_notices(found.notes, "notes")
    buttons = st.columns([1, 1, 1, 5])
    for place, (name, make) in enumerate(
        {
            "LaTeX": lambda: tables.latex(found),
            "Markdown": lambda: tables.markdown(found),
            "CSV": lambda: found.table.to_csv(index=False),
        }.items()
    ):
        suffix = {"LaTeX": "tex", "Markdown": "md", "CSV": "csv"}[name]
        buttons[place].download_button(name, make, f"table.{suffix}", on_click="ignore", key=f"save {name}")
