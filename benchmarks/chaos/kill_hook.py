"""In every process of a sweep: what is about to happen to a file of the data folder becomes a line
of a log that all of them share; at a chosen line the sweep is killed.

Python reports each of these moments itself (`sys.addaudithook`), so nothing is planted in the code
that is watched: opening a file for writing or appending, renaming, linking, removing. What a
library writes by itself lies between two of them, for our file layer opens a file before it and
renames it afterwards. Two names for one moment are told apart by counting: "the second rename of
evals/chain-easy/step-000002.parquet of the run grpo-seed0".
"""

import fcntl
import os
import re
import signal
import sys
from pathlib import Path

LOG, HOME = "RPG_KILL_LOG", "RPG_KILL_HOME"
POINT = "RPG_KILL_POINT"
"""Environment variable: `K EVENT`, kill before the K-th time this event happens; none: only count.
"""
ROOT = "RPG_KILL_ROOT"
"""Environment variable: the process of the command."""
_RANDOM = re.compile(r"\.[0-9a-f]{12}\.tmp")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT
_LEFT_OUT = re.compile(r"\.lock|lease|progress|\.log|log\.txt|prefect/|/serve/|conductor|evaluator")
"""Locks, heartbeats, logs, and Prefect's own files: none of them is a result."""


def install() -> None:
    home = os.environ.get(HOME)
    if not home:
        return
    os.environ.setdefault(ROOT, str(os.getpid()))
    sys.addaudithook(_Hook(home))


class _Hook:
    def __init__(self, home: str) -> None:
        self.home = home
        self.log = os.environ[LOG]
        self.times, _, self.event = os.environ.get(POINT, "").partition(" ")

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        line = self._line(event, arguments)
        if line and self._count(line):
            os.kill(int(os.environ[ROOT]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def _line(self, event: str, arguments: tuple[object, ...]) -> str | None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & _WRITING:
                return None
            kind = "append to" if flags & os.O_APPEND else "write"
        elif event in ("os.rename", "os.link"):
            path = arguments[1]
            kind = event.removeprefix("os.")
        elif event == "os.remove":
            path = arguments[0]
            kind = "remove"
        else:
            return None
        name = os.fsdecode(path) if isinstance(path, str | bytes | Path) else ""
        if not name.startswith(self.home) or _LEFT_OUT.search(name.removeprefix(self.home)):
            return None
        return f"{kind} {_RANDOM.sub('', name.removeprefix(self.home))}"

    def _count(self, line: str) -> bool:
        """Add the line to the log; True if it is the one to be killed at."""
        log = os.open(self.log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            fcntl.flock(log, fcntl.LOCK_EX)
            os.write(log, f"{line}\n".encode())
            if line != self.event:
                return False
            earlier = os.pread(log, os.fstat(log).st_size, 0).decode().splitlines()
            return earlier.count(line) == int(self.times)
        finally:
            os.close(log)
