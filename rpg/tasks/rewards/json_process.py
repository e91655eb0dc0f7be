"""A process that answers a line of JSON with a line of JSON, and that can be killed at any
moment."""

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from rpg.system.processes import python_module

_LOOK_SECONDS = 1.0


class Late(Exception):
    """It did not answer in time."""


class Ended(Exception):
    """It ended without an answer, with the exit `code`; the message is `exit code 3` or
    `SIGKILL`."""

    def __init__(self, code: int):
        names = {member.value: member.name for member in signal.Signals}
        super().__init__(f"exit code {code}" if code >= 0 else names.get(-code, f"signal {-code}"))
        self.code = code


class JsonProcess:
    """`python -m module`. Whoever catches what `ask` raises ends it: its next answer would belong
    to the last question."""

    def __init__(self, module: str, environment: Mapping[str, str], errors: int | None = None):
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            python_module(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment},
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in: IO[bytes] = self.process.stdin
        self._out: IO[bytes] = self.process.stdout
        os.set_blocking(self._in.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    def ask(self, question: Any, seconds: float, look: Callable[[], None] = lambda: None) -> Any:
        """The answer to a question; `look` is called about once a second until it is there. Raises
        Late and Ended."""
        deadline = time.monotonic() + seconds
        answer = b""
        unsent = self._send(memoryview(json.dumps(question).encode() + b"\n"))
        if unsent:
            self._selector.register(self._in, selectors.EVENT_WRITE)
        while not answer.endswith(b"\n"):
            ready = self._selector.select(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
            if not ready and time.monotonic() >= deadline:
                raise Late
            if not ready:
                look()
            for key, _ in ready:
                if key.fileobj is self._out:
                    read = os.read(self._out.fileno(), 1 << 20)
                    if not read:
                        raise Ended(self.process.wait())
                    answer += read
                elif not (unsent := self._send(unsent)):
                    self._selector.unregister(self._in)
        return json.loads(answer)

    def _send(self, data: memoryview) -> memoryview:
        """What does not fit into the pipe yet; nothing if the process has ended, of which `ask`
        reads the end of file."""
        try:
            while data:
                data = data[os.write(self._in.fileno(), data) :]
        except BlockingIOError:
            return data
        except BrokenPipeError:
            return data[:0]
        return data

    def end(self) -> None:
        """Kill it and wait for its end."""
        self.process.kill()
        for opened in (self._selector, self._in, self._out):
            opened.close()
        self.process.wait()
