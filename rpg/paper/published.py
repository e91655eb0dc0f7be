"""Published values, one entry per table, row and benchmark."""

import json
import math
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

import pandas


class Entry(NamedTuple):
    """`last` and `best`: accuracies as printed, with four decimals, as means over `problems` and `samples`."""

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
    data = json.loads(resources.files("rpg.paper").joinpath("published.json").read_text("utf-8"))
    return tuple(
        Entry(
            table["table"],
            table["model"],
            table["context"],
            row,
            benchmark,
            data["problems"][benchmark],
            data["samples"],
            last,
            best,
        )
        for table in data["tables"]
        for row, values in table["rows"].items()
        for benchmark, (last, best) in values.items()
    )


def frame() -> pandas.DataFrame:
    """The entries as a frame with the columns of `Entry`."""
    return pandas.DataFrame(published())


def sampling_error(value: float, problems: int, samples: int) -> float:
    """Standard error of a mean@k due to sampling alone, if all problems are equally hard.

    A rough scale, not a bound: problems of unequal difficulty make it smaller, other problems or seeds make it larger.
    """
    return math.sqrt(value * (1 - value) / (problems * samples))


def match(name: str, benchmark: str) -> list[Entry]:
    """Entries of the row called `name` on `benchmark`, ignoring case and punctuation (aime24 is AIME24)."""
    return [
        entry
        for entry in published()
        if (_key(entry.row), _key(entry.benchmark)) == (_key(name), _key(benchmark))
    ]


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9+]", "", name.lower())
