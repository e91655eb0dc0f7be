"""The summary as tables, for the terminal, in Markdown and in LaTeX.

There are two tables: the mean accuracy with its paired test, and last and best per benchmark as
papers print them. A number is bold only if it is the best and better than every other by the paired
test.
"""

import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import pandas
from pylatexenc.latexencode import RULE_DICT, UnicodeToLatexConversionRule, UnicodeToLatexEncoder
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rpg.errors import see, visible
from rpg.report.conclusion import caution_sentence, conclusion
from rpg.report.format import accuracy, amount, p_value, percent, points, with_interval
from rpg.report.measured_rows import SPENT
from rpg.report.selection import MEAN
from rpg.report.spending import Equal
from rpg.report.summary import Summary
from rpg.report.verdicts import NO_VERDICT, REAL, TOO_FEW
from rpg.stats import BETTER, ERROR, WITHIN_NOISE, WORSE

BEST_NOTE = (
    "Best is the maximum over checkpoints, chosen on the same problems, and therefore optimistic."
)
INTERVAL_NOTE = (
    "Intervals are 95 %, over seeds and problems; differences are paired by seed and problem."
)
TEST_NOTE = (
    "The tests of a table are corrected together: if all variants are equal, the table calls one "
    f"of them better or worse in at most about 5 % of sweeps{see('statistics')}. Intervals are "
    "corrected in the same way; a variant is better or worse if the interval of its "
    "difference does not contain zero."
)
UNREAD_NOTE = (
    f"Unread: answers that were found but not understood; they count as wrong{see('grading')}."
)
TOO_FEW_NOTE = "Verdicts need three seeds: two do not show how much seeds differ."
COLLAPSE_NOTE = (
    "Collapsed: the seed lost at least half of the accuracy that the variant's other seeds reach, "
    f"and more than seeds differ otherwise{see('statistics')}. Verdicts include it; another table "
    "has the differences without it."
)
BOLD_NOTE = (
    "Bold: better than every other variant by the same test; if nothing is bold, no variant is "
    "clearly best."
)

POINTS = "Points over baseline"
"""The heading of paired differences."""
WRAPPED = 160  # characters of a line that is as wide as a figure of four panels


class Cell(NamedTuple):
    """A text. It is bold if it is the best of its column and significantly better."""

    text: str
    bold: bool = False


class Grid(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[Cell]]
    key: str = "accuracy"
    """What tells it from the other tables of a sweep, in labels."""


def grid_of(title: str, key: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
    """A table of texts, none of them bold."""
    return Grid(title, [*header], [[Cell(text) for text in row] for row in rows], key)


def main_table(summary: Summary) -> Grid:
    """Mean accuracy (or the only benchmark's): first, last, best, and the difference to the
    baseline."""
    name = summary.headline
    data = by_result(summary, name)
    steps = set(data["first_step"])
    header = [
        "Variant",
        "Seeds",
        f"Step {steps.pop()}" if len(steps) == 1 else "First",
        "Last",
        "Best",
    ]
    unread = bool((data["unread"] > 0).any())
    if unread:
        header.append("Unread")
    compared = bool(data["verdict"].ne("").any())
    if compared:
        header += [POINTS, "p", "Verdict"]
    rows = []
    for row in data.itertuples():
        cells = [Cell(row.label), Cell(str(row.seeds)), Cell(accuracy(row.first))]
        cells.append(Cell(with_interval(row.last, row.low, row.high), row.leads))
        cells.append(Cell(accuracy(row.best)))
        if unread:
            cells.append(Cell(percent(row.unread) if row.unread >= 0 else ""))
        if compared:
            cells += _difference(summary, row, row.difference_low, row.difference_high)
        rows.append(cells)
    return Grid("Mean accuracy" if name == MEAN else f"Accuracy on {name}", header, rows)


def by_result(summary: Summary, benchmark: str) -> pandas.DataFrame:
    """The rows of a benchmark, the highest accuracy at the last checkpoint first."""
    data = summary.table[summary.table["benchmark"] == benchmark]
    return data.sort_values("last", ascending=False, kind="stable")


def variants_by_result(summary: Summary) -> list[str]:
    """The variants with a number, in the order of the main table; those that lack a benchmark
    last."""
    ordered = list(map(str, by_result(summary, summary.headline)["variant"]))
    present = set(summary.table["variant"])
    others = [name for name in summary.variants if name in present and name not in ordered]
    return ordered + others


def collapse_table(summary: Summary) -> Grid | None:
    """The share of collapsed seeds, and the differences with and without them; None if no seed
    collapsed."""
    if not summary.collapses:
        return None
    data = by_result(summary, summary.headline)
    header = ["Variant", "Collapsed", "Share", POINTS, "Verdict", "Without", "Verdict without"]
    rows = []
    for row in data.itertuples():
        gone = row.collapsed.split(", ") if row.collapsed else []
        share = with_interval(len(gone) / row.seeds, row.collapsed_low, row.collapsed_high)
        cells = [row.label, " ".join(["seed", ", ".join(gone)]) if gone else "none", share]
        if row.verdict:
            low = row.difference_low
            high = row.difference_high
            cells += [with_interval(row.difference, low, high, points), row.verdict]
        else:
            cells += ["baseline" if row.variant == summary.baseline else "", ""]
        if row.without_verdict:
            low = row.without_low
            high = row.without_high
            cells += [with_interval(row.without_difference, low, high, points), row.without_verdict]
        else:
            cells += ["", ""]
        rows.append(cells)
    return grid_of("With and without collapsed seeds", "collapsed", header, rows)


def benchmark_table(summary: Summary) -> Grid | None:
    """Last and best of every benchmark; None if there is only one, which the main table covers."""
    if len(summary.benchmarks) < 2:
        return None
    names = [*summary.benchmarks, MEAN]
    header = ["Variant"] + [f"{name} {kind}" for name in names for kind in ("last", "best")]
    columns = []
    shown = variants_by_result(summary)
    for name in names:
        data = summary.table[summary.table["benchmark"] == name].set_index("variant").reindex(shown)
        leads = data["leads"].eq(True).tolist()
        columns.append(
            [Cell(accuracy(value), lead) for value, lead in zip(data["last"], leads, strict=True)]
        )
        columns.append([Cell(accuracy(value)) for value in data["best"]])
    first = [Cell(summary.labels[variant]) for variant in shown]
    rows = [list(cells) for cells in zip(first, *columns, strict=True)]
    return Grid("Accuracy per benchmark", header, rows, "benchmarks")


def spending_table(summary: Summary) -> Grid | None:
    """What each variant had spent at its last checkpoint; None if nobody knows."""
    each = summary.table.drop_duplicates("variant").set_index("variant")
    each = each.loc[variants_by_result(summary)]
    names = [name for name in SPENT if each[name].notna().any()]
    header = ["Variant", "Steps", *(name.capitalize() for name in names)]
    amounts = each[names].map(amount).assign(step=each["step"].map(str), label=each["label"])
    rows = amounts[["label", "step", *names]].to_numpy().tolist()
    return grid_of("Spent, mean over seeds", "spent", header, rows) if names else None


def _difference(summary: Summary, row: Any, low: float, high: float) -> list[Cell]:
    """Difference, p and verdict of a row."""
    if not row.verdict:
        return [Cell("baseline" if row.variant == summary.baseline else ""), Cell(""), Cell("")]
    difference = with_interval(row.difference, low, high, points)
    return [Cell(difference), Cell(p_value(row.p_corrected)), Cell(row.verdict)]


def equal_table(summary: Summary, equal: Equal) -> Grid:
    """Accuracy and differences where all variants have spent the same."""
    header = ["Variant", "Seeds", "Accuracy", POINTS, "p", "Verdict"]
    rows = []
    ordered = equal.table.sort_values("accuracy", ascending=False, kind="stable")
    for row in ordered.itertuples():
        cells = [Cell(row.label), Cell(str(row.seeds)), Cell(accuracy(row.accuracy))]
        rows.append(cells + _difference(summary, row, row.low, row.high))
    title = f"At {amount(equal.budget)} {equal.axis} each, interpolated between checkpoints"
    return Grid(title, header, rows, f"equal-{equal.axis}")


def grids(summary: Summary) -> list[Grid]:
    """All tables, in their order; the accuracies come first."""
    if summary.table.empty:
        return []
    equal = [equal_table(summary, part) for part in summary.equal if part.axis == summary.at]
    candidates = [
        main_table(summary),
        collapse_table(summary),
        *equal,
        benchmark_table(summary),
        spending_table(summary),
    ]
    return [grid for grid in candidates if grid]


def significant(summary: Summary) -> list[str]:
    """The differences that the paired test calls real, for the heading of a figure; empty if
    nothing was tested."""
    data = summary.compared_rows
    data = data[~data["verdict"].isin(NO_VERDICT)].sort_values("difference", ascending=False)
    if data.empty:
        return []
    parts = []
    for verdict in REAL:
        rows = data[data["verdict"] == verdict].itertuples()
        names = [f"{row.label} {points(row.difference)} points" for row in rows]
        if names:
            parts.append(f"{verdict}: {', '.join(names)}")
    verdicts = "; ".join(parts) or "no difference is significant"
    against = f"Accuracy at the end against {summary.baseline_label}"
    text = f"{against}, paired test with corrected p below 0.05: {verdicts}."
    return [*([summary.spending] if summary.spending else []), *textwrap.wrap(text, WRAPPED)]


def caption(summary: Summary) -> list[str]:
    lines = [BEST_NOTE, INTERVAL_NOTE]
    if summary.caution and not summary.compared_rows.empty:
        lines.insert(0, caution_sentence(summary))
    if summary.collapses:
        lines.append(COLLAPSE_NOTE)
    if (summary.table["unread"] > 0).any():
        lines.append(UNREAD_NOTE)
    if not summary.table["verdict"].isin(["", *NO_VERDICT]).all():
        lines += [TEST_NOTE, BOLD_NOTE]
    if summary.look and (summary.look.number > 1 or summary.look.level < ERROR):
        lines.append(
            f"This is look {summary.look.number} at these differences, with "
            f"{len(summary.look.runs)} finished runs ({summary.look.planned} were planned at "
            f"first). For all looks together to err in at most {percent(ERROR)} of sweeps, new "
            f"verdicts were given at a level of {100 * summary.look.level:.2g} %."
        )
    if not summary.table.empty:
        lines += _measurement(summary)
    return lines


def _measurement(summary: Summary) -> list[str]:
    """How answers were drawn and graded, and what few seeds cannot say."""
    lines = []
    whole = summary.table[summary.table["low"].notna()]  # those that have an interval
    seeds = whole["seeds"].min()
    samples = sorted(set(summary.table["k"]) - {0})
    if samples:
        lines.append(
            f"Accuracy is mean@k with k = {', '.join(map(str, samples))} samples per problem."
        )
    if summary.rules:
        lines.append(
            f"Answers were graded by the rules {' and '.join(summary.rules)}{see('grading')}."
        )
    if len(summary.rules) > 1:
        again = "rpg evaluate --regrade grades samples again"
        lines.append(f"Numbers by different rules cannot be compared: {again}.")
    if seeds == 1:
        lines.append("With one seed, an interval covers the choice of problems, not that of seeds.")
    elif summary.table["verdict"].eq(TOO_FEW).any():
        lines.append(TOO_FEW_NOTE)
    return lines


def terminal(summary: Summary) -> RenderableType:
    """All tables and the notes for a rich console."""
    parts: list[RenderableType] = []
    if summary.table.empty:
        parts.append(
            Text(f"{summary.sweep}: {conclusion(summary)[0].lower()}{conclusion(summary)[1:]}")
        )
    else:
        parts.append(Text(visible(conclusion(summary)), style="bold"))
        for grid in grids(summary):
            parts.append(_rich(grid, summary.sweep))
            if summary.spending and grid.header[-1] == "Verdict" and len(parts) == 2:
                parts.append(Text(summary.spending, style="yellow"))
        parts += [Text(line, style="dim") for line in caption(summary)]
    parts += [Text(visible(f"! {note}"), style="yellow") for note in summary.notes]
    return Group(*parts)


def _joined(grid: Grid) -> tuple[str, list[str], list[list[list[Cell]]]]:
    """Title, header and rows where room is scarce: last and best of a benchmark share a column."""
    if not grid.header[1].endswith(" last"):
        return grid.title, grid.header, [[[cell] for cell in row] for row in grid.rows]
    header = [grid.header[0], *(name.removesuffix(" last") for name in grid.header[1::2])]
    rows = [[[row[0]], *map(list, zip(row[1::2], row[2::2], strict=True))] for row in grid.rows]
    return f"{grid.title} (last / best)", header, rows


def _rich(grid: Grid, sweep: str) -> Table:
    title, header, rows = _joined(grid)
    heading = Text(f"{sweep} · {title}", style="bold")
    table = Table(
        title=heading, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for place, name in enumerate(header):
        justify: Literal["left", "right"] = "left" if place == 0 or name == "Verdict" else "right"
        least = 12 if place == 0 else None
        table.add_column(
            Text(name), justify=justify, no_wrap=place > 0, overflow="fold", min_width=least
        )
    for row in rows:
        table.add_row(
            *(Text(" / ").join(_text(cell) for cell in cells if cell.text) for cells in row)
        )
    return table


def _text(cell: Cell) -> Text:
    colours = {BETTER: "green", WORSE: "red", WITHIN_NOISE: "dim"}
    usual = "bold" if cell.bold else ""
    return Text(visible(cell.text), style=colours.get(cell.text, usual))


def markdown(summary: Summary) -> str:
    """Both tables, captions and notes as Markdown; names are escaped."""
    lines = [f"# {_md(summary.sweep)}", "", *answer(summary), ""]
    for place, grid in enumerate(grids(summary)):
        lines += [f"## {_md(grid.title)}", ""]
        lines += [_md(summary.spending), ""] if summary.spending and not place else []
        lines += [*markdown_grid(grid), ""]
    lines += caption(summary)
    lines += ["", *(f"- {_md(note)}" for note in summary.notes)] if summary.notes else []
    return "\n".join(lines) + "\n"


def answer(summary: Summary) -> list[str]:
    """What the sweep asks, and what it has found, as lines of Markdown."""
    question = [_md(summary.question), ""] if summary.question else []
    return [*question, f"> {_md(conclusion(summary))}"]


def markdown_grid(grid: Grid) -> list[str]:
    rows = [
        [f"**{_md(cell.text)}**" if cell.bold else _md(cell.text) for cell in row]
        for row in grid.rows
    ]
    return [
        "| " + " | ".join(map(_md, grid.header)) + " |",
        "|" + "|".join(["---"] + ["--:"] * (len(grid.header) - 1)) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def latex(summary: Summary, columns: int | None = None) -> str:
    """Both tables for a paper with one or two columns, using booktabs; names are escaped, and no
    word is advice."""
    lines = [PREAMBLE]
    first = ""
    notes = [note.partition("; ")[0] if note == summary.advice else note for note in summary.notes]
    notes = [note.partition("; evaluate every ")[0] for note in notes]
    for grid in grids(summary):
        words = rf"See Table~\ref{{{first}}}."
        if not first:
            words = " ".join([summary.spending, *caption(summary)]).strip()
            words = tex(re.sub(r" \(docs/[^)]*\)|: rpg \w+ [^.]*", "", words))
        lines += latex_table(summary.sweep, grid, words, () if first else notes, columns)
        first = first or latex_label(summary.sweep, grid)
    return "\n".join(lines)


PREAMBLE = r"% In the preamble: \usepackage{array,booktabs,tabularx}"
ROOM = {1: (81,), 2: (51, 106), None: (51, 81)}
LEAST = 16
"""Digits in a column and over two, by the columns of the narrowest papers (None: of either); and in
the first, at least."""


def latex_label(name: str, grid: Grid) -> str:
    return f"tab:{re.sub(r'[^A-Za-z0-9-]+', '-', name)}-{grid.key}"


def latex_table(
    name: str, grid: Grid, words: str = "", notes: Sequence[str] = (), columns: int | None = None
) -> list[str]:
    """The lines of a floating table; `words` of its caption are LaTeX, all else is escaped.

    The first column has what others leave. What is too wide for a column goes over two, or into
    blocks below each other.
    """
    title, header, rows = _joined(grid)
    plain = [[" / ".join(cell.text for cell in cells) for cells in row] for row in rows]
    widths = [max(map(_digits, column)) for column in zip(header, *plain, strict=True)]
    star, blocks = _fitting(widths, columns)
    title = f"{tex(name)}: {tex(title[:1].lower() + title[1:])}"
    anchor = latex_label(name, grid)
    lines = [rf"\begin{{table{star}}}\caption{{{title}. {words}}}\label{{{anchor}}}\smallskip"]
    lines += [r"\fontsize{8}{9.6}\selectfont\setlength{\tabcolsep}{3pt}"]
    for block in blocks:
        kinds = r"@{}>{\raggedright\arraybackslash}X" + "r" * len(block)
        lines += [rf"\begin{{tabularx}}{{\linewidth}}{{{kinds}@{{}}}}", r"\toprule"]
        lines += [" & ".join(tex(header[place]) for place in (0, *block)) + r" \\", r"\midrule"]
        for (label, *_), *others in rows:
            cells = [
                " / ".join(_bold(cell) for cell in others[place - 1] if cell.text)
                for place in block
            ]
            lines += [" & ".join([breakable(label.text), *cells]) + r" \\"]
        lines += [r"\bottomrule", r"\end{tabularx}\par\medskip"]
    if notes:
        lines += [
            r"{\raggedright",
            *(f"{breakable(note.rstrip('.'))}." for note in notes),
            r"\par}",
        ]
    return [*lines, rf"\end{{table{star}}}", ""]


def _fitting(widths: Sequence[float], columns: int | None) -> tuple[str, list[range]]:
    """How columns of these widths fit: the star of a table over two columns, and blocks of all
    columns but the first."""
    count = len(widths) - 1
    for number in range(1, count + 1):
        step = math.ceil(count / number)
        blocks = [range(at, min(at + step, count + 1)) for at in range(1, count + 1, step)]
        widest = LEAST + max(sum(widths[place] for place in block) for block in blocks)
        stars = [
            star for star, room in zip(("", "*"), ROOM[columns], strict=False) if widest <= room
        ]
        if stars:
            break
    return (*stars, "")[0], blocks


def _bold(cell: Cell) -> str:
    return rf"\textbf{{{tex(cell.text)}}}" if cell.bold else tex(cell.text)


def _digits(text: str) -> float:
    """About how many digits are as wide as a cell; what LaTeX lacks is written as its code
    point."""
    capitals, unknown = (len(re.findall(kind, text)) for kind in ("[A-Z]", "[^\x00-\u024f−]"))
    return 1.5 + len(text) + 0.45 * capitals + 8 * unknown


def _md(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>()#|!~$&])", r"\\\1", text.replace("\n", " "))


# An opening bracket after the end of a row would start an option.
_SPECIAL = {
    ord("["): "{[}",
    ord("]"): "{]}",
    ord("|"): r"\textbar{}",
    ord("\n"): " ",
    ord("\t"): " ",
}
_ENCODER = UnicodeToLatexEncoder(
    conversion_rules=[UnicodeToLatexConversionRule(RULE_DICT, _SPECIAL), "defaults"],
    replacement_latex_protection="braces-after-macro",
    unknown_char_policy=lambda character: f"{{[}}U+{ord(character):04X}{{]}}",
    unknown_char_warning=False,
)


def tex(text: str) -> str:
    """Text for any LaTeX; characters that it lacks become their code points."""
    return str(_ENCODER.unicode_to_latex(text))


_BREAKS = r"(?<=[^\w\s-])(?=\w)|(?<=_)|(?<=[^\x00-\u024f])|(?<=[0-9a-f]{12})(?=[0-9a-f]{4})"


def breakable(text: str) -> str:
    """The same with places where a line may end: in names of settings and in digests."""
    return r"\allowbreak{}".join(map(tex, re.split(_BREAKS, text)))
