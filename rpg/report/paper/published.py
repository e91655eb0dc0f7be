"""Published values, one entry per table, row and benchmark; and as tables for the terminal."""

import json
import math
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

import pandas
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


class Entry(NamedTuple):
    """`last` and `best`: accuracies as printed, with four decimals, as means over `problems` and
    `samples`."""

    table: str
    model: str
    context: str
    row: str
    benchmark: str
    problems: int
    samples: int
    last: float
    best: float


@cache
def published() -> tuple[Entry, ...]:
    """All entries in the order of the paper."""
    data = json.loads(
        resources.files("rpg.report.paper").joinpath("published.json").read_text("utf-8")
    )
    return tuple(
        Entry(*where, row, benchmark, data["problems"][benchmark], data["samples"], last, best)
        for table in data["tables"]
        for where in [(table["table"], table["model"], table["context"])]
        for row, values in table["rows"].items()
        for benchmark, (last, best) in values.items()
    )


def frame() -> pandas.DataFrame:
    """The entries as a frame with the columns of `Entry`."""
    return pandas.DataFrame(published())


def sampling_error(value: float, problems: int, samples: int) -> float:
    """Standard error of a mean@k due to sampling alone, if all problems are equally hard.

    A rough scale, not a bound: problems of unequal difficulty make it smaller, other problems or
    seeds make it larger.
    """
    return math.sqrt(value * (1 - value) / (problems * samples))


def match(name: str, benchmark: str) -> list[Entry]:
    """Entries of the row called `name` on `benchmark`, ignoring case and punctuation (aime24 is
    AIME24)."""
    sought = _key(name), _key(benchmark)
    return [entry for entry in published() if (_key(entry.row), _key(entry.benchmark)) == sought]


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9+]", "", name.lower())


def tables() -> RenderableType:
    """Every table as printed, with the error due to sampling alone."""
    entries = published()
    parts = list[RenderableType]()
    for name in dict.fromkeys(entry.table for entry in entries):
        of_table = [entry for entry in entries if entry.table == name]
        heading = f"{name}: {of_table[0].model}, {of_table[0].context} context; last / best"
        table = Table(title=Text(heading, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("")
        benchmarks = list(dict.fromkeys(entry.benchmark for entry in of_table))
        for benchmark in benchmarks:
            table.add_column(benchmark, justify="right")
        for row in dict.fromkeys(entry.row for entry in of_table):
            cells = {entry.benchmark: entry for entry in of_table if entry.row == row}
            table.add_row(
                row, *(f"{cells[name].last:.4f} / {cells[name].best:.4f}" for name in benchmarks)
            )
        parts.append(table)
    error = sampling_error(1 / 3, 30, 32)
    note = (
        "One seed each. Sampling alone moves a Mean@32 of 1/3 over 30 problems by about "
        f"{error:.3f} "
        "(one standard error); other problems and seeds move it further."
    )
    return Group(*parts, Text(note, style="dim"))
