"""Runs a user's reward function in a separate process, which can be killed at any moment."""

import contextlib
import os
import signal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import psutil

from rpg.config.reward import PythonReward
from rpg.errors import UserError
from rpg.system.processes import marked, parent_mark
from rpg.tasks.rewards.function_calls import Batch, Values
from rpg.tasks.rewards.json_process import Ended, JsonProcess, Late

_START_SECONDS = 300.0
"""For the imports of a function: it may load a model, on a busy machine."""
_MARK = "RPG_REWARD_FUNCTION"
"""Environment variable that its processes have and no others."""
_SHOWN = 100


class RewardError(UserError):
    """A reward cannot be computed; the message names the function, the first response it failed
    with, and the reason."""


class Failed(Exception):
    """What a user's code did instead of answering; the message is the end of a sentence about
    it."""


class UserProcess:
    """A process that runs a user's code, and all that it starts. It starts with the first question
    and stays."""

    def __init__(self, module: str, setup: Mapping[str, Any], section: str):
        """`setup` is what `module` is told first; `section` of a run's file has its limits
        `seconds` and `memory_gib`."""
        self.module = module
        self.setup = setup
        self.section = section
        self._process: JsonProcess | None = None
        self._mark = uuid.uuid4().hex

    def start(self) -> dict[str, Any]:
        """What the process says to `setup`, perhaps an `error`; nothing if it runs already. Raises
        Failed."""
        if self._process is not None:
            return {}
        self._process = JsonProcess(self.module, {**parent_mark(), _MARK: self._mark})
        return self.ask(self.setup, _START_SECONDS, " for its import")

    def ask(self, question: Mapping[str, Any], seconds: float, about: str = "") -> dict[str, Any]:
        """Its answer. Raises Failed: it took too long or too much memory, or ended; it has been
        closed."""
        assert self._process is not None
        try:
            answer: dict[str, Any] = self._process.ask(question, seconds, self._check_memory)
            return answer
        except BaseException as error:
            self.close()  # what it would still answer belongs to this question
            if isinstance(error, Late):
                raise Failed(
                    f"no answer within {seconds:g} s{about} ({self.section}.seconds)"
                ) from None
            if isinstance(error, Ended):
                raise Failed(f"its process ended with {error}") from None
            raise

    def close(self) -> None:
        """End the process and all that it has started."""
        process = self._process
        self._process = None
        if process is not None:
            process.process.kill()
            while members := marked(
                _MARK, self._mark
            ):  # what it has started, and what that starts meanwhile
                for pid in members:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.end()

    def _check_memory(self) -> None:
        """What its processes use together; pages they share count for each."""
        total = 0
        most = self.setup["memory_gib"]
        for pid in marked(_MARK, self._mark):
            with contextlib.suppress(psutil.Error):
                total += psutil.Process(pid).memory_info().rss
        if total > most * 2**30:
            used = f"{total / 2**30:.2f} GiB"
            raise Failed(f"its processes use {used} ({self.section}.memory_gib: {most:g})")


class FunctionReward:
    """Calls one function. A batch over its time limit ends its process."""

    def __init__(self, part: PythonReward, sources: Sequence[Mapping[str, str]]):
        self.part = part
        setup = {"function": part.function, "sources": list(sources), "memory_gib": part.memory_gib}
        self._process = UserProcess("rpg.tasks.rewards.function_worker", setup, "reward")

    def score(self, batch: Batch) -> Values:
        """Its values by name; None for a response to which it does not apply. Raises RewardError:
        it raised, took too long, ended its process, or did not return a finite number per response.
        """
        if not len(batch):
            return {}
        shown = ""
        try:
            answer = self._process.start()
            if "error" not in answer:
                shown = _shown(batch, 0)
                answer = self._process.ask(
                    asdict(batch), self.part.seconds, f" for {len(batch)} responses"
                )
        except Failed as failure:
            why = f"{failure}; the log has what it printed{shown}"
            raise RewardError(f"reward: {self.part.function}: {why}") from None
        if "error" in answer:
            self.close()
            raise RewardError(f"reward: {answer['error']}{_shown(batch, answer.get('row'))}")
        values: Values = answer["values"]
        return values

    def close(self) -> None:
        """End the process and all that it has started."""
        self._process.close()


def _shown(batch: Batch, row: int | None) -> str:
    """The first response in question, for people."""
    if row is None:
        return ""
    prompt = batch.prompts[row]
    asked = ""
    if isinstance(prompt, str):
        asked = prompt
    elif prompt:
        asked = prompt[-1].get("content") or ""
    response = _line(batch.responses[row])
    return f"; response {row + 1} of {len(batch)}: {response} to {_line(asked)}"


def _line(text: object) -> str:
    """The beginning of a text in one line, as Python writes it."""
    line = " ".join(str(text).split())
    if len(line) > _SHOWN:
        line = line[: _SHOWN - 3] + "..."
    return repr(line)
