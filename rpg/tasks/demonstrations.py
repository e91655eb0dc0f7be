"""Demonstrations of any task, for the warm start of a model."""

from __future__ import annotations

from rpg.config.task import TaskSection, chat_of
from rpg.tasks import kind_of
from rpg.tasks.kind import Demonstrations
from rpg.tasks.own import problem_characters
from rpg.tasks.problems import Splits


def demonstrations(task: TaskSection, splits: Splits) -> Demonstrations:
    """Demonstrations of a task.

    Raises:
        DataError: it has none, as a file task without the column `demonstration`.
    """
    return kind_of(task).demonstrations(task, splits)


def characters(task: TaskSection, splits: Splits) -> set[str]:
    """All characters a model of this task has to know."""
    declared = kind_of(task).characters
    return (declared(splits) if declared else problem_characters(splits)) | around(task)


def around(task: TaskSection) -> set[str]:
    """What the task's own chat template and the assistant's prefix are written with."""
    chat = chat_of(task)
    return set((chat.template or "") + chat.prefix)
