"""Tasks: where problems come from. Pure data and text; no torch.

`load_problems(task)` gives the splits of any task of `rpg.config.run`; `rpg.tasks.demonstrations` gives what a
model made from its config is warm-started on.
"""

from __future__ import annotations

from rpg.config.task import ChainTask, MarkerVerifier, MathTask, Task, Verifier
from rpg.tasks.problems import DataError, Problem, Splits

__all__ = ["DataError", "Problem", "Splits", "load_problems", "task_files", "verifier_of"]


def load_problems(task: Task) -> Splits:
    """All problems of a task.

    Raises:
        DataError: a file that cannot be used (the message names file, line and field), or too few problems.
    """
    if isinstance(task, ChainTask):
        from rpg.tasks.chain import make

        return make(task)
    if isinstance(task, MathTask):
        from rpg.tasks.math import read

        return read(task)
    from rpg.tasks.files import read

    return read(task)


def task_files(task: Task) -> list[str]:
    """What a task's problems are read from: nothing for a task whose problems are made by code."""
    if isinstance(task, ChainTask):
        return []
    if isinstance(task, MathTask):
        return [task.train, *task.benchmarks]
    return [str(path) for path in (task.train, *task.benchmarks.values())]


def verifier_of(task: Task) -> Verifier:
    """How a task's responses are checked."""
    if isinstance(task, ChainTask):
        from rpg.tasks.chain import MARKER

        return MarkerVerifier(marker=MARKER, match="exact")
    return task.verifier
