"""The two ways to start a training: a process of ours, on its own Ray or one at an address, or a Ray job.

Both can be polled and stopped, and say in one line why they ended; their output goes to the attempt's log.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any, Protocol

import psutil

from rpg.backends.ray_connection import probe, use_token
from rpg.backends.training_process import TrainingFailed
from rpg.backends.verl.overrides import MAIN, Plan
from rpg.config.backend import RayAddress, RayJob
from rpg.errors import first_line
from rpg.processes import LOST, parent_mark, python_module

MARK = "RPG_VERL_RUN"
"""In the environment of every process of a run on this machine, so that all of them can be found and ended."""
GONE_SECONDS = 120.0
"""A cluster that does not answer for this long is considered gone."""
UNFINISHED = ("PENDING", "RUNNING")
"""Ray's states of a job that has not ended."""
_STOP_SECONDS = 60.0
_KILL_SECONDS = 10.0


class Job(Protocol):
    """A training under way."""

    lost: bool
    """Once it has ended: whether by what runs it rather than by a fault of its own."""

    def poll(self) -> str | None:
        """None while it runs, "" when it has succeeded, else why it ended."""

    def stop(self) -> None:
        """End it and everything it started."""


class ProcessJob:
    """verl's driver as a child of this process; it ends with us, and its Ray with it."""

    def __init__(self, plan: Plan, log: Path, mark: str):
        environment = {**os.environ, **plan.environment, MARK: mark, **parent_mark()}
        environment.pop("RAY_ADDRESS", None)  # the run says where its Ray is
        self._mark = mark
        self.lost = False
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                python_module(MAIN, *plan.arguments()),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                cwd=log.parent,  # Ray's workers import from the folder in which the driver stands
            )  # fmt: skip

    def poll(self) -> str | None:
        code = self._child.poll()
        if not code:
            return None if code is None else ""
        self.lost = code < 0 or code == LOST
        return "verl's driver " + (f"was killed by signal {-code}" if code < 0 else f"ended with code {code}")

    def stop(self) -> None:
        end_marked(self._mark)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(10)


def end_marked(mark: str) -> None:
    """Kill every process on this machine that carries the mark of a run.

    psutil's own function to wait is not used: it would take a child's exit code from the process that started it.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline and (  # again, for processes that are started meanwhile
        alive := [process for process in psutil.process_iter() if _is_marked(process, mark)]
    ):
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.1)


def _is_marked(process: psutil.Process, mark: str) -> bool:
    with contextlib.suppress(psutil.Error):
        marked = process.pid != os.getpid() and process.environ().get(MARK) == mark
        return marked and process.status() != psutil.STATUS_ZOMBIE
    return False


class ClusterJob:
    """A job submitted to a Ray cluster; it runs on without us, and is found again by its id."""

    lost = False

    def __init__(self, where: RayJob, submission_id: str):
        """Raises: TrainingFailed: nobody answers at the address."""
        self.address, self.id = where.address, submission_id
        self._client = _client(where.address)
        self._silent_since: float | None = None

    def status(self) -> str | None:
        """Ray's name of its state; None when the cluster does not know the job.

        Raises:
            TrainingFailed: the cluster does not answer; a second job must not be started beside a first.
        """
        try:
            states = {job.submission_id: str(job.status.value) for job in self._client.list_jobs()}
        except Exception as error:  # of requests, of Ray and of its server
            raise TrainingFailed(
                f"the Ray cluster at {self.address} does not say whether job {self.id} is still running: "
                f"{first_line(error)}"
            ) from error
        return states.get(self.id)

    def submit(self, plan: Plan, log: Path) -> None:
        """Start it; its output goes to `log`."""
        words = ["exec", "python", "-P", "-m", MAIN, *plan.arguments()]
        entrypoint = f"{shlex.join(words)} >> {shlex.quote(str(log))} 2>&1"
        environment = plan.runtime_env()
        try:
            self._client.submit_job(entrypoint=entrypoint, submission_id=self.id, runtime_env=environment)
        except Exception as error:  # of requests, of Ray and of its server
            why = f"{self.address} refuses the job: {first_line(error)}"
            raise TrainingFailed(f"backend.ray.address: {why}") from error

    def poll(self) -> str | None:
        try:
            info = self._client.get_job_info(self.id)
        except Exception as error:  # noqa: BLE001 (of requests, of Ray and of its server)
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if now - self._silent_since > GONE_SECONDS:
                return f"the Ray cluster at {self.address} is gone: {first_line(error)}"
            return None
        self._silent_since = None
        status = str(info.status.value)
        if status in (*UNFINISHED, "SUCCEEDED"):
            return None if status in UNFINISHED else ""
        return f"Ray job {self.id} {status}: {first_line(info.message or '')}"

    def stop(self) -> None:
        with contextlib.suppress(Exception):  # a cluster that is gone runs nothing
            self._client.stop_job(self.id)
            deadline = time.monotonic() + _STOP_SECONDS
            while time.monotonic() < deadline and self.status() in UNFINISHED:
                time.sleep(0.5)


def _client(address: str) -> Any:
    use_token()
    from ray.job_submission import JobSubmissionClient  # noqa: PLC0415 (Ray reads the token as it is imported)

    try:
        return JobSubmissionClient(address)
    except Exception as error:  # ConnectionError, RuntimeError for an old or foreign server, Ray's own
        if type(error).__name__ == "AuthenticationError":
            raise TrainingFailed(
                f"backend.ray.address: the Ray cluster at {address} requires a token: set RAY_AUTH_TOKEN, or "
                "RAY_AUTH_TOKEN_PATH to a copy of its ~/.ray/auth_token"
            ) from error
        raise TrainingFailed(
            f"backend.ray.address: no Ray cluster answers at {address} ({first_line(error)}); "
            "expected the address of its dashboard, e.g. http://127.0.0.1:8265"
        ) from error


def require_reachable(where: RayAddress) -> None:
    """Raises: TrainingFailed: nothing listens where verl's driver is to find its cluster."""
    use_token()
    try:
        if where.address != "auto":
            probe(where.address)
    except (OSError, ValueError) as error:
        raise TrainingFailed(
            f"backend.ray.address: no Ray cluster answers at {where.address} ({first_line(error)}); "
            "expected host:port of its head, e.g. 10.0.0.1:6379, or auto"
        ) from error
