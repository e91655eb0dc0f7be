"""Last and best as papers print them, the paired difference from a baseline, and what is within noise."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas
import streamlit as st

from dashboard.run_page import setting_texts
from dashboard.view import View, choose_sweep
from dashboard.widgets import (
    RUN_LINK,
    Nothing,
    address,
    choose,
    choose_many,
    choose_part,
    show_chart,
    show_grid,
    show_notices,
    show_table,
)
from rpg.report import charts, tables
from rpg.report.summary import MEAN

JUDGED, BY_SETTING = "Judged", "By setting"


def page(view: View) -> None:
    left, middle, right = st.columns([2, 2, 3])
    sweep = choose_sweep(view, column=left)
    if choose_part([JUDGED, BY_SETTING], "part") == BY_SETTING:
        by_setting(view, sweep)
        return
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
        known = {label: first[variant] for variant, label in summary.labels.items() if variant in first}
        links = {label: address("run", sweep=sweep, run=run) for label, run in known.items()}
        if summary.spending:
            st.text(summary.spending)
        for grid in tables.grids(summary):
            st.subheader("Accuracy" if grid.title.startswith("Accuracy on ") else grid.title)
            show_grid(grid, links=links)
        st.caption(" ".join(tables.caption(summary)))
        if chart := charts.differences(summary):
            st.subheader("What is real")
            show_chart(chart, "differences")
    show_notices(summary.notes, "notes")
    buttons = st.columns([1, 1, 1, 5])
    files = (
        ("LaTeX", "tex", lambda: tables.latex(summary)),
        ("Markdown", "md", lambda: tables.markdown(summary)),
        ("CSV", "csv", lambda: summary.table.to_csv(index=False)),
    )
    for button, (name, suffix, make) in zip(buttons, files, strict=False):
        button.download_button(name, make, f"table.{suffix}", on_click="ignore", key=f"save {name}")


MEASURED = ("accuracy", "pass_at_k", "maj_at_k")


def by_setting(view: View, sweep: str) -> None:
    scores = view.ask("scores", sweep)
    whole = scores[scores["benchmark"] == MEAN]
    last = (whole if len(whole) else scores).sort_values("step").groupby("run").last()
    settings = differing(view.ask("manifests", sweep))
    table = pandas.DataFrame.from_dict(settings, orient="index").rename_axis("run")
    table = table.join(last[["step", *MEASURED]], how="left").reset_index()
    names = [name for name in table.columns if name not in ("run", "step", *MEASURED)]
    if not names:
        raise Nothing("The runs of this sweep do not differ in any setting.")
    left, middle, right = st.columns([3, 2, 1])
    pairs = [f"{name} = {value}" for name in names for value in dict.fromkeys(table[name])]
    filters = choose_many("Only runs with any of these settings", pairs, "only", [], column=left)
    by = choose_many("Group by", names, "by", [], column=middle)
    order = choose("Sort by", [*MEASURED, *names], "order", column=right)
    kept = table[filtered(table, filters)]
    kept = grouped(kept, by) if by else kept[["run", *MEASURED, "step", *names]]
    if order in kept:
        kept = kept.sort_values(order, ascending=order not in MEASURED, key=_numbers, kind="stable")
    if "run" in kept:
        kept = kept.assign(run=[address("run", sweep=sweep, run=name) for name in kept["run"]])
    digits = st.column_config.NumberColumn(format="%.3f")
    show_table(kept, 700, {"run": RUN_LINK, **dict.fromkeys((*MEASURED, "lowest", "highest"), digits)})
    st.text(
        f"{len(kept)} {'groups' if by else 'runs'} of {len(table)} runs, at the last evaluation of each. Means over the "
        "runs of a group do not compare variants; the other part of this page does. Click a heading to sort."
    )
    st.download_button("CSV", lambda: kept.to_csv(index=False), "runs.csv", on_click="ignore")


def differing(manifests: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Run -> the settings, by dotted name, that are not the same in all runs."""
    of_runs = {
        run: {name: _text(text) for name, text in setting_texts(manifest["spec"]).items()}
        for run, manifest in manifests.items()
    }
    names = dict.fromkeys(name for settings in of_runs.values() for name in settings)
    varied = [name for name in names if len({settings.get(name) for settings in of_runs.values()}) > 1]
    return {run: {name: settings.get(name, "") for name in varied} for run, settings in of_runs.items()}


def filtered(table: pandas.DataFrame, filters: Sequence[str]) -> pandas.Series:
    """Whether a row has one of the values that `filters` (`name = value`) list for each setting."""
    keep = pandas.Series(True, index=table.index)
    pairs = [pair.partition(" = ")[::2] for pair in filters]
    for name, _ in pairs:
        keep &= table[name].isin([value for of, value in pairs if of == name])
    return keep


def grouped(table: pandas.DataFrame, by: Sequence[str]) -> pandas.DataFrame:
    """The number of runs of each group, their means, and their lowest and highest accuracy."""
    ways = {"runs": ("run", "nunique"), "accuracy": ("accuracy", "mean")}
    ways |= {"lowest": ("accuracy", "min"), "highest": ("accuracy", "max")}
    ways |= {name: (name, "mean") for name in MEASURED}
    return table.groupby(list(by), sort=False, dropna=False).agg(**ways).reset_index()


def _text(value: str) -> str:
    """A JSON value as people write it: words without quotes."""
    parsed = json.loads(value)
    return parsed if isinstance(parsed, str) else value


def _numbers(column: pandas.Series) -> pandas.Series:
    """The sort key of a column: numbers by size, anything else as text."""
    numbers = pandas.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().all() else column.astype(str)
