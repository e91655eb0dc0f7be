"""Rows of JSON-lines and Parquet files, with the place of each row for messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rpg.config.errors import nearest
from rpg.tasks.problems import DataError


def read_rows(path: Path, columns: dict[str, bool] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, row) for each row of a JSON-lines or Parquet file; `where` is `file: line 3` for people.

    Of a Parquet file only `columns` (name -> whether it must be there) are read; all where it is None.

    Raises:
        DataError: the file cannot be read, or is neither.
    """
    try:
        with open(path, "rb") as handle:
            magic = handle.read(4)
        yield from _parquet_rows(path, columns) if magic == b"PAR1" else _json_rows(path)
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


def _parquet_rows(path: Path, wanted: dict[str, bool] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        present = file.schema_arrow.names
        for name, required in (wanted or {}).items():
            if required and name not in present:
                raise DataError(f"{path}: {missing(name, present)}")
        columns = None if wanted is None else [name for name in wanted if name in present]
        number = 0
        for batch in file.iter_batches(columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error


def missing(field: str, present) -> str:
    """A sentence about a column that is not among those `present`."""
    present = [str(name) for name in present]
    return (
        f"field {field} is missing{nearest(field, present) or '.'} Found: {', '.join(present) or 'nothing'}"
    )
