"""Tasks: where problems come from, and how responses to them are graded.

In: a task section of a configuration, or data files. Out: training problems, held-out benchmarks,
demonstrations; in `rewards` graders and rewards, in `environments` turns with tools. No torch.
`load_problems(task)` gives the splits of any task; docs/extending.md adds a task type. Read first:
problems.py.
"""

import random
from dataclasses import replace
from importlib import import_module

from rpg.config.section import registered
from rpg.config.task import TASKS, TUNING, TaskSection, Verifier, chat_of
from rpg.tasks.problems import (
    DataError,
    Demonstrations,
    Problem,
    Splits,
    TaskKind,
    problem_characters,
)

__all__ = [
    "KINDS",
    "DataError",
    "Problem",
    "Splits",
    "characters_of",
    "demonstrations_of",
    "kind_of",
    "load_problems",
    "verifier_of",
]

KINDS = {
    "chain": "rpg.tasks.chain",
    "environment": "rpg.tasks.environment_problems",
    "file": "rpg.tasks.file_problems",
    "math": "rpg.tasks.math_problems",
    "operators": "rpg.tasks.operators",
    "reasoning_gym": "rpg.tasks.gym_problems",
    "words": "rpg.tasks.word_problems",
}
"""Task type -> the module whose KIND says how its problems are made; loaded when a task of that
type is used."""
registered("task type", TASKS, KINDS, "rpg/tasks/__init__.py")


def kind_of(task: TaskSection) -> TaskKind:
    """What a task's type says about its problems."""
    kind: TaskKind = import_module(KINDS[task.type]).KIND
    return kind


def load_problems(task: TaskSection) -> Splits:
    """All problems of a task. Raises DataError: too few, or a file that cannot be used (it names
    file, line and field)."""
    splits = kind_of(task).problems(task)
    return _with_tuning(splits, task.tuning_problems) if task.tuning_problems else splits


def _with_tuning(splits: Splits, count: int) -> Splits:
    """The splits with `count` problems of each benchmark set apart for tuning, drawn once for all.
    DataError: a benchmark would be left without a problem."""
    benchmarks = {}
    apart = {}
    for name, problems in splits.benchmarks.items():
        if count >= len(problems):
            raise DataError(
                f"task.tuning_problems: {count}, but {name} has {len(problems)} problems; "
                "accepted: fewer than that"
            )
        for_tuning = set(random.Random(f"tuning {name}").sample(range(len(problems)), count))
        apart[f"{name}{TUNING}"] = [problems[at] for at in sorted(for_tuning)]
        benchmarks[name] = [problem for at, problem in enumerate(problems) if at not in for_tuning]
    return replace(splits, benchmarks=benchmarks | apart)


def verifier_of(task: TaskSection) -> Verifier:
    """How a task's responses are checked."""
    return kind_of(task).verifier(task)


def demonstrations_of(task: TaskSection, splits: Splits) -> Demonstrations:
    """Demonstrations of a task's problems. Raises DataError: there are none (of a file: no column
    `demonstration`)."""
    return kind_of(task).demonstrations(task, splits)


def characters_of(task: TaskSection, splits: Splits) -> set[str]:
    """All characters that a model of this task has to know, those of its chat template included."""
    chat = chat_of(task)
    characters = kind_of(task).characters or problem_characters
    return characters(splits) | set(chat.template or "") | set(chat.prefix)
