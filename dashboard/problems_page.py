"""The problems that a variant answers better or worse than another one, or than itself before, and
both their responses."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas
import streamlit as st

from dashboard import samples as stored
from dashboard.view import View, choose_sweep
from dashboard.widgets import Nothing, accuracy_column, choose, choose_row, notice, show_text
from rpg.report.format import accuracy
from rpg.store import StoreError

SAME = "the same"


class Side(NamedTuple):
    """The runs of a variant at one step."""

    label: str
    runs: list[str]
    step: int


def page(view: View) -> None:
    columns = st.columns([2, 2, 1, 2, 1, 1])
    sweep = choose_sweep(view, column=columns[0])
    summary = view.summary(sweep)
    names = {summary.labels[variant]: variant for variant in summary.variants}
    mine = choose(
        "Variant", list(names), "variant", list(names)[-1] if names else None, column=columns[1]
    )
    other = choose("Against", list(names), "against", summary.baseline_label, column=columns[3])
    benchmark = choose("Benchmark", summary.benchmarks, "benchmark", column=columns[5])
    if not (mine and benchmark):
        raise Nothing("Nothing has been evaluated yet.")
    scores = view.ask("scores", sweep)
    evaluated = scores[scores["benchmark"] == benchmark].groupby("variant")["step"].unique()
    steps, others = (sorted(evaluated.get(names[label], [])) for label in (mine, other))
    common = sorted(set(steps) & set(others))
    if not common:
        raise Nothing("These two variants have no evaluated step in common.")
    step = int(
        choose("Step", [str(each) for each in steps], "step", str(common[-1]), column=columns[2])
    )
    earlier = choose(
        "Its step", [SAME, *(str(each) for each in others)], "against_step", column=columns[4]
    )
    its_step = step if earlier == SAME else int(earlier)
    runs_of = view.ask("runs", sweep).groupby("variant")["run"].agg(list)
    sides = [
        Side(label if step == its_step else f"{label}, step {at}", runs_of[names[label]], at)
        for label, at in ((mine, step), (other, its_step))
    ]
    table = compared(*(_scores(view, sweep, side, benchmark) for side in sides))
    if table.empty:
        raise Nothing("These two variants have no problem in common.")
    won = int((table["difference"] > 0).sum())
    lost = int((table["difference"] < 0).sum())
    st.text(
        f"{sides[0].label} does better on {won} of {len(table)} problems, worse on {lost}, "
        "and the same on "
        f"{len(table) - won - lost}: {accuracy(table['mine'].mean())} against "
        f"{accuracy(table['other'].mean())}."
    )
    if sides[0] == sides[1]:
        notice(
            "Both are the same: select another variant to compare with, or another step (0: "
            "before training)."
        )
    shown = {
        "problem_id": "problem",
        "mine": accuracy_column(sides[0].label),
        "other": accuracy_column(sides[1].label),
    }
    table = table.assign(difference=100 * table["difference"])
    shown["difference"] = st.column_config.NumberColumn("points", format="%+.1f")
    ids = table["problem_id"].tolist()
    problem = ids[choose_row(table, ids, "problem", shown | {"samples": "samples each"})]
    _responses(view, sweep, sides, benchmark, problem)


def _scores(view: View, sweep: str, side: Side, benchmark: str) -> pandas.DataFrame:
    scores = view.ask("problem_scores", sweep, tuple((run, side.step) for run in side.runs))
    return scores[scores["benchmark"] == benchmark]


def compared(mine: pandas.DataFrame, other: pandas.DataFrame) -> pandas.DataFrame:
    """The share of right samples of both, over seeds, for each problem in common; largest
    difference first.

    `mine` and `other`: of one benchmark, as `queries.problem_scores` gives them. Columns:
    problem_id, mine, other, samples, difference.
    """
    sides = {"mine": mine.groupby("problem_id"), "other": other.groupby("problem_id")}
    table = pandas.DataFrame({name: side["accuracy"].mean() for name, side in sides.items()})
    table["samples"] = pandas.concat(
        [side["samples"].sum() for side in sides.values()], axis=1
    ).min(axis=1)
    table = table.dropna()
    table["difference"] = table["mine"] - table["other"]
    order = table["difference"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order].reset_index()


def _responses(view: View, sweep: str, sides: list[Side], benchmark: str, problem: str) -> None:
    samples = [_samples(view, sweep, side, benchmark, problem) for side in sides]
    shown = next((each[0] for each in samples if each), None)
    if shown is not None:
        show_text(shown["problem"])
        st.text(f"expected: {shown['answer']}")
    first = where_they_differ(*samples)
    for number, (column, side) in enumerate(zip(st.columns(2), sides, strict=True)):
        with column:
            st.text(side.label)
            _choose_response(samples[number], first[number], f"sample of side {number}")


def _samples(
    view: View, sweep: str, side: Side, benchmark: str, problem: str
) -> list[dict[str, Any]]:
    """Of all runs of a side, in their order."""
    samples = []
    for run in side.runs:
        try:
            rows = stored.read(view.layout.run(sweep, run).eval_path(benchmark, side.step))
        except StoreError as error:
            notice(str(error))
            continue
        samples += rows[rows["problem_id"] == problem].assign(run=run).to_dict("records")
    return samples


def where_they_differ(
    mine: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]
) -> tuple[int, int]:
    """The places of a right and of a wrong sample: a right one of the side that is right more
    often. The first sample of a side that has none such."""
    better = _share_right(mine) >= _share_right(other)
    return _first(mine, right=better), _first(other, right=not better)


def _share_right(samples: Sequence[Mapping[str, Any]]) -> float:
    if not samples:
        return 0.0
    return sum(bool(sample["correct"]) for sample in samples) / len(samples)


def _first(samples: Sequence[Mapping[str, Any]], *, right: bool) -> int:
    verdicts = [bool(sample["correct"]) for sample in samples]
    return verdicts.index(right) if right in verdicts else 0


def _choose_response(samples: Sequence[Mapping[str, Any]], first: int, key: str) -> None:
    """A side's samples of the problem, and the chosen one's response; `first`: at the beginning."""
    if not samples:
        st.text("no sample")
        return
    names = []
    for sample in samples:
        verdict = "right" if sample["correct"] else "wrong"
        names.append(f"{sample['run']}, sample {sample['sample']}: {verdict}")
    name = st.selectbox("Sample", names, index=first, key=key, label_visibility="collapsed")
    sample = samples[names.index(name)]
    st.text(f"extracted {sample['extracted']!r} ({sample['reason']}), {sample['tokens']} tokens")
    show_text(sample["response"])
