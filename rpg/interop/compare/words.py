"""A comparison in sentences and tables, for the terminal and for the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rpg import stats
from rpg.errors import plural
from rpg.interop.compare.judging import Comparison, Difference, Level, Verdict
from rpg.report.format import (
    accuracy,
    interval,
    p_sentence,
    p_value,
    points,
    size_in_points,
)

METHOD = (
    "Differences are paired by problem. The intervals of a table are corrected together: if all "
    "models are equal, one is called better or worse in about 5 % of comparisons. A model is "
    "better or worse if the interval of its difference does not contain zero."
)


@dataclass(frozen=True)
class Grid:
    """A table of texts."""

    title: str
    header: list[str]
    rows: list[list[str]]


def conclusion(comparison: Comparison) -> list[str]:
    """A sentence for each model, about the headline."""
    first = comparison.models[0]
    on = ""
    if len(comparison.benchmarks) > 1:
        on = f" on the mean of {plural(len(comparison.benchmarks), 'benchmark')}"
    return [
        f"{each.model} against {first}{on}: {points(each.difference)} points; "
        f"{_said(each.others, stats.OTHERS)}; {_said(each.these, stats.THESE)}."
        for each in comparison.differences
        if each.benchmark == comparison.headline
    ]


def _said(verdict: Verdict, scope: str) -> str:
    if math.isnan(verdict.p):
        return f"{scope}: {verdict.word}"
    bounds = interval(verdict.low, verdict.high, points)
    return f"{scope}: {verdict.word} {bounds}, {p_sentence(verdict.p)}"


def grids(comparison: Comparison) -> list[Grid]:
    return [_levels(comparison), _differences(comparison)]


def _levels(comparison: Comparison) -> Grid:
    sizes = sorted({k for each in comparison.levels for k in each.pass_at})
    k = comparison.samples
    header = ["Model", "Benchmark", f"mean@{k}", "95 %", *(f"pass@{size}" for size in sizes)]
    rows = [
        [each.model, each.benchmark, *_estimate(each), *_chances(each, sizes)]
        for each in comparison.levels
    ]
    return Grid("Scores", header, rows)


def _estimate(level: Level) -> list[str]:
    mean = level.mean
    return [accuracy(mean.mean), interval(mean.low, mean.high)]


def _chances(level: Level, sizes: Sequence[int]) -> list[str]:
    return [accuracy(level.pass_at[k].mean) if k in level.pass_at else "" for k in sizes]


def _differences(comparison: Comparison) -> Grid:
    header = ["Model", "Benchmark", "Difference"]
    for scope in (stats.OTHERS, stats.THESE):
        header += [scope[:1].upper() + scope[1:], "95 %", "p", "finds"]
    rows = [
        [each.model, each.benchmark, points(each.difference), *_cells(each)]
        for each in comparison.differences
    ]
    return Grid(f"Points above {comparison.models[0]}", header, rows)


def _cells(difference: Difference) -> list[str]:
    cells = []
    for verdict in (difference.others, difference.these):
        bounds = interval(verdict.low, verdict.high, points)
        cells += [verdict.word, bounds, p_value(verdict.p), size_in_points(verdict.smallest)]
    return cells
