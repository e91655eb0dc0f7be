"""Rows of JSON-lines, Parquet and CSV files and of data sets on the hub, with the place of each row for messages."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rpg.config.errors import nearest
from rpg.tasks.problems import DataError


def read_rows(path: Path, columns: dict[str, bool] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, row) for each row of a JSON-lines, Parquet or CSV file (by its ending); `where` is `file: line 3` for people.

    Of a Parquet file only `columns` (name -> whether it must be there) are read; all where it is None.

    Raises:
        DataError: the file cannot be read or parsed.
    """
    try:
        with open(path, "rb") as handle:
            magic = handle.read(4)
        if magic == b"PAR1":
            yield from _parquet_rows(path, columns)
        else:
            yield from _csv_rows(path) if path.suffix.lower() in (".csv", ".tsv") else _json_rows(path)
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


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """All values are text; the first line names the columns."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(
                handle, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True
            )
            for row in reader:
                where = f"{path}: line {reader.line_num}"
                if None in row or None in row.values():
                    raise DataError(
                        f"{where}: {len(reader.fieldnames or ())} columns are named, but the row has a different number"
                    )
                yield where, row
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num}: not CSV ({error})") from error


def hub_rows(
    name: str,
    hub: str,
    configs: Sequence[str | None],
    split: str,
    revision: str | None,
    searched: str = "",
    otherwise: str = "",
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, row) of a data set on the Hugging Face hub, its `configs` one after another.

    `name` is what a message begins with, `searched` and `otherwise` say where else was searched and what else could be done.

    Raises:
        DataError: the package is missing, or the data set cannot be had.
    """
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{name}: reading {hub} from the hub needs the package datasets (pip install 'rpg-lab[math]')"
        ) from error
    try:
        parts = [datasets.load_dataset(hub, config, split=split, revision=revision) for config in configs]
    except (
        Exception
    ) as error:  # the library raises a dozen kinds: no network, no such data set, no such split
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{name}: cannot read {hub}{searched}: {first}. Check the network{otherwise}"
        ) from error
    # As Arrow, because row by row the library is several times slower.
    batches = (batch for part in parts for batch in part.with_format("arrow").iter(10_000))
    for number, row in enumerate(itertools.chain.from_iterable(b.to_pylist() for b in batches), 1):
        yield f"{hub}: row {number}", row


def _parquet_rows(path: Path, chosen: dict[str, bool] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow.parquet  # noqa: PLC0415 - a fifth of a second, which planning a run does not need

    try:
        file = pyarrow.parquet.ParquetFile(path)
        present = file.schema_arrow.names
        for name, required in (chosen or {}).items():
            if required and name not in present:
                raise DataError(f"{path}: {missing(name, present)}")
        columns = None if chosen is None else [name for name in chosen if name in present]
        number = 0
        for batch in file.iter_batches(columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from error


def missing(field: str, present: Iterable[object]) -> str:
    """A sentence about a column that is not among those `present`."""
    names = [str(name) for name in present]
    how = ""
    if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
        how = " (the columns of a CSV file are separated by commas)"
    elif names and field in ("prompt", "answer"):
        how = f"; say which column it is, e.g. task.columns: {{{field}: {names[0]}}}"
    return (
        f"field {field} is missing{nearest(field, names) or '.'} Found: {', '.join(names) or 'nothing'}{how}"
    )
