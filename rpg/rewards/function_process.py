"""Runs a user's reward function in a separate process, which can be killed at any moment."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from rpg.config.reward import PythonReward
from rpg.errors import UserError
from rpg.processes import marked, parent_mark, python_module
from rpg.rewards.function_calls import Batch, Values

_START_SECONDS = 300.0
"""For the imports of a function: it may load a model, on a busy machine."""
_LOOK_SECONDS = 1.0
"""How often it is seen how much memory a function uses that has not answered yet."""
_MARK = "RPG_REWARD_FUNCTION"
"""Environment variable that its processes have and no others."""
_SHOWN = 100


class RewardError(UserError):
    """A reward cannot be computed; the message names the function, the first response it failed with, and the reason."""


class FunctionReward:
    """Calls one function. The process starts with the first batch and stays; a batch over its time limit ends it."""

    def __init__(self, part: PythonReward, sources: Sequence[Mapping[str, str]]):
        self.part, self.sources = part, sources
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._mark = uuid.uuid4().hex

    def score(self, batch: Batch) -> Values:
        """Its values by name; None for a response to which it does not apply. Raises RewardError: it raised, took too
        long, ended its process, or did not return a finite number per response.
        """
        if not len(batch):
            return {}
        try:
            if self._process is None:
                self._start()
            values: Values = self._ask(asdict(batch), self.part.seconds, batch)["values"]
            return values
        except BaseException:
            self.close()  # what it would still answer belongs to this batch
            raise

    def close(self) -> None:
        """End the process and all that it has started."""
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            process.kill()
            while members := marked(_MARK, self._mark):  # what it has started, and what that starts meanwhile
                for pid in members:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()  # type: ignore[union-attr]  # both are pipes
            process.wait()

    def _start(self) -> None:
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            python_module("rpg.rewards.function_worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                **parent_mark(),
                _MARK: self._mark,
            },
        )
        begin = {
            "function": self.part.function,
            "sources": list(self.sources),
            "memory_gib": self.part.memory_gib,
        }
        self._ask(begin, _START_SECONDS, None)

    def _ask(self, question: dict[str, Any], seconds: float, batch: Batch | None) -> dict[str, Any]:
        """One line to the process, one line back."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        deadline = time.monotonic() + seconds
        outgoing = memoryview(json.dumps(question).encode() + b"\n")
        os.set_blocking(process.stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stdin, selectors.EVENT_WRITE)
            while b"\n" not in self._unread:
                ready = selector.select(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
                if not ready and time.monotonic() >= deadline:
                    raise RewardError(self._late(seconds, batch))
                if not ready and (gib := self._memory_gib()) > self.part.memory_gib:
                    raise RewardError(
                        f"reward: {self.part.function}: its processes use {gib:.2f} GiB (reward.memory_gib: "
                        f"{self.part.memory_gib:g}); they were killed{_shown(batch, 0)}"
                    )
                for key, _ in ready:
                    if key.fileobj is process.stdout:
                        read = os.read(process.stdout.fileno(), 1 << 20)
                        if not read:
                            raise RewardError(self._ended(process, batch))
                        self._unread += read
                    else:
                        try:
                            outgoing = outgoing[os.write(process.stdin.fileno(), outgoing[: 1 << 16]) :]
                        except BrokenPipeError:  # it has ended: its end of file comes next
                            outgoing = outgoing[len(outgoing) :]
                        if not outgoing:
                            selector.unregister(process.stdin)
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RewardError(f"reward: {answer['error']}{_shown(batch, answer.get('row'))}")
        return answer

    def _memory_gib(self) -> float:
        """What its processes use together; pages they share count for each."""
        total = 0
        for pid in marked(_MARK, self._mark):
            with contextlib.suppress(psutil.Error):
                total += psutil.Process(pid).memory_info().rss
        return total / 2**30

    def _late(self, seconds: float, batch: Batch | None) -> str:
        what = f"{len(batch)} responses" if batch is not None else "its import"
        return (
            f"reward: {self.part.function}: no answer within {seconds:g} s for {what} (reward.seconds); it was killed"
            f"{_shown(batch, 0)}"
        )

    def _ended(self, process: subprocess.Popen[bytes], batch: Batch | None) -> str:
        code = process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return (
            f"reward: {self.part.function}: its process {how}; the log has what it printed{_shown(batch, 0)}"
        )


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
