"""Tasks of type environment: whose class takes the turns, and where the problems come from. docs/turns.md"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rpg.config.code import FACTORY, kept_source
from rpg.config.model import SupervisedStart, WarmStart
from rpg.config.task import EnvironmentTask
from rpg.tasks import file_problems
from rpg.tasks.problems import DataError, Given, ProblemDemonstrations, Splits, TaskKind

SHIPPED = {
    "calculator": "rpg.tasks.calculator:Calculator",
    "encyclopedia": "rpg.tasks.encyclopedia:Encyclopedia",
    "guess": "rpg.tasks.guess:Guess",
}
"""Environments that ship: their class. The module's `make` makes their problems."""
VERSION = 1
"""Part of the data's digest: raise it when an environment that ships, or its problems, change."""


def factory_of(task: EnvironmentTask) -> str:
    """`module:Class` of a task's environment."""
    return task.factory or SHIPPED[task.environment]


def sources_of(
    task: EnvironmentTask, kept: Mapping[str, Sequence[Mapping[str, str]]] | None
) -> Sequence[Mapping[str, str]]:
    """The modules that a task's environment runs from: those that a run's manifest keeps, without a manifest (None) those on
    disk. Raises ConfigError: they cannot be read. DataError: the manifest lacks them."""
    if not task.factory:
        module = import_module(factory_of(task).partition(":")[0])
        path = Path(str(module.__file__))
        return [{"module": module.__name__, "text": path.read_text("utf-8"), "path": str(path)}]
    if kept is None:
        return kept_source(task)
    if FACTORY not in kept:
        raise DataError(f"{FACTORY}: {task.factory}: the run's manifest does not hold its source")
    return kept[FACTORY]


def settings_of(task: EnvironmentTask) -> dict[str, Any]:
    """What a conversation depends on besides policy, problem and random numbers."""
    names = {"calls", "call", "markers", "reply", "reply_characters", "network", "digest"}
    return {"factory": factory_of(task), "version": VERSION, **task.model_dump(mode="json", include=names)}


def _problems(task: EnvironmentTask) -> Splits:
    if task.factory:
        return file_problems.read(task)
    splits: Splits = import_module(SHIPPED[task.environment].partition(":")[0]).make(task)
    return splits


class _Demonstrations(ProblemDemonstrations):
    """Of conversations: a JSON list of turns, the model's, what the tool returns, the model's, ...; or one turn as text."""

    def __init__(self, task: EnvironmentTask, splits: Splits):
        super().__init__(f"environment {task.environment}", task.verifier, splits)
        self._reply = task.reply

    def ability(self, rng: random.Random) -> tuple[Given, Sequence[str]]:
        given, response = super().ability(rng)
        return given, self._turns(response)

    def behaviour(self, rng: random.Random, warm: WarmStart | SupervisedStart) -> tuple[Given, Sequence[str]]:
        given, response = super().behaviour(rng, warm)
        return given, self._turns(response)

    def _turns(self, demonstration: str) -> list[str]:
        turns = json.loads(demonstration) if demonstration.startswith('["') else [demonstration]
        if len(turns) > 1 and self._reply is None:
            raise DataError('task.reply: demonstrations with turns need a text, e.g. reply: "={reply}\n"')
        said = self._reply or ""
        return [said.replace("{reply}", turn) if at % 2 else turn for at, turn in enumerate(turns)]


KIND = TaskKind(
    problems=_problems,
    data=lambda task: file_problems.KIND.data(task) if task.factory else {"generator": VERSION},
    verifier=lambda task: task.verifier,
    demonstrations=_Demonstrations,
)
