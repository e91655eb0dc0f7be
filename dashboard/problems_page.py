"""Which problems a variant wins and loses against another, and what both said."""

import pandas
import streamlit as st

from dashboard.selection import choose, choose_sweep, linked
from dashboard.text import notice, show_mathematics
from dashboard.view import View
from dashboard.view import samples as stored
from rpg.store import StoreError

SHOWN = 8_000  # characters of a response on the page; the page Run has the rest


def page(view: View) -> None:
    columns = st.columns([2, 2, 2, 1, 1])
    with columns[0]:
        sweep = choose_sweep(view)
    if sweep is None:
        st.text("No sweeps yet.")
        return
    summary = view.summary(sweep, None, None)
    names = {summary.labels[variant]: variant for variant in summary.variants}
    runs = view.ask("runs", sweep)
    scores = view.ask("scores", sweep)
    with columns[1]:
        mine = choose("Variant", list(names), "variant", list(names)[-1] if names else None)
    with columns[2]:
        base = summary.labels.get(summary.baseline) if summary.baseline else None
        other = choose("Against", list(names), "against", base)
    with columns[3]:
        benchmark = choose("Benchmark", summary.benchmarks, "benchmark")
    if mine is None or other is None or benchmark is None:
        st.text("Nothing has been evaluated yet.")
        return
    pair = [names[mine], names[other]]
    found = scores[(scores["benchmark"] == benchmark) & scores["variant"].isin(pair)]
    steps = [str(step) for step, part in found.groupby("step") if set(part["variant"]) == set(pair)]
    if not steps:
        st.text("These two have no evaluated step in common.")
        return
    with columns[4]:
        step = int(choose("Step", steps, "step", steps[-1]) or steps[-1])
    of_runs = runs[runs["variant"].isin(pair)].set_index("run")["variant"].to_dict()
    table = compared(
        view.ask("problem_scores", sweep, tuple((run, step) for run in of_runs)), of_runs, pair, benchmark
    )
    if table.empty:
        st.text("These two have answered no problem in common.")
        return
    won, lost = int((table["difference"] > 0).sum()), int((table["difference"] < 0).sum())
    st.text(
        f"{mine} does better on {won} of {len(table)} problems, worse on {lost}, and the same on "
        f"{len(table) - won - lost}: {table['mine'].mean():.3f} against {table['other'].mean():.3f}."
    )
    if mine == other:
        notice("Both are the same variant: choose another one to compare with.")
    shares = {
        name: st.column_config.ProgressColumn(label, format="percent", min_value=0, max_value=1)
        for name, label in (("mine", mine), ("other", other))
    }
    event = st.dataframe(
        table,
        hide_index=True,
        height=min(38 + 35 * len(table), 330),
        column_config={
            "problem_id": "problem",
            **shares,
            "difference": st.column_config.NumberColumn("difference", format="%+.3f"),
            "samples": "samples each",
        },
        on_select="rerun",
        selection_mode="single-row",
        key="problems",
    )
    ids = table["problem_id"].tolist()
    rows = event["selection"]["rows"] if event else []
    asked = st.query_params.get("problem")
    problem = ids[rows[0]] if rows and rows[0] < len(ids) else asked if asked in ids else ids[0]
    linked("problem", problem)
    _responses(view, sweep, {mine: pair[0], other: pair[1]}, of_runs, benchmark, step, problem)


def compared(
    scores: pandas.DataFrame, of_runs: dict[str, str], pair: list[str], benchmark: str
) -> pandas.DataFrame:
    """Per problem that both variants answered: the share of right samples of each, over seeds; what differs most first.

    `scores` as `queries.problem_scores` gives them. Columns: problem_id, mine, other, difference, samples.
    """
    mine = scores[scores["benchmark"] == benchmark].assign(variant=lambda data: data["run"].map(of_runs))
    columns = ["problem_id", "mine", "other", "difference", "samples"]
    if set(mine["variant"]) != set(pair):
        return pandas.DataFrame(columns=columns)
    shares = mine.pivot_table(index="problem_id", columns="variant", values="accuracy", aggfunc="mean")
    counts = mine.groupby(["problem_id", "variant"])["samples"].sum().groupby("problem_id").min()
    table = pandas.DataFrame({"mine": shares[pair[0]], "other": shares[pair[1]], "samples": counts}).dropna()
    table["difference"] = table["mine"] - table["other"]
    order = table["difference"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order].reset_index()[columns]


def _responses(
    view: View,
    sweep: str,
    sides: dict[str, str],
    of_runs: dict[str, str],
    benchmark: str,
    step: int,
    problem: str,
) -> None:
    asked = st.container()
    told = False
    columns = st.columns(2)
    for column, (label, variant) in zip(columns, sides.items(), strict=False):
        samples = []
        for run in (run for run, of in of_runs.items() if of == variant):
            try:
                read = stored(view.layout.run(sweep, run), benchmark, step)
            except StoreError as error:
                notice(str(error))
                continue
            samples += read[read["problem_id"] == problem].assign(run=run).to_dict("records")
        if samples and not told:
            told = True
            with asked:
                show_mathematics(samples[0]["problem"])
                st.text(f"expected: {samples[0]['answer']}")
        with column:
            st.text(label)
            if not samples:
                st.text("no sample")
                continue
            names = [
                f"{one['run']}, sample {one['sample']}: {'right' if one['correct'] else 'wrong'}"
                for one in samples
            ]
            chosen = st.selectbox("Sample", names, key=f"sample of {variant}", label_visibility="collapsed")
            one = samples[names.index(chosen)]
            st.text(f"extracted {one['extracted']!r} ({one['reason']}), {one['tokens']} tokens")
            show_mathematics(one["response"][:SHOWN])
            if len(one["response"]) > SHOWN:
                st.text(f"{len(one['response']) - SHOWN:,} more characters: see the page Run")
