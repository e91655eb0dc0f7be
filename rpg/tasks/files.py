"""Problems of a user's own: JSON-lines or Parquet files with the columns `prompt`, `answer` (and `demonstration`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rpg.config.errors import nearest
from rpg.config.spec import FileTask
from rpg.tasks.problems import DataError, Problem, Splits

_MAX_CHARACTERS = 1_000_000
"""Of one value: longer ones are a wrong file rather than a problem."""


def read(task: FileTask) -> Splits:
    """All files of a task, checked.

    Raises:
        DataError: a file is missing, empty or unreadable; a column is missing; a value is no text; a problem occurs
            twice in a file, or in a benchmark and in the training file. The message names file, line and field.
    """
    train = _read_file(task, task.train, "train")
    seen = {problem.text: problem for problem in train}
    benchmarks = {}
    for name, path in task.benchmarks.items():
        benchmarks[name] = _read_file(task, path, name)
        for line, problem in enumerate(benchmarks[name], 1):
            if problem.text in seen:
                twin = seen[problem.text].id
                raise DataError(
                    f"{path}: problem {line}: field prompt: {_short(problem.text)} is also in the training file "
                    f"{task.train} ({twin}): a benchmark must be held out"
                )
    return Splits(train, benchmarks)


def _read_file(task: FileTask, path: Path, group: str) -> list[Problem]:
    problems: list[Problem] = []
    first: dict[str, str] = {}
    for where, row in _rows(Path(path)):
        text = _text(row, "prompt", where)
        if text in first:
            raise DataError(f"{where}: field prompt: {_short(text)} is the same problem as {first[text]}")
        first[text] = where.rpartition(": ")[2]
        problems.append(
            Problem(
                id=f"{group}-{len(problems) + 1:05d}",
                text=text,
                prompt=task.template.replace("{prompt}", text),
                answer=_text(row, "answer", where).strip(),
                group=group,
                demonstration=_text(row, "demonstration", where)
                if row.get("demonstration") is not None
                else None,
            )
        )
    if not problems:
        raise DataError(
            f"{path}: the file holds no problem; expected at least one row with prompt and answer"
        )
    return problems


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, row) for each row; `where` is `file: line 3` for people."""
    try:
        with open(path, "rb") as handle:
            magic = handle.read(4)
        yield from _parquet_rows(path) if magic == b"PAR1" else _json_rows(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with open(path, "rb") as handle:
        for number, raw in enumerate(handle, 1):
            where = f"{path}: line {number}"
            if not raw.strip():
                continue
            try:
                row = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                raise DataError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from error
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"{where}: not JSON ({error}); expected one object per line, e.g. "
                    '{"prompt": "1+1", "answer": "2"}'
                ) from error
            if not isinstance(row, dict):
                raise DataError(f"{where}: expected a JSON object, found a {type(row).__name__}")
            yield where, row


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        columns = [name for name in ("prompt", "answer", "demonstration") if name in file.schema_arrow.names]
        for name in ("prompt", "answer"):
            if name not in columns:
                raise DataError(f"{path}: {_missing(name, file.schema_arrow.names)}")
        number = 0
        for batch in file.iter_batches(columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error


def _text(row: dict[str, Any], field: str, where: str) -> str:
    if field not in row:
        raise DataError(f"{where}: {_missing(field, row)}")
    value = row[field]
    if field == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # a number is what people write for an answer
    if not isinstance(value, str):
        raise DataError(f"{where}: field {field}: expected text, got {_short(value)}")
    if not value.strip():
        raise DataError(f"{where}: field {field}: the text is empty")
    if len(value) > _MAX_CHARACTERS:
        raise DataError(f"{where}: field {field}: {len(value)} characters, more than {_MAX_CHARACTERS}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can smuggle in half a surrogate pair
        raise DataError(f"{where}: field {field}: not valid Unicode ({error.reason})") from error
    return value


def _missing(field: str, present) -> str:
    present = [str(name) for name in present]
    return (
        f"field {field} is missing{nearest(field, present) or '.'} Found: {', '.join(present) or 'nothing'}"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
