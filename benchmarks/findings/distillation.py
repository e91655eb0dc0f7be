"""Accuracy and both KLs to a teacher while variants train: sweeps `distillation` and
`distillation-words`."""

from __future__ import annotations

from itertools import product

import altair as alt
import duckdb
import pandas

from benchmarks.findings.shared import Found, Test, by_loss, differences, judged, plain
from rpg import stats
from rpg.report import frontier as frontier_report

TO_TEACHER = {
    "kl_policy_to_ref": "KL(policy ‖ teacher)",
    "kl_ref_to_policy": "KL(teacher ‖ policy)",
}


def distillation(db: duckdb.DuckDBPyConnection, sweep: str = "distillation") -> Found:
    """Accuracy and both KLs to the teacher while the variants train; what the baseline's gain is at
    the first evaluation."""
    table = judged(db, sweep)
    labels = {row.variant: _distilled(row.label) for row in table.itertuples()}
    steps = [
        row[0]
        for row in db.execute(
            "SELECT DISTINCT step FROM evals WHERE sweep = ? AND step > 0 ORDER BY step", [sweep]
        ).fetchall()
    ]
    ends = steps[0], steps[-1]
    passed = {
        (name, step): frontier_report.diversity(db, sweep, name, ("pass",), step)["pass"]
        for name, step in product(labels, steps)
    }
    kls = db.execute(
        f"""SELECT r.variant, m.step, {", ".join(f"avg(m.{kl}) AS {kl}" for kl in TO_TEACHER)}
            FROM metrics m JOIN runs r USING (run) WHERE r.sweep = ? GROUP BY ALL ORDER BY ALL""",
        [sweep],
    ).df()
    kls = kls[kls["variant"] != "dr-grpo"]  # whose reference is no teacher
    heads = [*(f"step {step}" for step in steps), f"pass@4 at {steps[-1]}"]
    heads += [f"{title} at {step}" for title, step in product(TO_TEACHER.values(), ends)]
    lines = ["| variant | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads)]
    for name, label in labels.items():
        cells = [f"{stats.accuracy(passed[name, step][1]).mean:.3f}" for step in steps]
        cells.append(f"{stats.accuracy(passed[name, steps[-1]][4]).mean:.3f}")
        at = kls[kls["variant"] == name].set_index("step")
        cells += [
            f"{at.loc[step, kl]:.4f}" if len(at) else "" for kl, step in product(TO_TEACHER, ends)
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    first = steps[0]
    tests: list[Test] = [
        (
            f"{labels[one]}, step {first}",
            labels[other],
            passed[one, first][1],
            passed[other, first][1],
        )
        for one, other in (
            ("opd-rkl", "opd"),
            ("gkd", "opd-jsd"),
            ("opd", "minillm"),
            ("opd", "dr-grpo"),
        )
        if {one, other} <= labels.keys()
    ]
    text = plain(table.assign(label=table["variant"].map(labels)))
    text += "\n\n" + "\n".join([*lines, "", *differences(("variant", "against"), tests)])
    right = pandas.DataFrame(
        (labels[name], step, stats.accuracy(of[1]).mean) for (name, step), of in passed.items()
    ).set_axis(["loss", "step", "accuracy"], axis=1)
    color = by_loss([*labels.values()])
    panels = [_over_steps(right, color, "accuracy", "mean accuracy", "linear")]
    drawn = kls.assign(loss=kls["variant"].map(labels))
    panels += [
        _over_steps(drawn, color, kl, f"{title}, nats per token", "log")
        for kl, title in TO_TEACHER.items()
    ]
    return Found(text, alt.hconcat(*panels, spacing=24))


def _over_steps(
    data: pandas.DataFrame, color: alt.Color, column: str, title: str, scale: str
) -> alt.Chart:
    y = alt.Y(f"{column}:Q", title=title, scale=alt.Scale(type=scale, zero=False))
    line = alt.Chart(data).mark_line(
        strokeWidth=1.6, point=alt.OverlayMarkDef(filled=True, size=25)
    )
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1))
    return line.encode(x=x, y=y, color=color).properties(width=270, height=260)


def _distilled(label: str) -> str:
    """The one variant that is no entry of the catalogue, by what it is."""
    return "k3 in the loss" if label.startswith("REINFORCE") else label
