"""One run: settings and how they differ from another's, curves, checkpoints, every graded sample."""

import json
from typing import Any

import pandas
import streamlit as st

from dashboard.drawing import rows_of, show_chart
from dashboard.selection import choose, choose_part, choose_sweep, linked
from dashboard.text import notice
from dashboard.view import View
from dashboard.view import samples as stored
from rpg.metrics import shown as shown_metrics
from rpg.report import charts
from rpg.store import StoreError
from rpg.store.run_folder import RunFolder
from rpg.store.samples import GRADE_COLUMNS, graded_by, gradings, read_grades

SHOWN = 20_000  # characters of a text on the page; the file holds the rest
DRAWN = "rules that were not recorded"
ROWS = 200  # samples per table
PARTS = ("Curves", "Settings", "Samples")


def page(view: View) -> None:
    left, middle, right = st.columns(3)
    with left:
        sweep = choose_sweep(view)
    if sweep is None:
        st.text("No sweeps yet.")
        return
    names = view.ask("runs", sweep, True)["run"].tolist()  # superseded ones last
    with middle:
        name = choose("Run", names, "run")
    with right:
        other = choose("Compare settings with", ["", *names], "other", "")
    if name is None:
        st.text("This sweep has no runs yet.")
        return
    found = view.ask("run", sweep, name)
    folder = view.layout.run(sweep, name)
    _facts(found, folder)
    about_samples = {"benchmark", "sample", "search"} & set(st.query_params)
    shown = choose_part(PARTS, "part", "Samples" if about_samples else None)
    if shown == "Curves":
        _curves(view, sweep, name)
    elif shown == "Settings":
        _settings(found, view.ask("run", sweep, other) if other else None)
    else:
        _samples(folder)


def _facts(found: dict[str, Any], folder: RunFolder) -> None:
    step, steps = found["step"], found["steps"]
    progress = (
        f"step {step:.0f} of {steps:.0f}" if pandas.notna(step) and pandas.notna(steps) else "no step yet"
    )
    seed = f"seed {found['seed']:.0f}" if pandas.notna(found["seed"]) else ""
    parts = [found["state"], found["variant"], seed, progress, f"attempts {found['attempts']}"]
    if pandas.notna(found["seconds"]):
        parts.append(f"{found['seconds']:.0f} s")
    st.text(" · ".join(str(part) for part in parts if isinstance(part, str) and part))
    if now := folder.now():
        st.text(f"now: {now}")
    if isinstance(found["superseded"], str):
        notice(f"Superseded, and in no mean: {found['superseded']}")
    if isinstance(found["error"], str):
        notice(f"{found['error']}\nlog: {found['log']}")
    if isinstance(found["imported"], str):
        source = json.loads(found["imported"])
        st.text(f"trained elsewhere, imported from {source['from']}: {source['file']}")
        return
    steps = folder.checkpoint_steps()
    st.text(f"checkpoints: {', '.join(map(str, steps)) or 'none'} in {folder.checkpoints}")


def _curves(view: View, sweep: str, name: str) -> None:
    metrics = view.ask("run_metrics", sweep, name)
    scores = view.ask("run_evals", sweep, name)
    lines = [
        _line(part["step"], part["accuracy"], benchmark, points=True)
        for benchmark in view.ask("benchmarks", (sweep,))
        if len(part := scores[scores["benchmark"] == benchmark])
    ]
    lines += [
        _line(metrics["step"], metrics[column], column)
        for column in shown_metrics()
        if column in metrics and metrics[column].notna().any()
    ]
    for place, (line, column) in enumerate(zip(lines, rows_of(len(lines)), strict=True)):
        with column:
            show_chart(line, f"curve {place}")
    with st.expander("Every number"):
        st.dataframe(metrics, hide_index=True)
        st.dataframe(scores, hide_index=True)
    st.download_button(
        "Metrics as CSV", lambda: metrics.to_csv(index=False), f"{name}.csv", on_click="ignore"
    )


def _line(steps: pandas.Series, values: pandas.Series, name: str, points: bool = False) -> Any:
    bounds = dict.fromkeys(("mean", "low", "high", "lowest", "highest"), values)
    data = pandas.DataFrame({"label": "this run", "x": steps, "step": steps, "seeds": 1, **bounds})
    return charts.curves(data, ["this run"], name=name, band=None, points=points, legend=False, height=180)


def _settings(found: dict[str, Any], other: dict[str, Any] | None) -> None:
    mine = flat(json.loads(found["spec"] or "{}"))
    if other is None:
        st.dataframe(pandas.DataFrame({"setting": list(mine), "value": list(mine.values())}), hide_index=True)
    else:
        st.dataframe(differences(mine, flat(json.loads(other["spec"] or "{}"))), hide_index=True)
    with st.expander("Machine and versions"):
        facts = {name: json.loads(found[name] or "null") for name in ("machine", "versions")}
        facts |= {"git revision": found["git_revision"], "code": found["code"], "run id": found["run_id"]}
        shown = flat(facts)
        st.dataframe(pandas.DataFrame({"fact": list(shown), "value": list(shown.values())}), hide_index=True)


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted names with JSON values."""
    if isinstance(value, dict) and value:
        return {
            key: text
            for name, part in value.items()
            for key, text in flat(part, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    return {prefix: json.dumps(value, ensure_ascii=False)} if prefix else {}


def differences(mine: dict[str, str], other: dict[str, str]) -> pandas.DataFrame:
    """Settings in which two runs differ."""
    names = [name for name in dict.fromkeys([*mine, *other]) if mine.get(name) != other.get(name)]
    return pandas.DataFrame(
        {
            "setting": names,
            "this run": [mine.get(name, "") for name in names],
            "other run": [other.get(name, "") for name in names],
        }
    )


def _samples(folder: RunFolder) -> None:
    benchmarks = [name for name in folder.benchmarks() if folder.eval_steps(name)]
    if not benchmarks:
        st.text("Nothing has been evaluated yet.")
        return
    first, second, third, fourth, fifth = st.columns([2, 1, 2, 1, 2])
    with first:
        benchmark = choose("Benchmark", benchmarks, "benchmark")
    with second:
        steps = [str(step) for step in folder.eval_steps(benchmark)]
        step = choose("Step", steps, "step", steps[-1])
    path = folder.eval_path(benchmark, int(step))
    try:
        drawn, again = graded_by(path) or DRAWN, gradings(path)
    except StoreError as error:
        notice(str(error))
        return
    with third:
        rules = choose("Graded by", list(dict.fromkeys([drawn, *again])), "rules", drawn)
    other = again.get(rules) if rules != drawn else None
    with fourth:
        kinds = ["all", "right", "wrong", "truncated", *(["changed"] if other else [])]
        kind = choose("Show", kinds, "show", "all")
    with fifth:
        words = st.text_input("Search in problem, response and answer", key="search", bind="query-params")
    try:
        samples = stored(folder, benchmark, int(step))
        if other is not None:
            samples = regraded(samples, read_grades(other))
            _changes(samples, drawn, rules)
    except StoreError as error:
        notice(str(error))
        return
    found = matching(samples, kind, words or "")
    st.text(
        f"{len(found)} of {len(samples)} samples" + (f", the first {ROWS} shown" if len(found) > ROWS else "")
    )
    shown = found.head(ROWS)
    preview = shown.assign(
        problem=shown["problem"].str.slice(0, 300), response=shown["response"].str.slice(0, 300)
    )
    columns = [
        "problem_id",
        "sample",
        "correct",
        "extracted",
        "answer",
        "reason",
        "tokens",
        "problem",
        "response",
    ]
    event = st.dataframe(
        preview[columns],
        hide_index=True,
        height=330,
        on_select="rerun",
        selection_mode="single-row",
        key="samples",
    )
    rows = event["selection"]["rows"] if event else []
    if len(shown):
        names = [f"{one.problem_id}/{one.sample}" for one in shown.itertuples()]
        asked = st.query_params.get("sample")
        place = rows[0] if rows and rows[0] < len(shown) else names.index(asked) if asked in names else 0
        linked("sample", names[place])
        _sample(shown.iloc[place])


def regraded(samples: pandas.DataFrame, grades: list[dict[str, Any]] | None) -> pandas.DataFrame:
    """Samples with other grades in place of the first ones, which stay as the column `before`."""
    found = pandas.DataFrame(grades or [], columns=list(GRADE_COLUMNS))
    kept = samples.drop(columns=["extracted", "correct", "reason"]).assign(before=samples["correct"])
    return kept.merge(found, on=["problem_id", "sample"], how="inner")


def changes(samples: pandas.DataFrame) -> pandas.DataFrame:
    """Per problem of which a sample changed its verdict: how many samples were right before and are now."""
    counts = samples.assign(changed=samples["before"] != samples["correct"]).groupby("problem_id", sort=False)
    table = counts.agg(
        samples=("correct", "size"),
        before=("before", "sum"),
        now=("correct", "sum"),
        changed=("changed", "sum"),
    )
    return table[table["changed"] > 0].reset_index()


def _changes(samples: pandas.DataFrame, drawn: str, rules: str) -> None:
    table = changes(samples)
    st.text(
        f"{len(table)} of {samples['problem_id'].nunique()} problems differ: {samples['before'].sum()} samples right by "
        f"{drawn}, {samples['correct'].sum()} by {rules}, of {len(samples)}"
    )
    if len(table):
        names = {"problem_id": "problem", "before": f"right by {drawn}", "now": f"right by {rules}"}
        st.dataframe(table.rename(columns=names), hide_index=True)


def matching(samples: pandas.DataFrame, kind: str, words: str) -> pandas.DataFrame:
    """Samples of a kind that contain the words, case ignored, in one of their texts."""
    keep = {
        "all": samples["correct"] | True,
        "right": samples["correct"],
        "wrong": ~samples["correct"],
        "truncated": samples["truncated"],
        "changed": samples["before"] != samples["correct"]
        if "before" in samples
        else samples["correct"] & False,
    }[kind]
    if words:
        texts = ("problem_id", "problem", "response", "answer", "extracted")
        hits = [samples[name].fillna("").str.contains(words, case=False, regex=False) for name in texts]
        keep = keep & pandas.concat(hits, axis=1).any(axis=1)
    return samples[keep]


def _sample(sample: pandas.Series) -> None:
    verdict = "right" if sample["correct"] else "wrong"
    st.text(
        f"{sample['problem_id']}, sample {sample['sample']}: {verdict} ({sample['reason']}); "
        f"extracted {sample['extracted']!r}, expected {sample['answer']!r}; {sample['tokens']} tokens"
        + (", truncated" if sample["truncated"] else "")
    )
    left, right = st.columns(2)
    for column, name in ((left, "problem"), (right, "response")):
        with column:
            st.caption(name.capitalize())
            text = sample[name]
            st.code(text[:SHOWN], language=None, wrap_lines=True)
            if len(text) > SHOWN:
                st.text(f"{len(text) - SHOWN:,} more characters")
                st.download_button(
                    f"Whole {name}", text, f"{name}.txt", on_click="ignore", key=f"whole {name}"
                )
