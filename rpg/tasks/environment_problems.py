"""Tasks of type environment: problems from files whose rows an environment gets, and demonstrations
with turns."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rpg.config.code import FACTORY, kept_source
from rpg.config.task import EnvironmentTask
from rpg.tasks import file_problems
from rpg.tasks.problems import DataError, Problem, ProblemDemonstrations, Splits, shortened


def sources_of(
    task: EnvironmentTask, kept: Mapping[str, Sequence[Mapping[str, str]]] | None
) -> Sequence[Mapping[str, str]]:
    """The modules that a task's environment runs from: those that a run's manifest keeps, without a
    manifest (None) those on disk. Raises ConfigError: they cannot be read. DataError: the manifest
    lacks them."""
    if kept is not None and FACTORY not in kept:
        raise DataError(f"{FACTORY}: {task.factory}: the run's manifest does not hold its source")
    return kept_source(task) if kept is None else kept[FACTORY]


class _Demonstrations(ProblemDemonstrations):
    """A JSON list of turns, the model's, what the tool returns, the model's, ...; or one turn as
    text."""

    def __init__(self, task: EnvironmentTask, splits: Splits):
        super().__init__(", ".join(source.called() for source in task.train), task.verifier, splits)
        self._reply = task.reply

    def response(self, problem: Problem) -> list[str]:
        demonstration: str = super().response(problem)
        turns = [demonstration]
        if demonstration.startswith('["'):
            try:
                turns = json.loads(demonstration)
            except (ValueError, RecursionError):
                turns = []
            if not turns or not all(isinstance(turn, str) for turn in turns):
                raise DataError(
                    f"demonstration: {shortened(demonstration)}: expected a JSON list of texts"
                )
        if len(turns) > 1 and self._reply is None:
            raise DataError(
                'task.reply: demonstrations with turns need a text, e.g. reply: "={reply}\\n"'
            )
        reply = self._reply or ""
        return [reply.replace("{reply}", turn) if at % 2 else turn for at, turn in enumerate(turns)]


KIND = replace(file_problems.KIND, demonstrations=_Demonstrations)
