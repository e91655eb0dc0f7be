"""A set of nights as the parts of a page: what moved most, the calendar, the numbers and their
bands."""

from collections.abc import Sequence
from typing import Any

from rpg.report.exports import grid_of_frame
from rpg.report.night_charts import (
    Change,
    Night,
    by_movement,
    calendar,
    called,
    chart,
    headline,
    row,
    sentences,
    table,
)
from rpg.report.nightly_bands import judge
from rpg.report.run_digests import reference
from rpg.report.sweep_report import Section
from rpg.report.tables import Grid, grid_of
from rpg.report.theme import specification, themed

DRAWN = 12
"""Numbers with a chart: those that moved most."""


def night_sections(nights: Sequence[Night]) -> list[Section]:
    """The newest night, what moved most in it, all of its numbers, and the nights before."""
    newest = nights[-1]
    numbers = judge(newest, nights[:-1])[0] if "digests" in newest else []
    moved = by_movement(numbers, reference(nights[:-1]))
    names = [change.number.name for change in moved[:DRAWN]]
    drawn = [_drawn(called(name), chart(name, nights, numbers)) for name in names]
    first = Section(
        "",
        [headline(newest, numbers), *sentences(newest, moved)],
        charts=[_drawn("Nights", calendar(nights)), *drawn],
    )
    grids = [grid_of_frame("Nights", table(nights))]
    if moved:
        grids.insert(0, _numbers(moved))
    return [first, Section("Tables", grids=grids)]


def _drawn(title: str, picture: Any) -> tuple[str, str, dict[str, Any]]:
    return title, title, specification(themed(picture))


def _numbers(moved: Sequence[Change]) -> Grid:
    rows = [_texts(change) for change in moved]
    texts = [list(each.values()) for each in rows]
    return grid_of("Numbers, the largest change first", "numbers", list(rows[0]), texts)


def _texts(change: Change) -> dict[str, str]:
    """Its row, each quantity written as elsewhere."""
    number = change.number
    return row(change) | {
        "before": "" if change.before is None else number.text(change.before),
        "tonight": number.shown,
        "change": "" if change.difference is None else number.change(change.difference),
    }
