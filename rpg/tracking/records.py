"""The records of a run for trackers: its steps and its evaluations, in order. Reads the run's folder only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rpg.store.run_folder import RunFolder
from rpg.store.samples import read_eval

_NOT_MEASURED = ("step", "attempt", "time")


@dataclass(frozen=True)
class Record:
    """Numbers of one step. `key` identifies the record, which is sent once."""

    key: str
    step: int
    time: float
    values: dict[str, float]


@dataclass(frozen=True)
class RunInfo:
    """What a tracker gets to know about a run."""

    sweep: str
    run: str
    run_id: str
    variant: str
    settings: dict[str, Any]


def info(folder: RunFolder) -> RunInfo:
    """The run according to its manifest. Raises StoreError if that cannot be read."""
    manifest = folder.read_manifest()
    return RunInfo(folder.sweep, folder.name, manifest["run_id"], manifest["variant"], manifest["spec"])


def records(folder: RunFolder, sent: set[str]) -> Iterator[Record]:
    """Steps and evaluations on disk whose keys are not in `sent`, without values that are not finite numbers.

    Raises:
        StoreError: a file cannot be read.
    """
    last = 0.0
    for row in folder.read_metrics().rows:
        last = row.get("time", last)
        key = f"step {row['step']}"
        if key not in sent:
            values = {
                name: value for name, value in row.items() if name not in _NOT_MEASURED and _finite(value)
            }
            yield Record(key, row["step"], last, values)
    for benchmark in folder.benchmarks():
        for step in folder.eval_steps(benchmark):
            key = f"{benchmark} {step}"
            if key not in sent:
                changed = folder.eval_path(benchmark, step).stat().st_mtime
                yield Record(key, step, changed, evaluated(folder, benchmark, step))


def evaluated(folder: RunFolder, benchmark: str, step: int) -> dict[str, float]:
    """mean@k as in the database (the mean over problems of the share of right samples), and tokens per response."""
    table = read_eval(folder, benchmark, step)
    by_problem = table.group_by("problem_id").aggregate([("correct", "mean")])
    shares = by_problem.column("correct_mean").to_pylist()
    tokens = table.column("tokens").to_pylist()
    if not shares:
        return {}
    return {
        f"eval/{benchmark}/accuracy": sum(shares) / len(shares),
        f"eval/{benchmark}/tokens": sum(tokens) / len(tokens),
    }


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
