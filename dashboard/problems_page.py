"""The problems on which a variant does better or worse than another, and the responses of both."""

import pandas
import streamlit as st

from dashboard.view import View, choose_sweep
from dashboard.view import samples as stored
from dashboard.widgets import Nothing, choose, choose_row, notice, share_column, show_text
from rpg.store import StoreError


def page(view: View) -> None:
    columns = st.columns([2, 2, 2, 1, 1])
    sweep = choose_sweep(view, column=columns[0])
    summary = view.summary(sweep)
    names = {summary.labels[variant]: variant for variant in summary.variants}
    runs = view.ask("runs", sweep)
    scores = view.ask("scores", sweep)
    mine = choose("Variant", list(names), "variant", list(names)[-1] if names else None, column=columns[1])
    other = choose("Against", list(names), "against", summary.baseline_label, column=columns[2])
    benchmark = choose("Benchmark", summary.benchmarks, "benchmark", column=columns[3])
    if not (mine and benchmark):
        raise Nothing("Nothing has been evaluated yet.")
    pair = [names[mine], names[other]]
    of_pair = scores[(scores["benchmark"] == benchmark) & scores["variant"].isin(pair)]
    steps = [str(step) for step, part in of_pair.groupby("step") if set(part["variant"]) == set(pair)]
    if not steps:
        raise Nothing("These two variants have no evaluated step in common.")
    step = int(choose("Step", steps, "step", steps[-1], column=columns[4]))
    variants = runs[runs["variant"].isin(pair)].set_index("run")["variant"].to_dict()
    problems = view.ask("problem_scores", sweep, tuple((run, step) for run in variants))
    table = compared(problems, variants, pair, benchmark)
    if table.empty:
        raise Nothing("These two variants have no problem in common.")
    won, lost = int((table["difference"] > 0).sum()), int((table["difference"] < 0).sum())
    st.text(
        f"{mine} does better on {won} of {len(table)} problems, worse on {lost}, and the same on "
        f"{len(table) - won - lost}: {table['mine'].mean():.3f} against {table['other'].mean():.3f}."
    )
    if mine == other:
        notice("Both are the same variant: select another one to compare with.")
    shown = {"problem_id": "problem", "mine": share_column(mine), "other": share_column(other)}
    shown["difference"] = st.column_config.NumberColumn("difference", format="%+.3f")
    ids = table["problem_id"].tolist()
    problem = ids[choose_row(table, ids, "problem", shown | {"samples": "samples each"})]
    _responses(view, sweep, {mine: pair[0], other: pair[1]}, variants, benchmark, step, problem)


def compared(
    scores: pandas.DataFrame, variants: dict[str, str], pair: list[str], benchmark: str
) -> pandas.DataFrame:
    """The share of right samples of both variants, over seeds, for each problem in common; largest difference first.

    `scores` as `queries.problem_scores` gives them. Columns: problem_id, mine, other, difference, samples.
    """
    mine = scores[scores["benchmark"] == benchmark].assign(variant=lambda data: data["run"].map(variants))
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
    variants: dict[str, str],
    benchmark: str,
    step: int,
    problem: str,
) -> None:
    above = st.container()
    problem_shown = False
    columns = st.columns(2)
    for column, (label, variant) in zip(columns, sides.items(), strict=False):
        samples = []
        for run in (run for run in variants if variants[run] == variant):
            try:
                rows = stored(view.layout.run(sweep, run), benchmark, step)
            except StoreError as error:
                notice(str(error))
                continue
            samples += rows[rows["problem_id"] == problem].assign(run=run).to_dict("records")
        if samples and not problem_shown:
            problem_shown = True
            with above:
                show_text(samples[0]["problem"])
                st.text(f"expected: {samples[0]['answer']}")
        with column:
            st.text(label)
            if not samples:
                st.text("no sample")
                continue
            names = [
                f"{sample['run']}, sample {sample['sample']}: {'right' if sample['correct'] else 'wrong'}"
                for sample in samples
            ]
            name = st.selectbox("Sample", names, key=f"sample of {variant}", label_visibility="collapsed")
            sample = samples[names.index(name)]
            st.text(f"extracted {sample['extracted']!r} ({sample['reason']}), {sample['tokens']} tokens")
            show_text(sample["response"])
