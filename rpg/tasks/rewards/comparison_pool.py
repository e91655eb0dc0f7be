"""Worker processes that compare answers, any of which can be killed at the cost of one answer."""

import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rpg.errors import UserError, install_command
from rpg.tasks.rewards.json_process import Ended, JsonProcess, Late

CPU_SECONDS = 3.0
"""Processor time for one answer; more and it is wrong. No gold answer of the shipped benchmarks
needs a tenth."""
MEMORY_BYTES = 1 << 30
_WALL_FACTOR = 20.0
"""Wall time that may pass per second of the limit before a worker counts as stuck (a busy machine
is slow, too)."""
_START_SECONDS = 120.0
"""For the imports of a worker, cold and on a busy machine."""
_STARTS = 4
"""Workers in a row that may be killed while they start (memory is short, say) before that is an
error."""
_WORKER = "rpg.tasks.rewards.comparison_worker"


class GradingError(UserError):
    """The worker processes cannot be started."""


class Pool:
    """Compares answers with gold answers in `workers` processes of `module`, which start at first
    use.

    Not for use by several threads at once.
    """

    def __init__(self, workers: int, cpu_seconds: float, memory_bytes: int, module: str = _WORKER):
        self.workers = workers
        self.cpu_seconds = cpu_seconds
        self.memory_bytes = memory_bytes
        self.module = module
        self._idle: list[JsonProcess] = []

    def ask(self, questions: Sequence[tuple[Any, ...]]) -> list[tuple[Any, str]]:
        """Verdict and reason of the workers for each question, in order; one that exceeds the time
        or memory limit, or ends its worker, is False, and the reason says so. Raises GradingError:
        a worker cannot be started.
        """
        if self.workers == 1:
            return [self._verdict(question) for question in questions]
        with ThreadPoolExecutor(self.workers) as threads:  # each waits for one process
            return list(threads.map(self._verdict, questions))

    def _verdict(self, question: tuple[Any, ...]) -> tuple[Any, str]:
        worker = self._worker()
        try:
            right, reason = worker.ask(question, self.cpu_seconds * _WALL_FACTOR)
        except BaseException as error:
            worker.end()
            if isinstance(error, Late) or (
                isinstance(error, Ended) and error.code == -signal.SIGPROF
            ):
                return False, f"time limit ({self.cpu_seconds:g} s)"
            if isinstance(error, Ended):
                return False, f"worker ended ({error})"
            raise
        self._idle.append(worker)
        return right, reason

    def _worker(self) -> JsonProcess:
        """One that has no question, and lives as far as can be seen."""
        while self._idle:
            worker = self._idle.pop()
            if worker.process.poll() is None:
                return worker
            worker.end()
        for _ in range(_STARTS):
            # The hash seed: some data sets of Reasoning Gym depend on it (rpg.tasks.gym_problems).
            environment = {
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONHASHSEED": "0",
            }
            worker = JsonProcess(self.module, environment, subprocess.DEVNULL)
            try:
                worker.ask([self.cpu_seconds, self.memory_bytes], _START_SECONDS)
            except (Late, Ended) as error:
                worker.end()
                if isinstance(error, Ended) and error.code > 0:
                    break
            else:
                return worker
        raise GradingError(
            "answers cannot be graded: the grading worker does not start; "
            f"`echo '[1, {self.memory_bytes}]' | python -m {self.module}` says why "
            f"({install_command('math', 'tasks')} "
            "brings math-verify and reasoning-gym)"
        )

    def close(self) -> None:
        """End all workers."""
        while self._idle:
            self._idle.pop().end()

    def __del__(self) -> None:
        self.close()
