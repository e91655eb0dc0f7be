"""What there is to send of a run: its steps and its evaluations, in order. Pure, but for reading the folder."""

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
    """Numbers of one step. `key` names it for good: sent once, it is not sent again."""

    key: str
    step: int
    time: float
    values: dict[str, float]


@dataclass(frozen=True)
class RunInfo:
    """What a tracker is told about a run."""

    sweep: str
    run: str
    run_id: str
    variant: str
    settings: dict[str, Any]


def info(folder: RunFolder) -> RunInfo:
    """A run as its manifest tells of it. Raises StoreError: there is none that can be read."""
    manifest = folder.read_manifest()
    return RunInfo(folder.sweep, folder.name, manifest["run_id"], manifest["variant"], manifest["spec"])


def records(folder: RunFolder, sent: set[str]) -> Iterator[Record]:
    """Steps and evaluations that are on disk and not in `sent`; values that are no finite number are left out.

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
    """mean@k, as the database has it: the mean over problems of the share of right samples; and tokens per response."""
    table = read_eval(folder, benchmark, step)
    by_problem = table.group_by("problem_id").aggregate([("correct", "mean")])
    shares = by_problem.column("correct_mean").to_pylist()
    tokens = table.column("tokens").to_pylist()
    if not shares:
        return {}
    found = {"accuracy": sum(shares) / len(shares), "tokens": sum(tokens) / len(tokens)}
    return {f"eval/{benchmark}/{name}": value for name, value in found.items()}


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
