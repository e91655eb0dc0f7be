"""A comparison in sentences and tables, for the terminal and for the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rpg import stats
from rpg.errors import plural
from rpg.interop.compare.judging import Comparison, Difference, Level, Verdict

METHOD = (
    "Differences are paired by problem. Intervals hold for all differences of a table together, "
    "and a verdict says on which side of zero they are: if all models are equal, one is called "
    "better or worse in about 5 % of comparisons."
)

SMALL = 0.0001
"""p-values below are not told apart."""


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
        f"{each.model} against {first}{on}: {_points(each.difference)} points; "
        f"{_said(each.others, stats.OTHERS)}; {_said(each.these, stats.THESE)}."
        for each in comparison.differences
        if each.benchmark == comparison.headline
    ]


def _said(verdict: Verdict, scope: str) -> str:
    if math.isnan(verdict.p):
        return f"{scope}: {verdict.word}"
    sign = "p" if verdict.p < SMALL else "p ="
    return f"{scope}: {verdict.word} {_interval(verdict)}, {sign} {_p(verdict.p)}"


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
    return [f"{mean.mean:.3f}", f"[{mean.low:.3f}, {mean.high:.3f}]"]


def _chances(level: Level, sizes: Sequence[int]) -> list[str]:
    return [f"{level.pass_at[k].mean:.3f}" if k in level.pass_at else "" for k in sizes]


def _differences(comparison: Comparison) -> Grid:
    header = ["Model", "Benchmark", "Difference"]
    for scope in (stats.OTHERS, stats.THESE):
        header += [scope[:1].upper() + scope[1:], "95 %", "p", "finds"]
    rows = [
        [each.model, each.benchmark, _points(each.difference), *_cells(each)]
        for each in comparison.differences
    ]
    return Grid(f"Points more than {comparison.models[0]}", header, rows)


def _cells(difference: Difference) -> list[str]:
    cells = []
    for verdict in (difference.others, difference.these):
        p = "" if math.isnan(verdict.p) else _p(verdict.p)
        found = "" if math.isnan(verdict.smallest) else f"{100 * verdict.smallest:.1f}"
        cells += [verdict.word, _interval(verdict), p, found]
    return cells


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}".replace("-", "−")


def _interval(verdict: Verdict) -> str:
    if math.isnan(verdict.low):
        return ""
    return f"[{_points(verdict.low)}, {_points(verdict.high)}]"


def _p(p: float) -> str:
    return f"< {SMALL:.4f}" if p < SMALL else f"{p:.2g}"
