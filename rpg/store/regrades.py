"""Grades of stored samples under other rules than those they were drawn with: a file beside the samples for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rpg.store.files import StoreError, atomic_path, readable

GRADE_COLUMNS = {
    "problem_id": "string",
    "sample": "int32",
    "extracted": "string",
    "correct": "bool",
    "reason": "string",
}
_MARK = ".grades-"


def grades_path(samples: Path, rules: str) -> Path:
    """`step-000040.grades-math_dapo-0.9.1.parquet` beside `step-000040.parquet`."""
    return samples.with_name(f"{samples.stem}{_MARK}{rules}.parquet")


def gradings(samples: Path) -> dict[str, Path]:
    """Rules by which these samples were graded again, and the files with the grades."""
    found = samples.parent.glob(f"{samples.stem}{_MARK}*.parquet")
    return {
        path.name.removeprefix(samples.stem + _MARK).removesuffix(".parquet"): path for path in sorted(found)
    }


def graded_by(path: Path) -> str | None:
    """The rules that a file of samples or grades names; None in files from before rules had names."""
    return _metadata(path).get(b"rules", b"").decode() or None


def write_grades(path: Path, rows: Iterable[Mapping[str, Any]], rules: str, samples: str) -> None:
    """Write grades, whole or not at all; `samples` is the digest of the file of samples that they belong to."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in GRADE_COLUMNS.items()])
    table = pyarrow.Table.from_pylist([{name: row[name] for name in GRADE_COLUMNS} for row in rows], schema)
    with atomic_path(path) as temporary:
        marked = table.replace_schema_metadata({"rules": rules, "samples": samples})
        pyarrow.parquet.write_table(marked, temporary, compression="zstd")


def read_grades(path: Path, samples: str | None = None) -> list[dict[str, Any]] | None:
    """The grades in a file; None where they belong to other samples than those of the digest `samples`."""
    import pyarrow
    import pyarrow.parquet

    if samples is not None and _metadata(path).get(b"samples") != samples.encode():
        return None
    try:
        with readable("read", path), open(path, "rb") as handle:
            table = pyarrow.parquet.ParquetFile(handle).read()  # read_table imports pandas
            rows: list[dict[str, Any]] = table.select(list(GRADE_COLUMNS)).to_pylist()
        return rows
    except (pyarrow.ArrowException, KeyError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def _metadata(path: Path) -> Mapping[bytes, bytes]:
    import pyarrow
    import pyarrow.parquet

    try:
        with readable("read", path), open(path, "rb") as handle:
            found: Mapping[bytes, bytes] = pyarrow.parquet.read_schema(handle).metadata or {}
        return found
    except pyarrow.ArrowException as error:
        raise StoreError(f"cannot read {path}: {error}") from error
