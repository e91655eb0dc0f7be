"""The summary as tables: for the terminal, in Markdown, LaTeX and CSV.

Two tables: what happened to the mean accuracy and whether it is real, and last/best per benchmark as papers
print it (best in bold, second underlined).
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rpg.report.summary import MEAN, Summary

BEST_NOTE = "Best is the maximum over checkpoints, chosen on the same problems, and therefore optimistic."
INTERVAL_NOTE = "Intervals are 95 %, over seeds and problems; differences are paired by seed and problem."
TEST_NOTE = (
    "Verdict: t test of the paired difference with seeds and problems as crossed random effects; "
    "p (not the interval) is corrected by Holm for the number of variants, and above 0.05 it is within noise."
)


class Cell(NamedTuple):
    """A text, and its rank in its column: 1 is set in bold, 2 underlined, 0 plain."""

    text: str
    rank: int = 0


class Grid(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[Cell]]


def main_table(summary: Summary) -> Grid:
    """Mean accuracy (or the only benchmark's): first, last, best, and the difference to the baseline."""
    name = headline(summary)
    data = summary.table[summary.table["benchmark"] == name]
    header = ["Variant", "Seeds", first_title(data), "Last", "Best"]
    compared = bool(data["verdict"].ne("").any())
    if compared:
        header += ["Last − baseline", "p", "Verdict"]
    last, best = ranks(data["last"]), ranks(data["best"])
    rows = []
    for place, row in enumerate(data.itertuples()):
        cells = [Cell(row.label), Cell(str(row.seeds)), Cell(number(row.first))]
        cells += [
            Cell(plus_minus(row.last, row.low, row.high), last[place]),
            Cell(number(row.best), best[place]),
        ]
        if compared and row.verdict:
            cells.append(Cell(plus_minus(row.difference, row.difference_low, row.difference_high, signed)))
            cells += [Cell(p_value(row.p_corrected)), Cell(row.verdict)]
        elif compared:
            cells += [Cell("baseline" if row.variant == summary.baseline else ""), Cell(""), Cell("")]
        rows.append(cells)
    return Grid("Mean accuracy" if name == MEAN else f"Accuracy on {name}", header, rows)


def benchmark_table(summary: Summary) -> Grid | None:
    """Last and best of every benchmark; None when there is only one (the main table says it all)."""
    if len(summary.benchmarks) < 2:
        return None
    names = [*summary.benchmarks, MEAN]
    header = ["Variant"] + [f"{name} {kind}" for name in names for kind in ("last", "best")]
    columns = []
    shown = [variant for variant in summary.variants if (summary.table["variant"] == variant).any()]
    for name in names:
        data = summary.table[summary.table["benchmark"] == name].set_index("variant").reindex(shown)
        for kind in ("last", "best"):
            order = ranks(data[kind])
            columns.append([Cell(number(value), order[place]) for place, value in enumerate(data[kind])])
    rows = [
        [Cell(summary.labels[variant]), *cells]
        for variant, cells in zip(shown, zip(*columns, strict=True), strict=True)
    ]
    return Grid("Accuracy per benchmark", header, rows)


def headline(summary: Summary) -> str:
    """The benchmark that variants are judged by: their mean, or the only one there is."""
    return MEAN if len(summary.benchmarks) > 1 else (summary.benchmarks or [MEAN])[0]


def first_title(data: pandas.DataFrame) -> str:
    steps = set(data["first_step"])
    return f"Step {steps.pop()}" if len(steps) == 1 else "First"


def caption(summary: Summary) -> list[str]:
    """What a reader must know to read the tables."""
    lines = [BEST_NOTE, INTERVAL_NOTE]
    if summary.table["verdict"].ne("").any():
        lines.append(TEST_NOTE)
    if not summary.table.empty:
        seeds, samples = summary.table["seeds"].min(), sorted(set(summary.table["k"]) - {0})
        if samples:
            lines.append(f"Accuracy is mean@k with k = {', '.join(map(str, samples))} samples per problem.")
        if summary.rules:
            lines.append(f"Answers were graded by the rules {' and '.join(summary.rules)} (docs/grading.md).")
        if len(summary.rules) > 1:
            lines.append(
                "Numbers by different rules cannot be compared: rpg evaluate --regrade grades samples again."
            )
        if seeds == 1:
            lines.append("With one seed an interval speaks about other problems, not about other seeds.")
        elif seeds == 2:
            lines.append("Two seeds say little about how much seeds differ: believe three or more.")
    return lines


WIDE = 112
"""Columns a terminal needs for the whole table; below it, seeds and p are left to the files."""


def terminal(summary: Summary, width: int = WIDE) -> RenderableType:
    """Both tables and the notes for a rich console of `width` columns."""
    parts: list[RenderableType] = []
    if summary.table.empty:
        parts.append(Text(f"{summary.sweep}: no checkpoint has been evaluated on all benchmarks yet"))
    else:
        grids = [main_table(summary), benchmark_table(summary)]
        if width < WIDE:
            grids[0] = _without(grids[0], ("Seeds", "p"))
        parts += [_rich(grid, summary.sweep) for grid in grids if grid]
        parts += [Text(line, style="dim") for line in caption(summary)]
    parts += [Text(f"! {note}", style="yellow") for note in summary.notes]
    return Group(*parts)


def _without(grid: Grid, names: Sequence[str]) -> Grid:
    kept = [place for place, name in enumerate(grid.header) if name not in names]
    return grid._replace(
        header=[grid.header[i] for i in kept], rows=[[row[i] for i in kept] for row in grid.rows]
    )


def _rich(grid: Grid, sweep: str) -> Table:
    header: list[str] = grid.header
    rows = [[[cell] for cell in row] for row in grid.rows]
    title = f"{sweep} · {grid.title}"
    if header[1].endswith(" last"):  # last and best of a benchmark share a column: terminals are narrow
        header = [header[0], *(name.removesuffix(" last") for name in header[1::2])]
        rows = [[[row[0]], *zip(row[1::2], row[2::2], strict=True)] for row in grid.rows]
        title += " (last / best)"
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for place, name in enumerate(header):
        wordy = place == 0 or name == "Verdict"
        table.add_column(
            Text(name),
            justify="left" if wordy else "right",
            no_wrap=place > 0,
            overflow="fold",
            min_width=12 if place == 0 else None,
        )
    for row in rows:
        table.add_row(
            *(Text(" / ").join(Text(cell.text, style=_style(cell)) for cell in cells) for cells in row)
        )
    return table


def _style(cell: Cell) -> str:
    colours = {"better": "green", "worse": "red", "within noise": "dim"}
    return colours.get(cell.text, {0: "", 1: "bold", 2: "underline"}[cell.rank])


def markdown(summary: Summary) -> str:
    """Both tables, captions and notes as Markdown; names are escaped."""
    lines = [f"# {_md(summary.sweep)}", ""]
    for grid in (main_table(summary), benchmark_table(summary)) if not summary.table.empty else ():
        if grid:
            lines += [f"## {_md(grid.title)}", "", "| " + " | ".join(map(_md, grid.header)) + " |"]
            lines.append("|" + "|".join(["---"] + ["--:"] * (len(grid.header) - 1)) + "|")
            marks = {0: "{}", 1: "**{}**", 2: "<u>{}</u>"}
            for row in grid.rows:
                lines.append(
                    "| " + " | ".join(marks[cell.rank].format(_md(cell.text)) for cell in row) + " |"
                )
            lines.append("")
    lines += caption(summary)
    lines += ["", *(f"- {_md(note)}" for note in summary.notes)] if summary.notes else []
    return "\n".join(lines) + "\n"


def latex(summary: Summary) -> str:
    """Both tables for a paper, with the booktabs package; names are escaped."""
    lines = ["% needs \\usepackage{booktabs}"]
    marks = {0: "{}", 1: "\\textbf{{{}}}", 2: "\\underline{{{}}}"}
    for grid in (main_table(summary), benchmark_table(summary)) if not summary.table.empty else ():
        if grid:
            text = f"{summary.sweep}: {grid.title.lower()}. {' '.join(caption(summary))}"
            lines += [r"\begin{table}", r"\centering", rf"\caption{{{_tex(text)}}}"]
            lines += [rf"\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}", r"\toprule"]
            lines += [" & ".join(map(_tex, grid.header)) + r" \\", r"\midrule"]
            for row in grid.rows:
                lines.append(" & ".join(marks[cell.rank].format(_tex(cell.text)) for cell in row) + r" \\")
            lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)


def ranks(values: pandas.Series) -> list[int]:
    """1 for the largest values, 2 for the second largest, 0 for the rest, as the table prints them."""
    shown = [number(value) for value in values]
    order = sorted({text for text in shown if text}, key=float, reverse=True)
    return [order.index(text) + 1 if text in order[:2] and len(shown) > 1 else 0 for text in shown]


def number(value: float) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.3f}"


def signed(value: float) -> str:
    return "" if value is None or math.isnan(value) else f"{value:+.3f}".replace("-", "−")


def plus_minus(value: float, low: float, high: float, show: Callable[[float], str] = number) -> str:
    """A value and half its interval, or [low, high] where its halves differ (the interval of a share ends at 0 or 1)."""
    if math.isnan(low) or math.isnan(high):
        return show(value)
    below, above = number(value - low), number(high - value)
    return f"{show(value)} ± {below}" if below == above else f"{show(value)} [{show(low)}, {show(high)}]"


def p_value(value: float) -> str:
    return "" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _md(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>()#|!~$&])", r"\\\1", text.replace("\n", " "))


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "…": r"\dots{}",
}
_TEX |= (
    {"±": r"$\pm$"}
    | {character: f"\\{character}" for character in "&%$#_{}"}
    | {"<": "$<$", ">": "$>$", "\n": " "}
)


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)
