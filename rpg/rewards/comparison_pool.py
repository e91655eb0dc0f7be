"""Worker processes that compare answers and can be killed at any moment without losing more than one answer."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from rpg.answers.comparison import Verdict
from rpg.errors import UserError
from rpg.processes import python_module

CPU_SECONDS = 3.0
"""Processor time for one answer; more and it is wrong. No gold answer of the shipped benchmarks needs a tenth."""
MEMORY_BYTES = 1 << 30
_WALL_FACTOR = 20.0
"""Wall time that may pass per second of the limit before a worker counts as stuck (a busy machine is slow, too)."""
_STARTS = 3
"""Workers in a row that may be killed while they start (memory is short, say) before that is an error."""


class GradingError(UserError):
    """The workers cannot be started: math-verify is missing, or no process can be made."""


class _Worker:
    """One process and the pair it is working on."""

    def __init__(self, cpu_seconds: float, memory_bytes: int):
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            python_module("rpg.rewards.comparison_worker", cpu_seconds, memory_bytes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"},
        )
        self.ready = False
        self.job: int | None = None
        self.deadline = time.monotonic() + 120.0  # a cold import on a busy machine

    def give(self, job: int, pair: tuple[str, str, float], wall: float) -> None:
        self.job, self.deadline = job, time.monotonic() + wall
        self.process.stdin.write(json.dumps(pair) + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Kill it, wait, and say with which code it ended."""
        self.process.kill()
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait()


class Pool:
    """Compares pairs of normalised answers in `workers` processes, which start at first use.

    Not for use by several threads at once.
    """

    def __init__(self, workers: int = 1, cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES):
        if workers < 1 or cpu_seconds <= 0:
            raise ValueError(f"workers {workers} and cpu_seconds {cpu_seconds} must be positive")
        self.workers, self.cpu_seconds, self.memory_bytes = workers, cpu_seconds, memory_bytes
        self._running: list[_Worker] = []
        self._failed_starts = 0

    def compare(self, pairs: Sequence[tuple[str, str, float]]) -> list[Verdict]:
        """Verdicts on (gold, answer, relative tolerance), in order.

        An answer that exceeds the time or memory limit, or ends its worker, is wrong; the reason says so.

        Raises:
            GradingError: a worker cannot be started.
        """
        try:
            return self._compare(pairs)
        except BaseException:  # a worker that still has a job would answer it in the next call
            self.close()
            raise

    def _compare(self, pairs: Sequence[tuple[str, str, float]]) -> list[Verdict]:
        verdicts: list[Verdict | None] = [None] * len(pairs)
        waiting = deque(range(len(pairs)))
        for worker in [w for w in self._running if w.process.poll() is not None]:  # ended since the last call
            self._running.remove(worker)
            worker.end()
        while len(self._running) < min(self.workers, len(pairs)):
            self._running.append(_Worker(self.cpu_seconds, self.memory_bytes))
        with selectors.DefaultSelector() as selector:
            for worker in self._running:
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
                self._next(worker, waiting, pairs)
            while waiting or self._busy():
                for key, _ in selector.select(timeout=1.0):
                    worker = key.data
                    line = worker.process.stdout.readline()
                    if line == "ready\n":
                        worker.ready = True
                    elif line.endswith("\n"):
                        verdicts[worker.job] = tuple(json.loads(line))
                        worker.job = None
                    else:  # end of file: it was ended
                        self._replace(worker, verdicts, selector)
                        continue
                    self._next(worker, waiting, pairs)
                for worker in list(self._running):
                    if (worker.job is not None or not worker.ready) and time.monotonic() > worker.deadline:
                        self._replace(worker, verdicts, selector)
                for worker in self._running:
                    self._next(worker, waiting, pairs)
        return verdicts

    def _busy(self) -> bool:
        return any(worker.job is not None for worker in self._running)

    def _next(self, worker: _Worker, waiting: deque[int], pairs: Sequence) -> None:
        if worker.ready and worker.job is None and waiting:
            job = waiting.popleft()
            try:
                worker.give(job, pairs[job], self.cpu_seconds * _WALL_FACTOR)
            except BrokenPipeError:  # it ended between two answers: its end of file brings a new one
                worker.job = None
                waiting.appendleft(job)

    def _replace(self, worker: _Worker, verdicts: list, selector: selectors.BaseSelector) -> None:
        selector.unregister(worker.process.stdout)
        self._running.remove(worker)
        stuck = worker.process.poll() is None and time.monotonic() > worker.deadline
        code = worker.end()
        self._failed_starts = 0 if worker.ready else self._failed_starts + 1
        if (code > 0 and not worker.ready) or self._failed_starts > _STARTS:
            raise GradingError(
                "answers cannot be graded: the grading worker does not start; "
                "`python -m rpg.rewards.comparison_worker 1 1000000000` says why (pip install 'rpg-lab[math]' brings math-verify)"
            )
        if worker.job is not None:
            seconds = f"{self.cpu_seconds:g} s"
            late = stuck or code == -signal.SIGPROF
            verdicts[worker.job] = (
                False,
                f"time limit ({seconds})" if late else f"worker ended ({_ending(code)})",
            )
        replacement = _Worker(self.cpu_seconds, self.memory_bytes)
        self._running.append(replacement)
        selector.register(replacement.process.stdout, selectors.EVENT_READ, replacement)

    def close(self) -> None:
        """End all workers."""
        while self._running:
            self._running.pop().end()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_exc) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
