"""One run: curves, settings, checkpoints, every graded sample."""

import json
from functools import partial
from typing import Any

import pandas
import streamlit as st

from dashboard import samples
from dashboard.annotating import show_annotations
from dashboard.view import View, choose_sweep, series_labels
from dashboard.widgets import (
    Nothing,
    choose,
    choose_part,
    notice,
    show_panels,
    show_table,
)
from rpg.metrics import METRICS
from rpg.metrics import shown as shown_metrics
from rpg.report import curves
from rpg.report.csv_text import csv_text
from rpg.store.current import flat, how_it_came
from rpg.store.run_folder import RunFolder


def page(view: View) -> None:
    left, middle, right = st.columns([3, 3, 1], vertical_alignment="bottom")
    sweep = choose_sweep(view, column=left)
    names = view.ask("runs", sweep, True)["run"].tolist()  # superseded runs last
    names = [name for name in names if not view.hidden(f"{sweep}/{name}", "run")]
    name = choose(
        "Run", names, "run", column=middle, format_func=lambda run: view.called(f"{sweep}/{run}")
    )
    if not name:
        raise Nothing("This sweep has no runs yet.")
    with right:
        show_annotations(view, f"{sweep}/{name}")
    record = view.ask("run", sweep, name)
    folder = view.layout.run(sweep, name)
    labels = {key.variant: label for key, label in series_labels(view, [sweep]).items()}
    _show_facts({**record, "variant": labels.get(record["variant"], record["variant"])}, folder)
    about_samples = {"benchmark", "sample", "search"} & set(st.query_params)
    shown = choose_part(
        ["Curves", "Settings", "Samples"], "part", "Samples" if about_samples else None
    )
    if shown == "Curves":
        _curves(view, sweep, name)
    elif shown == "Settings":
        _settings(record)
    else:
        _samples(folder)


def _show_facts(record: dict[str, Any], folder: RunFolder) -> None:
    step = record["step"]
    steps = record["steps"]
    measured = pandas.notna(step) and pandas.notna(steps)
    parts = [
        record["state"],
        record["variant"],
        f"seed {record['seed']:.0f}" if pandas.notna(record["seed"]) else "",
        f"step {step:.0f} of {steps:.0f}" if measured else "no step yet",
        f"attempts: {record['attempts']:.0f}" if pandas.notna(record["attempts"]) else "",
        f"{record['seconds']:.0f} s"
        if (record["seconds"] or 0.0) > 0
        else "",  # 0: it was imported
    ]
    st.text(" · ".join(part for part in parts if isinstance(part, str) and part))
    now = folder.now()
    if now:
        st.text(f"now: {now}")
    if isinstance(record["superseded"], str):
        notice(f"Superseded, so not part of any mean: {record['superseded']}")
    if isinstance(record["error"], str):
        notice(f"{record['error']}\nlog: {record['log']}")
    if isinstance(record["imported"], str):
        source = json.loads(record["imported"])
        st.text(f"{how_it_came(source['from'])}: {source['file']}")
        return
    steps = folder.checkpoint_steps()
    st.text(f"checkpoints: {', '.join(map(str, steps)) or 'none'} in {folder.checkpoints}")


def _curves(view: View, sweep: str, name: str) -> None:
    metrics = view.ask("run_metrics", sweep, name)
    scores = view.ask("run_evals", sweep, name)
    show_panels(view.draw(_panels, sweep, name))
    with st.expander("Every number"):
        show_table(metrics, 400)
        show_table(scores, 400)
    as_csv = partial(csv_text, metrics)
    st.download_button("Metrics as CSV", as_csv, f"{name}.csv", on_click="ignore")


def _panels(view: View, sweep: str, name: str) -> list[dict[str, Any]]:
    """Specifications of the run's accuracies, and of what training measured."""
    metrics = view.ask("run_metrics", sweep, name)
    scores = view.ask("run_evals", sweep, name)
    lines = [
        _line(part["step"], part["accuracy"], benchmark, points=True)
        for benchmark in view.ask("benchmarks", (sweep,))
        if len(part := scores[scores["benchmark"] == benchmark])
    ]
    measured = metrics.dropna(axis=1, how="all")
    lines += [
        _line(metrics["step"], measured[name], name, noise=measured.get(METRICS[name].noise))
        for name in shown_metrics()
        if name in measured
    ]
    return [line.to_dict(validate=False) for line in lines]


def _line(
    steps: pandas.Series,
    values: pandas.Series,
    name: str,
    points: bool = False,
    noise: pandas.Series | None = None,
) -> Any:
    bounds = dict.fromkeys(("mean", "low", "high", "lowest", "highest"), values)
    data = pandas.DataFrame({"label": "this run", "x": steps, "step": steps, "seeds": 1, **bounds})
    if noise is not None:
        data["noise"] = noise
    style = curves.Style(legend=False, height=180)
    return curves.panel(data, ["this run"], name=name, band=None, points=points, style=style)


def _settings(record: dict[str, Any]) -> None:
    _show_texts(json.loads(record["spec"] or "{}"), "setting")
    with st.expander("Machine and versions"):
        facts = {name: json.loads(record[name] or "null") for name in ("machine", "versions")}
        facts |= {
            "git revision": record["git_revision"],
            "code": record["code"],
            "run id": record["run_id"],
        }
        _show_texts(facts, "fact")


def _show_texts(values: dict[str, Any], what: str) -> None:
    """Nested values as dotted names with JSON texts."""
    rows = [
        (name, json.dumps(value, ensure_ascii=False))
        for name, value in flat(values).items()
        if name
    ]
    show_table(pandas.DataFrame(rows, columns=[what, "value"]), 400)


def _samples(folder: RunFolder) -> None:
    benchmarks = [name for name in folder.benchmarks() if folder.eval_steps(name)]
    if not benchmarks:
        raise Nothing("Nothing has been evaluated yet.")
    left, right = st.columns(2)
    benchmark = choose("Benchmark", benchmarks, "benchmark", column=left)
    steps = [str(step) for step in folder.eval_steps(benchmark)]
    step = choose("Step", steps, "step", steps[-1], column=right)
    samples.browse(samples.read(folder.eval_path(benchmark, int(step))))
