"""All runs of one or several sweeps: filtered and grouped by any field, two of them side by side,
with links to their samples, log and flow run."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas
import streamlit as st

from dashboard.view import View
from dashboard.widgets import (
    RUN_LINK,
    Nothing,
    address,
    choose,
    choose_many,
    share_column,
    show_table,
)
from rpg.errors import plural
from rpg.report import labels
from rpg.store.current import flat

ANY = "all runs"
NONE = "nothing"
FACTS = "sweep variant algorithm seed state".split()
"""What every run has, whatever its settings."""
LEFT_OUT = "seed model.warm_start.seed".split()
"""Settings that the facts name, or that follow from them."""


def page(view: View) -> None:
    with st.sidebar:
        names = [name for name in view.ask("sweeps")["sweep"] if not view.hidden(name, "sweeps")]
        sweeps = choose_many("Sweeps", names, "sweeps", names[:1])
    table, settings = _runs(view, sweeps)
    if table.empty:
        raise Nothing("No runs: select other sweeps on the left.")
    varied = apart(settings)
    fields = [*FACTS, *varied]
    values = pandas.concat([table, frame_of(settings, varied, table.index)], axis=1)
    first, second, third = st.columns(3)
    field = choose("Only", [ANY, *fields], "where", ANY, column=first)
    if field != ANY:
        options = sorted({str(value) for value in values[field]})
        kept = choose_many(field, options, "is", options, column=second)
        values = values[values[field].map(str).isin(kept)]
    group = choose("Group by", [NONE, *fields], "group", NONE, column=third)
    if group != NONE:
        show_table(grouped(values, group), 320, _ACCURACY)
    st.text(f"{plural(len(values), 'run')}. Select two rows to see how they differ.")
    chosen = _choose_runs(values, fields)
    if len(chosen) == 2:
        _side_by_side(chosen, settings)
    elif len(chosen) > 2:
        st.text("Select two runs, not more, to see how they differ.")


_ACCURACY = {
    "accuracy": st.column_config.NumberColumn("last mean accuracy", format="%.3f"),
    "lowest": st.column_config.NumberColumn(format="%.3f"),
    "highest": st.column_config.NumberColumn(format="%.3f"),
    "hours": st.column_config.NumberColumn(format="%.2f"),
}


def _runs(view: View, sweeps: Sequence[str]) -> tuple[pandas.DataFrame, dict[str, dict[str, Any]]]:
    """The current runs by `SWEEP/RUN`, and the settings of those that have begun."""
    parts = []
    settings = {}
    for sweep in sweeps:
        runs = view.ask("runs", sweep)
        runs = runs[[not view.hidden(f"{sweep}/{run}") for run in runs["run"]]]
        runs = runs.assign(name=[f"{sweep}/{run}" for run in runs["run"]])
        scores = view.ask("scores", sweep)
        means = scores[scores["benchmark"] == "mean"].sort_values("step")
        named = labels.labels(view.ask("variants", (sweep,)))
        flow_run = view.layout.flow_run_url(sweep)
        parts.append(
            runs.assign(
                accuracy=runs["run"].map(means.groupby("run")["accuracy"].last()),
                variant=runs["variant"].map(lambda variant, named=named: named.get(variant, "")),
                hours=runs["seconds"] / 3600,
                progress=(runs["step"] / runs["steps"]).clip(upper=1).fillna(0.0),
                log=[str(view.layout.run(sweep, run).path / "log.txt") for run in runs["run"]],
                flow=flow_run,
            )
        )
        for run, manifest in view.ask("manifests", sweep).items():
            settings[f"{sweep}/{run}"] = flat(manifest["spec"])
    if not parts:
        return pandas.DataFrame(), {}
    return pandas.concat(parts, ignore_index=True).set_index("name"), settings


def apart(settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The fields in which these runs differ; a field that only some have counts."""
    names = dict.fromkeys(name for each in settings.values() for name in each)
    differing = []
    for name in names:
        values = {text_of(each.get(name)) for each in settings.values()}
        if len(values) > 1 and name not in LEFT_OUT:
            differing.append(name)
    return differing


def text_of(value: Any) -> str:
    """A setting as in a file; "" for one that a run does not have."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def frame_of(
    settings: Mapping[str, Mapping[str, Any]], fields: Sequence[str], index: pandas.Index
) -> pandas.DataFrame:
    """A column of texts for each field."""
    columns = {
        field: [text_of(settings.get(name, {}).get(field)) for name in index] for field in fields
    }
    return pandas.DataFrame(columns, index=index)


def grouped(runs: pandas.DataFrame, field: str) -> pandas.DataFrame:
    """A row for each value of the field: how many runs, how many of them are done, and the mean,
    lowest and highest of their last accuracies."""
    groups = runs.assign(done=runs["state"] == "done").groupby(runs[field].map(str), sort=True)
    table = groups.agg(
        runs=("state", "size"),
        done=("done", "sum"),
        accuracy=("accuracy", "mean"),
        lowest=("accuracy", "min"),
        highest=("accuracy", "max"),
        hours=("hours", "sum"),
    )
    return table.rename_axis(field).reset_index()


def _choose_runs(runs: pandas.DataFrame, fields: Sequence[str]) -> list[str]:
    """The table, and the names of its selected rows."""
    # The variant names the algorithm.
    named = ("sweep", "algorithm", "algorithm.name")
    shown = [field for field in fields if field not in named]
    table = runs[["run", *shown, "progress", "accuracy", "hours", "log", "flow"]].copy()
    where = list(zip(runs["sweep"], runs["run"], strict=True))
    table["run"] = [address("run", sweep=sweep, run=run) for sweep, run in where]
    table.insert(
        1, "samples", [address("run", sweep=sweep, run=run, part="Samples") for sweep, run in where]
    )
    columns = {
        **_ACCURACY,
        "run": RUN_LINK,
        "samples": st.column_config.LinkColumn(display_text="samples"),
        "flow": st.column_config.LinkColumn("flow run", display_text="flow run"),
        "progress": share_column("progress"),
    }
    table = table.dropna(axis=1, how="all")
    event = show_table(
        table, 520, columns, on_select="rerun", selection_mode="multi-row", key="runs table"
    )
    rows = event["selection"]["rows"] if event else []
    return [str(runs.index[row]) for row in rows if row < len(runs)]


def _side_by_side(names: Sequence[str], settings: Mapping[str, Mapping[str, Any]]) -> None:
    st.subheader("How they differ")
    known = {name: settings[name] for name in names if name in settings}
    if len(known) < len(names):
        st.text("The settings of a run that has not begun are not known.")
        return
    table = differences(known)
    if table.empty:
        st.text("All settings are the same.")
        return
    show_table(table, 520)


def differences(settings: Mapping[str, Mapping[str, Any]]) -> pandas.DataFrame:
    """A row for each setting in which runs differ, seeds included; a column for each run."""
    fields = dict.fromkeys(name for each in settings.values() for name in each)
    rows = []
    for field in fields:
        values = {name: text_of(each.get(field)) for name, each in settings.items()}
        if len(set(values.values())) > 1:
            rows.append({"setting": field, **values})
    return pandas.DataFrame(rows, columns=["setting", *settings])
