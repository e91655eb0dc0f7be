"""`--json`: what a command prints, as one JSON object on standard output.

Every command has the option. The object has the same keys for all of them (docs/results.md); a
command adds what it knows as values to `result` by calling `result`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

SCHEMA = "rpg-result-1"
"""Named in each object; another number where a key changes its meaning or goes."""
WITHOUT_RESULT = ("dashboard", "serve", "worker")
"""Commands that run until they are stopped."""


@dataclass
class Record:
    """What a command has printed so far, and the values it gave."""

    result: dict[str, Any] = field(default_factory=dict)
    tables: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def add(self, renderable: object) -> None:
        """Take note of what is printed: a table by its cells, anything else by its lines."""
        if isinstance(renderable, Table):
            self.tables.append(_cells(renderable))
        elif isinstance(renderable, Group):
            for part in renderable.renderables:
                self.add(part)
        else:
            self.lines += [line.rstrip() for line in _text(renderable).splitlines()]

    def object(self, command: str, exit_code: int) -> dict[str, Any]:
        """The JSON object of a command that has ended."""
        return {
            "schema": SCHEMA,
            "command": command,
            "exit_code": exit_code,
            "result": _plain(self.result),
            "tables": self.tables,
            "lines": self.lines,
            "messages": self.messages,
        }


_record: Record | None = None


def record() -> Record | None:
    """What is being recorded; None without --json."""
    return _record


def result(**values: Any) -> None:
    """Give values of a command's result to programs; without --json this does nothing."""
    if _record is not None:
        _record.result |= values


@contextlib.contextmanager
def recorded() -> Iterator[Record]:
    """Record what is printed instead of printing it; messages still go to standard error."""
    global _record
    made = Record()
    _record = made
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield made
    finally:
        _record = None
        made.lines += printed.getvalue().splitlines()


class RecordingConsole(Console):
    """A console whose output is recorded where there is a record."""

    is_for_messages = False

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, or take note of, what is given."""
        made = record()
        if made is None:
            super().print(*objects, **options)
            return
        if options.get("markup") is False:
            objects = tuple(Text(each) if isinstance(each, str) else each for each in objects)
        if self.is_for_messages:
            made.messages += " ".join(_text(each) for each in objects).splitlines()
            super().print(*objects, **options)
        else:
            for each in objects:
                made.add(each)


def with_json(name: str, callback: Callable[..., Any], declared: object) -> Callable[..., Any]:
    """A command with the option --json, unless it has its own or prints no result; `declared` is
    the option's annotation."""
    signature = inspect.signature(callback, eval_str=True)
    if "as_json" in signature.parameters or name in WITHOUT_RESULT:
        return callback

    @functools.wraps(callback)
    def command(*arguments: Any, as_json: bool = False, **options: Any) -> Any:
        if not as_json:
            return callback(*arguments, **options)
        with recorded() as made:
            code = callback(*arguments, **options) or 0
        json.dump(made.object(name, code), sys.stdout, indent=1, ensure_ascii=False)
        print()
        return code

    option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False)
    option = option.replace(annotation=declared)
    parameters = [*signature.parameters.values(), option]
    command.__dict__["__signature__"] = signature.replace(parameters=parameters)
    command.__annotations__ = {**callback.__annotations__, "as_json": declared}
    return command


def _cells(table: Table) -> dict[str, Any]:
    """A table's title, headings and rows, as text."""
    headings = [_text(column.header) for column in table.columns]
    cells = [[_text(cell) for cell in column.cells] for column in table.columns]
    rows = [list(row) for row in zip(*cells, strict=True)]
    title = _text(table.title) if table.title else ""
    return {"title": title, "columns": headings, "rows": rows}


def _text(renderable: object) -> str:
    """What is printed, without style."""
    if isinstance(renderable, Text):
        return renderable.plain
    if isinstance(renderable, str):
        return Text.from_markup(renderable).plain
    console = Console(file=io.StringIO(), width=10_000)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers that are not finite are null."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path | date):
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "item"):  # a number of numpy's
        return _plain(value.item())
    return str(value)
