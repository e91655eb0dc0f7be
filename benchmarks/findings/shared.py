"""What the sweeps of docs/findings.md share: tables of variants and of paired differences, and a
forest of intervals."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import altair as alt
import duckdb
import numpy as np
import pandas

from benchmarks.documented import below
from rpg import stats
from rpg.report import frontier as frontier_report
from rpg.report import theme
from rpg.report.format import with_interval
from rpg.report.selection import MEAN
from rpg.report.summary import Summary, summarise
from rpg.stats.verdicts import MINIMUM_MOVING, TOO_FEW_MOVE

ROOT = Path(__file__).parents[2]
PAGE, PICTURES = ROOT / "docs" / "findings.md", ROOT / "docs" / "findings"


class Found(NamedTuple):
    """What a sweep says: blocks of Markdown, and a figure."""

    text: str
    figure: alt.Chart


def spending(summary: Summary) -> str:
    """How unequally the variants have spent, and which verdicts change at equal tokens."""
    equal = next((one for one in summary.equal if one.axis == "tokens"), None)
    if equal is None and not summary.spending:
        tokens = summary.table["tokens"]
        return f"\nEqual spending: {tokens.min():,.0f} to {tokens.max():,.0f} tokens each."
    if equal is None:
        return f"\n{summary.spending}"
    if (equal.table["verdict"].isin(["", "not measured"])).all():
        return f"\n{summary.spending} No checkpoint allows a comparison at equal tokens."
    wanted = summary.table.drop_duplicates("variant", keep="last").set_index("variant")["verdict"]
    changed = [
        f"{row.label} ({row.difference:+.3f}, {row.verdict})"
        for row in equal.table.itertuples()
        if row.verdict and row.verdict != wanted[row.variant]
    ]
    but = f" are the same except for {', '.join(changed)}" if changed else " are all the same"
    if len(changed) > 4:
        but = f" of {len(changed)} of {(equal.table['verdict'] != '').sum()} variants change"
    return f"\n{summary.spending} At {equal.budget:,.0f} tokens each, the verdicts{but}."


def judged(db: duckdb.DuckDBPyConnection, sweep: str) -> pandas.DataFrame:
    """The report's table of the mean accuracy, a row per variant."""
    table = summarise(db, sweep).table
    return table[table["benchmark"] == MEAN]


Test = tuple[str, str, list[np.ndarray], list[np.ndarray]]
"""Two descriptions, and their scores as `rpg.stats` takes them: an array (seeds, problems) per
benchmark."""


def pairs(db: duckdb.DuckDBPyConnection, sweep: str, asked: Sequence[tuple[str, str]]) -> str:
    """Paired differences that the sweep's own baseline does not show."""
    labels = {row.variant: row.label for row in summarise(db, sweep).table.itertuples()}
    scores = {
        name: accuracies(db, sweep, name)
        for name in dict.fromkeys(one for pair in asked for one in pair)
    }
    tests = [(labels[one], labels[other], scores[one], scores[other]) for one, other in asked]
    return "\n".join(differences(("variant", "against"), tests))


def accuracies(db: duckdb.DuckDBPyConnection, sweep: str, variant: str) -> list[np.ndarray]:
    """A variant's last accuracies: an array (seeds, problems) per benchmark."""
    return frontier_report.diversity(db, sweep, variant, ("pass",))["pass"][1]


def differences(heads: tuple[str, str], tests: Sequence[Test]) -> list[str]:
    """A table of paired differences: p by Holm over the table, and intervals that hold together;
    neither where too few problems move. Counts are tested as shares of the largest."""
    scales = [
        max(1.0, *(float(scores.max()) for scores in (*mine, *theirs)))
        for *_, mine, theirs in tests
    ]
    found = [
        stats.family(
            [np.stack([one, other])[None] / scale for one, other in zip(theirs, mine, strict=True)]
        )
        for (*_, mine, theirs), scale in zip(tests, scales, strict=True)
    ]
    testable = [one.moving.item() >= MINIMUM_MOVING for one in found]
    p_values = [one.p_values().item() for one in found]
    corrected = stats.holm(np.where(testable, p_values, np.nan))
    lines = [f"| {heads[0]} | {heads[1]} | difference | p, corrected |", "|---|---|--:|--:|"]
    for (one, other, *_), result, p, scale in zip(tests, found, corrected, scales, strict=True):
        difference = f"{scale * result.difference.item():+.3f}"
        if np.isnan(p):
            lines.append(f"| {one} | {other} | {difference} | {TOO_FEW_MOVE} |")
            continue
        low, high = (scale * bound.item() for bound in result.intervals(stats.ERROR / len(tests)))
        lines.append(f"| {one} | {other} | {difference} [{low:+.3f}, {high:+.3f}] | {below(p)} |")
    return lines


def by_step(db: duckdb.DuckDBPyConnection, sweep: str) -> pandas.DataFrame:
    """A row for each variant, seed and step: the mean accuracy, where the step was evaluated;
    entropy and length of the responses that it trained on, and the mean norm of its gradients."""
    rows = """
        select variant, seed, step, round(accuracy, 6) as accuracy,
               round(entropy, 6) as entropy, round(response_length, 3) as response_length,
               round(grad_norm, 6) as grad_norm
        from (
            select run, step, entropy, response_length, grad_norm from metrics
            where sweep = $sweep
        ) full join (
            select run, step, accuracy from scores where sweep = $sweep and benchmark = $mean
        ) using (run, step)
        join (
            select run, variant, seed from runs where sweep = $sweep and superseded is null
        ) using (run)
        order by variant, seed, step
    """
    return db.execute(rows, {"sweep": sweep, "mean": MEAN}).df()


def compact(text: str) -> str:
    """Bounds of clips as low/high/c."""
    number = r"(\d+(?:\.\d+)?)"
    return re.sub(
        rf"clip low {number}, clip high {number}, dual clip {number}", r"clip \1/\2/\3", text
    )


def short(label: str) -> str:
    """A variant's label as a figure has room for."""
    label = re.sub(r"\(advantage=gae\(.*\)\)", ", critic", label)
    return label.replace("GRPO (corrected KL)", "GRPO, corrected").replace("correction ", "")


def forest(table: pandas.DataFrame, title: str) -> alt.Chart:
    """Accuracy of each variant with its 95 % interval."""
    data = table[["label", "last", "low", "high"]].assign(label=[short(x) for x in table["label"]])
    order = data.sort_values("last", ascending=False)["label"].tolist()
    y = alt.Y(
        "label:N", sort=order, title=None, axis=alt.Axis(labelLimit=360, domain=False, ticks=False)
    )
    base = alt.Chart(data)
    rule = base.mark_rule(strokeWidth=2, color="#0072B2").encode(
        x=alt.X(
            "low:Q",
            title="mean accuracy at the last step, 95 % interval",
            scale=alt.Scale(zero=False),
        ),
        x2="high:Q",
        y=y,
    )
    points = base.mark_point(filled=True, size=70, color="#0072B2", opacity=1).encode(
        x="last:Q", y=y
    )
    return alt.layer(rule, points).properties(width=520, height=alt.Step(24), title=title)


def plain(table: pandas.DataFrame) -> str:
    """The report's columns as Markdown."""
    lines = [
        "| variant | seeds | accuracy | difference to the baseline | p, corrected | |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for row in table.itertuples():
        difference, p, verdict = "baseline", "", ""
        if isinstance(row.verdict, str) and row.verdict:
            difference = with_interval(
                row.difference, row.difference_low, row.difference_high, "{:+.3f}".format
            )
            p, verdict = below(row.p_corrected), row.verdict
        lines.append(
            f"| {row.label} | {row.seeds} | {row.last:.3f} [{row.low:.3f}, {row.high:.3f}] "
            f"| {difference} | {p} | "
            f"{verdict} |"
        )
    return "\n".join(lines)


def by_loss(losses: list[str]) -> alt.Color:
    """A colour for each."""
    scale = alt.Scale(domain=losses, range=list(theme.COLOURS[: len(losses)]))
    return alt.Color("loss:N", title=None, scale=scale)


def forest_of(
    sweep: str, title: str, asked: Sequence[tuple[str, str]] = ()
) -> Callable[..., Found]:
    def find(db: duckdb.DuckDBPyConnection) -> Found:
        table = judged(db, sweep)
        text = plain(table)
        if asked:
            text += "\n\n" + pairs(db, sweep, asked)
        return Found(text, forest(table, title))

    return find
