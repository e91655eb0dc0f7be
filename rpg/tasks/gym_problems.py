"""Reasoning Gym (`reasoning-gym` on PyPI): procedural data sets with their own scorers, as a task."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rpg.config.task import GymTask
from rpg.processes import python_module
from rpg.tasks.problems import DataError, Problem, ProblemDemonstrations, Splits, TaskKind

VERSION = 1
"""Part of the data's digest: raise it when the same settings would give other problems."""
_INSTALL = "task.type: reasoning_gym needs the package: pip install 'rpg-lab[tasks]'"


def make(task: GymTask) -> Splits:
    """All problems, the same for the same settings. Raises DataError: an unknown data set, setting or level, or too few."""
    made = _generated(task.model_dump_json())
    splits = {
        name: [_problem(task, row, name, number) for number, row in enumerate(rows)]
        for name, rows in made.items()
    }
    return Splits(splits.pop("train"), splits)


def examples() -> list[dict[str, Any]]:
    """`name`, `levels`, `text` and `answer` of one problem of each data set. Raises DataError: the package is missing."""
    rows: list[dict[str, Any]] = _generated("")
    return rows


def _generated(request: str) -> Any:
    _release()
    # In a process of its own: see rpg.tasks.gym_generator.
    process = subprocess.run(
        python_module("rpg.tasks.gym_generator"), input=request, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    if process.returncode:
        raise DataError(f"task.datasets: making the problems ended with exit code {process.returncode}")
    made = json.loads(process.stdout)
    if "error" in made:
        raise DataError(made["error"])
    return made


def _release() -> str:
    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        raise DataError(_INSTALL) from None


def _problem(task: GymTask, row: dict[str, Any], split: str, number: int) -> Problem:
    name = f"{row['name']}-{'train' if split == 'train' else 'held-out'}-{number:05d}"
    prompt, answer = task.template.replace("{prompt}", row["text"]), task.verifier.written(row["answer"])
    shown = "\n".join(filter(None, (row["steps"], answer))) if row["answer"] else None
    return Problem(name, row["text"], prompt, row["answer"], row["name"], shown, row["columns"])


KIND = TaskKind(
    problems=make,
    data=lambda _task: {"generator": VERSION, "reasoning-gym": _release()},
    verifier=lambda task: task.verifier,
    demonstrations=lambda task, splits: ProblemDemonstrations(
        "task.type: reasoning_gym", task.verifier, splits
    ),
)
