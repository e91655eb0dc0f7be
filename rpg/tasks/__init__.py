"""Tasks: where problems come from. Pure data and text; no torch.

`load_problems(task)` gives the splits of any task of `rpg.config.run_spec`; `rpg.tasks.demonstrations` gives what a
model made from its config is warm-started on. docs/extending.md adds a task type.
"""

from __future__ import annotations

from importlib import import_module

from rpg.config.section import registered
from rpg.config.task import TASKS, TaskSection, Verifier
from rpg.tasks.kind import TaskKind
from rpg.tasks.problems import DataError, Problem, Splits

__all__ = ["KINDS", "DataError", "Problem", "Splits", "kind_of", "load_problems", "verifier_of"]

KINDS = {
    "chain": "rpg.tasks.chain",
    "file": "rpg.tasks.files",
    "math": "rpg.tasks.math",
    "operators": "rpg.tasks.operators",
    "words": "rpg.tasks.words",
}
"""Task type -> the module whose KIND says how its problems are made; loaded when a task of that type is used."""
registered("task type", TASKS, KINDS, "rpg/tasks/__init__.py")


def kind_of(task: TaskSection) -> TaskKind:
    """What a task's type says about its problems."""
    kind: TaskKind = import_module(KINDS[task.type]).KIND
    return kind


def load_problems(task: TaskSection) -> Splits:
    """All problems of a task.

    Raises:
        DataError: a file that cannot be used (the message names file, line and field), or too few problems.
    """
    return kind_of(task).problems(task)


def verifier_of(task: TaskSection) -> Verifier:
    """How a task's responses are checked."""
    return kind_of(task).verifier(task)
