"""Runs a user's reward function in a separate process, which can be killed at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import psutil

from rpg.config.reward import PythonReward
from rpg.errors import UserError
from rpg.processes import marked, parent_mark
from rpg.rewards.function_calls import Batch, Values
from rpg.rewards.json_process import Ended, JsonProcess, Late

_START_SECONDS = 300.0
"""For the imports of a function: it may load a model, on a busy machine."""
_MARK = "RPG_REWARD_FUNCTION"
"""Environment variable that its processes have and no others."""
_SHOWN = 100


class RewardError(UserError):
    """A reward cannot be computed; the message names the function, the first response it failed with, and the reason."""


class OverMemory(Exception):
    """Its processes use `gib` together."""

    def __init__(self, gib: float):
        super().__init__(gib)
        self.gib = gib


class UserProcess:
    """A process that runs a user's code, and all that it starts. It starts with the first question and stays."""

    def __init__(self, module: str, begin: Mapping[str, Any], memory_gib: float):
        """`begin` is what `module` is told first; its answer says whether it can go on."""
        self.module, self.begin, self.memory_gib = module, begin, memory_gib
        self._process: JsonProcess | None = None
        self._mark = uuid.uuid4().hex

    def start(self) -> dict[str, Any]:
        """What the process says to `begin`; nothing if it runs already. Raises what :meth:`ask` raises."""
        if self._process is not None:
            return {}
        self._process = JsonProcess(self.module, {**parent_mark(), _MARK: self._mark})
        return self.ask(self.begin, _START_SECONDS)

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Its answer. Raises Late, Ended, OverMemory; whoever catches them closes it."""
        assert self._process is not None
        answer: dict[str, Any] = self._process.ask(question, seconds, self._check_memory)
        return answer

    def close(self) -> None:
        """End the process and all that it has started."""
        process, self._process = self._process, None
        if process is not None:
            process.process.kill()
            while members := marked(_MARK, self._mark):  # what it has started, and what that starts meanwhile
                for pid in members:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            process.end()

    def _check_memory(self) -> None:
        """What its processes use together; pages they share count for each."""
        total = 0
        for pid in marked(_MARK, self._mark):
            with contextlib.suppress(psutil.Error):
                total += psutil.Process(pid).memory_info().rss
        if total > self.memory_gib * 2**30:
            raise OverMemory(total / 2**30)


def ending(end: Ended) -> str:
    """How a process ended, in words."""
    return f"was killed by signal {-end.code}" if end.code < 0 else f"ended with exit code {end.code}"


class FunctionReward:
    """Calls one function. A batch over its time limit ends its process."""

    def __init__(self, part: PythonReward, sources: Sequence[Mapping[str, str]]):
        self.part = part
        begin = {"function": part.function, "sources": list(sources), "memory_gib": part.memory_gib}
        self._process = UserProcess("rpg.rewards.function_worker", begin, part.memory_gib)

    def score(self, batch: Batch) -> Values:
        """Its values by name; None for a response to which it does not apply. Raises RewardError: it raised, took too
        long, ended its process, or did not return a finite number per response.
        """
        if not len(batch):
            return {}
        try:
            self._answer(self._process.start, None)
            seconds = self.part.seconds
            values: Values = self._answer(lambda: self._process.ask(asdict(batch), seconds), batch)["values"]
            return values
        except BaseException:
            self.close()  # what it would still answer belongs to this batch
            raise

    def close(self) -> None:
        """End the process and all that it has started."""
        self._process.close()

    def _answer(self, ask: Callable[[], dict[str, Any]], batch: Batch | None) -> dict[str, Any]:
        about = f"reward: {self.part.function}:"
        try:
            answer = ask()
        except Late:
            what = f"{len(batch)} responses" if batch is not None else "its import"
            seconds = _START_SECONDS if batch is None else self.part.seconds
            why = f"no answer within {seconds:g} s for {what} (reward.seconds); it was killed"
            raise RewardError(f"{about} {why}{_shown(batch, 0)}") from None
        except Ended as end:
            why = f"its process {ending(end)}; the log has what it printed"
            raise RewardError(f"{about} {why}{_shown(batch, 0)}") from None
        except OverMemory as over:
            raise RewardError(
                f"{about} its processes use {over.gib:.2f} GiB (reward.memory_gib: "
                f"{self.part.memory_gib:g}); they were killed{_shown(batch, 0)}"
            ) from None
        if "error" in answer:
            raise RewardError(f"reward: {answer['error']}{_shown(batch, answer.get('row'))}")
        return answer


def _shown(batch: Batch | None, row: int | None) -> str:
    """The first response in question, for people."""
    if batch is None or row is None:
        return ""
    prompt = batch.prompts[row]
    asked = prompt if isinstance(prompt, str) else (prompt[-1].get("content") or "") if prompt else ""
    return f"; response {row + 1} of {len(batch)}: {_short(batch.responses[row])} to {_short(asked)}"


def _short(text: str) -> str:
    one_line = " ".join(str(text).split())
    return repr(one_line if len(one_line) <= _SHOWN else one_line[: _SHOWN - 3] + "...")
