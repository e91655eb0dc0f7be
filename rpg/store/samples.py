"""Files of graded samples, and beside each of them the grades of the same samples under other
rules."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from rpg.store.atomic_files import StoreError, atomic_path, readable
from rpg.store.run_folder import RunFolder

Rows = Iterable[Mapping[str, Any]]

EVAL_COLUMNS = {
    "problem_id": "string",
    "sample": "int32",
    "problem": "string",
    "answer": "string",
    "response": "string",
    "extracted": "string",
    "correct": "bool",
    "reason": "string",
    "tokens": "int32",
    "truncated": "bool",
}
REWARD_COLUMNS = {"reward": "double", "rewards": "string"}
"""Of runs whose reward is more than the verifier's verdict: the weighted sum, and its parts as
JSON."""
SECOND = "second_reading"
"""Of files with an answer that the first reader could not read: a second reader's verdict on it
(docs/grading.md)."""
CLUSTER = "cluster"
"""Of benchmarks whose problems come in clusters: the cluster of the problem (rpg.tasks.problems).
"""
TURNS = "turns"
"""Of conversations: the turns of the policy and of its environment as a JSON list; `response` is
all of them."""
_MORE = {**REWARD_COLUMNS, SECOND: "bool", TURNS: "string", CLUSTER: "string"}
GRADES = ("problem_id", "sample", "extracted", "correct", "reason")
GRADE_COLUMNS = {name: EVAL_COLUMNS[name] for name in GRADES}
UNREAD_SHARE = 0.02
"""From this share of unread answers an evaluation says so."""
UNREAD = (
    "(?s): ((?:not read|cannot be compared|the gold answer is not read|time limit|memory "
    "limit|longer than|worker ended)"
    ".*?)(?:; read as .*)?$"
)
"""Within the reason of a wrong answer (rpg.tasks.rewards.graders): why it could not be read."""
DRIFT = ".drift.json"
"""Ending of the file beside the samples that says how far the policy had moved."""
MARK = ".grades-"
"""In the name of a file of grades, which stands beside the samples."""


def unread_form(correct: bool, reason: str | None) -> str | None:
    """Why an answer that counts as wrong could not be read, in a few words; None where it was read,
    or there is none."""
    match = None if correct else re.search(UNREAD, reason or "")
    return match and match[1]


def write_samples(
    path: Path, rows: Rows, rules: str | None = None, about: Mapping[str, str] = {}
) -> None:
    """Write graded samples, atomically; every row has the keys of EVAL_COLUMNS, or also of
    REWARD_COLUMNS, SECOND, TURNS or CLUSTER.

    `rules` names the rules by which they were graded (rpg.tasks.rewards.graders), `about` where
    they come from: the `model`, its `engine`, and the key of the samples' `draws`
    (rpg.store.draws). All of it is stored as metadata of the file.
    """
    rows = list(rows)
    columns = EVAL_COLUMNS | {
        name: kind for name, kind in _MORE.items() if rows and name in rows[0]
    }
    for index, row in enumerate(rows):
        if set(row) != set(columns):
            missing = set(columns) - set(row)
            extra = set(row) - set(columns)
            why = (
                f"cannot write {path}: row {index} lacks {sorted(missing)}, has unknown "
                f"{sorted(extra)}"
            )
            raise StoreError(why)
    _write(path, rows, columns, {**about, **({} if rules is None else {"rules": rules})})


def _write(path: Path, rows: Rows, columns: Mapping[str, str], about: Mapping[str, str]) -> None:
    schema = pyarrow.schema(
        [(name, pyarrow.type_for_alias(kind)) for name, kind in columns.items()]
    )
    try:
        table = pyarrow.Table.from_pylist(
            [{name: row[name] for name in columns} for row in rows], schema
        )
    except (pyarrow.ArrowException, UnicodeError) as error:
        raise StoreError(f"cannot write {path}: {error}") from error
    with atomic_path(path) as temporary:
        marked = table.replace_schema_metadata(about) if about else table
        pyarrow.parquet.write_table(marked, temporary, compression="zstd")


def read_samples(path: Path) -> pyarrow.Table:
    """Graded samples as a pyarrow.Table (columns of EVAL_COLUMNS; REWARD_COLUMNS and SECOND where
    the file has them)."""
    with _reading(path) as file:
        table = file.read()  # read_table imports pandas
        columns = list(EVAL_COLUMNS)
        columns += [name for name in _MORE if name in table.column_names]
        return table.select(columns)


def write_fewer(path: Path, target: Path, most: int) -> None:
    """Write a file with the first `most` samples of each problem, atomically."""
    with _reading(path) as file:
        table = file.read()
    with atomic_path(target) as temporary:
        first = table.filter(pyarrow.array([n < most for n in table["sample"].to_pylist()]))
        pyarrow.parquet.write_table(first, temporary, compression="zstd")


def write_eval(
    folder: RunFolder,
    benchmark: str,
    step: int,
    rows: Rows,
    rules: str | None = None,
    about: Mapping[str, str] = {},
) -> Path:
    """Write the graded samples of one checkpoint; see write_samples."""
    path = folder.eval_path(benchmark, step)
    write_samples(path, rows, rules, about)
    return path


def read_eval(folder: RunFolder, benchmark: str, step: int) -> pyarrow.Table:
    """The graded samples of one checkpoint; see read_samples."""
    return read_samples(folder.eval_path(benchmark, step))


def accuracy(folder: RunFolder, benchmarks: Sequence[str], step: int) -> float | None:
    """Mean over benchmarks of the share of right samples at a step; None: not all are evaluated
    there."""
    paths = [folder.eval_path(name, step) for name in benchmarks]
    if not paths or not all(path.exists() for path in paths):
        return None
    return sum(_right(path, path.stat().st_mtime_ns) for path in paths) / len(paths)


@lru_cache(maxsize=8192)
def _right(path: Path, _changed: int) -> float:
    """Every problem has as many samples."""
    right: list[bool] = read_samples(path)["correct"].to_pylist()
    return sum(right) / max(1, len(right))


def drift_path(samples: Path) -> Path:
    """How far the policy had moved from the initial model, beside the samples that say so
    (rpg.evaluation.kl_to_initial)."""
    return samples.with_suffix(DRIFT)


def grades_path(samples: Path, rules: str) -> Path:
    """`step-000040.grades-math_dapo-0.9.1.parquet` beside `step-000040.parquet`."""
    return samples.with_name(f"{samples.stem}{MARK}{rules}.parquet")


def gradings(samples: Path) -> dict[str, Path]:
    """Rules by which these samples were graded again -> the file with the grades."""
    paths = sorted(samples.parent.glob(f"{samples.stem}{MARK}*.parquet"))
    return {
        path.name.removeprefix(samples.stem + MARK).removesuffix(".parquet"): path for path in paths
    }


def write_grades(path: Path, rows: Rows, rules: str, samples: str) -> None:
    """Write grades, atomically; `samples` is the digest of the file of samples to which they
    belong."""
    _write(path, rows, GRADE_COLUMNS, {"rules": rules, "samples": samples})


def read_grades(path: Path, samples: str | None = None) -> list[dict[str, Any]] | None:
    """The grades in a file; None if they belong to other samples than those with the digest
    `samples`."""
    if samples is not None and metadata(path).get("samples") != samples:
        return None
    with _reading(path) as file:
        rows: list[dict[str, Any]] = file.read().select(list(GRADE_COLUMNS)).to_pylist()
        return rows


def metadata(path: Path) -> dict[str, str]:
    """What a file of samples or grades says about all of them: `rules` (not in old files), `model`,
    `engine`, `draws`."""
    with _reading(path) as file:
        return {
            key.decode(): value.decode()
            for key, value in (file.schema_arrow.metadata or {}).items()
        }


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[pyarrow.parquet.ParquetFile]:
    """The Parquet file, open; StoreError if it cannot be read."""
    try:
        with readable("read", path), open(path, "rb") as handle:
            yield pyarrow.parquet.ParquetFile(handle)
    except (pyarrow.ArrowException, KeyError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error
