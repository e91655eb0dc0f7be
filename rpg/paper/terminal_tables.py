"""The published tables and the lint's findings for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rpg.paper.lint import Finding
from rpg.paper.published import Entry, published, sampling_error


def tables(entries: Sequence[Entry] | None = None) -> RenderableType:
    """Every table as printed, with the error due to sampling alone."""
    entries = published() if entries is None else entries
    parts: list[RenderableType] = []
    for name in dict.fromkeys(entry.table for entry in entries):
        mine = [entry for entry in entries if entry.table == name]
        heading = f"{name}: {mine[0].model}, {mine[0].context} context; last / best"
        table = Table(title=Text(heading, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("")
        benchmarks = list(dict.fromkeys(entry.benchmark for entry in mine))
        for benchmark in benchmarks:
            table.add_column(benchmark, justify="right")
        for row in dict.fromkeys(entry.row for entry in mine):
            cells = {entry.benchmark: entry for entry in mine if entry.row == row}
            table.add_row(row, *(f"{cells[name].last:.4f} / {cells[name].best:.4f}" for name in benchmarks))
        parts.append(table)
    error = sampling_error(1 / 3, 30, 32)
    parts.append(
        Text(
            f"One seed each. Sampling alone moves a Mean@32 of 1/3 over 30 problems by about ±{error:.3f} "
            "(one standard error); other problems and seeds move it further.",
            style="dim",
        )
    )
    return Group(*parts)


def findings(results: Sequence[Finding]) -> RenderableType:
    """One line per finding."""
    if not results:
        return Text("no findings")
    return Group(
        *(Text(f"{f.table}, {f.row}, {f.benchmark} {f.column}: {f.rule}: {f.message}") for f in results)
    )
