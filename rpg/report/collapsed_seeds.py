"""Seeds that ended far below their siblings: named in a sweep's table, and compared without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from rpg import stats
from rpg.report import format as written
from rpg.report import problem_scores, verdicts
from rpg.report.problem_scores import Pairs, ProblemScores
from rpg.report.selection import MEAN, Selection


@dataclass(frozen=True)
class Without:
    """What a comparison without collapsed seeds needs."""

    pairs: Pairs
    collapses: Sequence[stats.Collapse]
    level: float


def found(selection: Selection, problems: ProblemScores) -> list[stats.Collapse]:
    """Collapsed seeds, by what variants are judged by: the mean over benchmarks."""
    runs = {
        variant: problem_scores.at_step(of_variant, step)
        for variant, (step, of_variant) in selection.chosen.items()
    }
    return stats.collapsed(
        problem_scores.seed_accuracies(problems, runs, selection.headline_benchmarks)
    )


def add(
    table: pandas.DataFrame,
    selection: Selection,
    problems: ProblemScores,
    collapses: Sequence[stats.Collapse],
) -> None:
    """Fill in the accuracy of every seed, and which of them collapsed."""
    seeds: dict[str, list[int]] = {}
    for each in collapses:
        seeds.setdefault(each.variant, []).append(each.seed)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("seed_accuracies", "collapsed", "collapsed_low", "collapsed_high")
    }
    for variant, benchmark in zip(table["variant"], table["benchmark"], strict=True):
        step, runs = selection.chosen[variant]
        of_variant = {variant: problem_scores.at_step(runs, step)}
        parts = selection.parts[benchmark]
        accuracies = problem_scores.seed_accuracies(problems, of_variant, parts)[variant]
        each_seed = [
            f"{seed}: {written.accuracy(value)}" for seed, value in sorted(accuracies.items())
        ]
        gone = seeds.get(variant, [])
        low, high = stats.share_collapsed(len(gone), len(runs))
        columns["seed_accuracies"].append(", ".join(each_seed))
        columns["collapsed"].append(", ".join(map(str, gone)))
        columns["collapsed_low"].append(low)
        columns["collapsed_high"].append(high)
    # Whole columns at once: pandas takes milliseconds to set a single cell.
    for name, values in columns.items():
        table[name] = values


def add_without(
    table: pandas.DataFrame,
    selection: Selection,
    problems: ProblemScores,
    parts: Mapping[str, Sequence[str]],
    without: Without,
) -> None:
    """Fill in the differences without collapsed seeds, where there are any."""
    table["without_verdict"] = ""
    if not without.collapses or selection.baseline is None:
        return
    pairs = problem_scores.without(without.pairs, selection.baseline, without.collapses)
    for of_mean in (True, False):
        family = verdicts.tested_together(parts, of_mean)
        results = verdicts.compare(problems, pairs, family, without.level)
        for (variant, benchmark), result in results.items():
            here = (table["variant"] == variant) & (table["benchmark"] == benchmark)
            table.loc[here, "without_difference"] = result.difference
            table.loc[here, "without_low"] = result.low
            table.loc[here, "without_high"] = result.high
            table.loc[here, "without_verdict"] = result.verdict


def notes(
    table: pandas.DataFrame, selection: Selection, collapses: Sequence[stats.Collapse]
) -> list[str]:
    """A line for each collapsed seed, and one for each comparison that is another without them."""
    lines = []
    for each in collapses:
        own = written.accuracy(each.accuracy)
        others = written.accuracy(each.siblings)
        lines.append(
            f"{selection.labels[each.variant]}: seed {each.seed} collapsed: {own}, where "
            f"the other seeds reach {others}"
        )
    if not collapses:
        return []
    headline = MEAN if MEAN in selection.parts else selection.headline_benchmarks[0]
    compared = table[(table["benchmark"] == headline) & (table["without_verdict"] != "")]
    for row in compared.itertuples():
        bounds = written.interval(row.without_low, row.without_high, written.points)
        difference = f"{written.points(row.without_difference)} points {bounds}".rstrip()
        lines.append(f"{row.label} without collapsed seeds: {difference}, {row.without_verdict}")
    return lines
