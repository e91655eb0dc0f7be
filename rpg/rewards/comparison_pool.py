"""Worker processes that compare answers, any of which can be killed at the cost of one answer."""

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


_Pair = tuple[str, str, float]


class GradingError(UserError):
    """The worker processes cannot be started."""


class _Worker:
    """One process and the pair it is working on."""

    def __init__(self, cpu_seconds: float, memory_bytes: int):
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self.process: subprocess.Popen[str] = subprocess.Popen(
            python_module("rpg.rewards.comparison_worker", cpu_seconds, memory_bytes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.ready = False
        self.job: int | None = None
        self.deadline = time.monotonic() + 120.0  # a cold import on a busy machine

    def give(self, job: int, pair: _Pair, wall: float) -> None:
        self.job, self.deadline = job, time.monotonic() + wall
        self.stdin.write(json.dumps(pair) + "\n")
        self.stdin.flush()

    def late(self) -> bool:
        return (self.job is not None or not self.ready) and time.monotonic() > self.deadline

    def end(self) -> int:
        """Kill it, wait, and say with which code it ended."""
        self.process.kill()
        self.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        return self.process.wait()


class Pool:
    """Compares answers with gold answers in `workers` processes, which start at first use.

    Not for use by several threads at once.
    """

    def __init__(self, workers: int = 1, cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES):
        if workers < 1 or cpu_seconds <= 0:
            raise ValueError(f"workers {workers} and cpu_seconds {cpu_seconds} must be positive")
        self.workers, self.cpu_seconds, self.memory_bytes = workers, cpu_seconds, memory_bytes
        self._running: list[_Worker] = []
        self._failed_starts = 0

    def compare(self, pairs: Sequence[_Pair]) -> list[Verdict]:
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

    def _compare(self, pairs: Sequence[_Pair]) -> list[Verdict]:
        verdicts: dict[int, Verdict] = {}
        waiting = deque(range(len(pairs)))
        for worker in [w for w in self._running if w.process.poll() is not None]:  # ended since the last call
            self._running.remove(worker)
            worker.end()
        while len(self._running) < min(self.workers, len(pairs)):
            self._running.append(_Worker(self.cpu_seconds, self.memory_bytes))
        with selectors.DefaultSelector() as selector:
            for worker in self._running:
                selector.register(worker.stdout, selectors.EVENT_READ, worker)
                self._next(worker, waiting, pairs)
            while waiting or any(worker.job is not None for worker in self._running):
                for key, _ in selector.select(timeout=1.0):
                    if self._read(key.data, verdicts):
                        self._next(key.data, waiting, pairs)
                    else:
                        self._replace(key.data, verdicts, selector)
                for worker in [w for w in self._running if w.late()]:
                    self._replace(worker, verdicts, selector)
                for worker in self._running:
                    self._next(worker, waiting, pairs)
        return [verdicts[job] for job in range(len(pairs))]

    def _read(self, worker: _Worker, verdicts: dict[int, Verdict]) -> bool:
        """Takes a line from a worker; False where it has ended."""
        line = worker.stdout.readline()
        if line == "ready\n":
            worker.ready = True
        elif line.endswith("\n") and worker.job is not None:
            right, reason = json.loads(line)
            verdicts[worker.job] = right, reason
            worker.job = None
        return line.endswith("\n")

    def _next(self, worker: _Worker, waiting: deque[int], pairs: Sequence[_Pair]) -> None:
        if worker.ready and worker.job is None and waiting:
            job = waiting.popleft()
            try:
                worker.give(job, pairs[job], self.cpu_seconds * _WALL_FACTOR)
            except BrokenPipeError:  # it ended between two answers: its end of file brings a new one
                worker.job = None
                waiting.appendleft(job)

    def _replace(
        self, worker: _Worker, verdicts: dict[int, Verdict], selector: selectors.BaseSelector
    ) -> None:
        selector.unregister(worker.stdout)
        self._running.remove(worker)
        stuck = worker.process.poll() is None and time.monotonic() > worker.deadline
        code = worker.end()
        self._failed_starts = 0 if worker.ready else self._failed_starts + 1
        if (code > 0 and not worker.ready) or self._failed_starts > _STARTS:
            raise GradingError(
                "answers cannot be graded: the grading worker does not start; "
                "`python -m rpg.rewards.comparison_worker 1 1000000000` says why "
                "(pip install 'rpg-lab[math]' brings math-verify)"
            )
        if worker.job is not None:
            late = stuck or code == -signal.SIGPROF
            reason = f"time limit ({self.cpu_seconds:g} s)" if late else f"worker ended ({_ending(code)})"
            verdicts[worker.job] = False, reason
        replacement = _Worker(self.cpu_seconds, self.memory_bytes)
        self._running.append(replacement)
        selector.register(replacement.stdout, selectors.EVENT_READ, replacement)

    def close(self) -> None:
        """End all workers."""
        while self._running:
            self._running.pop().end()

    def __del__(self) -> None:
        self.close()


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
