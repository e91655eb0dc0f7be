"""The two ways a training is started: a process of ours (on a Ray of its own or of an address), or a Ray job.

Both are polled, stopped, and say in one line why they ended; what they print goes to the attempt's log.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from pathlib import Path
from typing import Protocol

from rpg.backends.ray_connection import use_token
from rpg.backends.training_process import TrainingFailed
from rpg.backends.verl.overrides import MAIN, Plan
from rpg.config.backend import RayAddress, RayJob
from rpg.processes import parent_mark, python_module

MARK = "RPG_VERL_RUN"
"""In the environment of every process of a run on this machine, so that each of them can be found and ended."""
GONE_SECONDS = 120.0
"""A cluster that does not answer for this long is taken for gone."""
_STOP_SECONDS = 60.0
_KILL_SECONDS = 10.0


class Job(Protocol):
    """A training under way."""

    def poll(self) -> str | None:
        """None while it goes on, "" when it has ended well, else why it ended."""

    def stop(self) -> None:
        """End it and everything it started."""


class ProcessJob:
    """verl's driver as a child of this process; it ends when we do, and its Ray with it."""

    def __init__(self, plan: Plan, log: Path, mark: str):
        environment = {**os.environ, **plan.environment, MARK: mark, **parent_mark()}
        environment.pop("RAY_ADDRESS", None)  # the run says where its Ray is
        self._mark = mark
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                python_module(MAIN, *plan.arguments()),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                cwd=log.parent,  # Ray's workers import from the folder in which the driver stands
            )  # fmt: skip

    def poll(self) -> str | None:
        code = self._child.poll()
        if code is None or code == 0:
            return "" if code == 0 else None
        how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"verl's driver was {how}" if code < 0 else f"verl's driver {how}"

    def stop(self) -> None:
        end_marked(self._mark)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(10)


def end_marked(mark: str) -> int:
    """Kill every process on this machine that carries the mark of a run; returns how many there were.

    Not by psutil's own waiting: it would take a child's exit code from the one who started it.
    """
    import psutil

    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:  # again, for what a process starts while it is being found
        living = 0
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                    if process.status() != psutil.STATUS_ZOMBIE:
                        living += 1
                        process.kill()
                        killed.add(process.pid)
        if not living:
            break
        time.sleep(0.1)
    return len(killed)


class ClusterJob:
    """A job that was handed in to a Ray cluster; it goes on without us, and is found again by its id."""

    def __init__(self, where: RayJob, submission_id: str):
        """Raises: TrainingFailed: nobody answers at the address."""
        self.address, self.id = where.address, submission_id
        self._client = _client(where.address)
        self._silent_since: float | None = None

    def status(self) -> str | None:
        """Ray's word for its state; None when the cluster does not know it.

        Raises:
            TrainingFailed: the cluster does not say, and a second job must not be started beside a first.
        """
        try:
            jobs = {job.submission_id: job for job in self._client.list_jobs()}
        except Exception as error:
            raise TrainingFailed(
                f"the Ray cluster at {self.address} does not say whether job {self.id} is still going: {_line(error)}"
            ) from error
        return str(jobs[self.id].status.value) if self.id in jobs else None

    def submit(self, plan: Plan, log: Path) -> None:
        """Hand it in."""
        words = ["exec", "python", "-P", "-m", MAIN, *plan.arguments()]
        entrypoint = f"{shlex.join(words)} >> {shlex.quote(str(log))} 2>&1"
        try:
            self._client.submit_job(
                entrypoint=entrypoint, submission_id=self.id, runtime_env=plan.runtime_env()
            )
        except Exception as error:  # Ray's client raises RuntimeError for what the server refuses
            raise TrainingFailed(
                f"backend.ray.address: {self.address} refuses the job: {_line(error)}"
            ) from error

    def poll(self) -> str | None:
        try:
            info = self._client.get_job_info(self.id)
        except Exception as error:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if now - self._silent_since > GONE_SECONDS:
                return f"the Ray cluster at {self.address} is gone: {_line(error)}"
            return None
        self._silent_since = None
        status = str(info.status.value)
        if status in ("PENDING", "RUNNING"):
            return None
        return "" if status == "SUCCEEDED" else f"Ray job {self.id} {status}: {_line(info.message or '')}"

    def stop(self) -> None:
        with contextlib.suppress(Exception):  # a cluster that is gone runs nothing
            self._client.stop_job(self.id)
            deadline = time.monotonic() + _STOP_SECONDS
            while time.monotonic() < deadline and self.status() in ("PENDING", "RUNNING"):
                time.sleep(0.5)


def _client(address: str):
    use_token()
    from ray.job_submission import JobSubmissionClient

    try:
        return JobSubmissionClient(address)
    except Exception as error:  # ConnectionError, and RuntimeError for an old or foreign server
        if type(error).__name__ == "AuthenticationError":
            raise TrainingFailed(
                f"backend.ray.address: the Ray cluster at {address} wants a token: set RAY_AUTH_TOKEN, or "
                "RAY_AUTH_TOKEN_PATH to a copy of its ~/.ray/auth_token"
            ) from error
        raise TrainingFailed(
            f"backend.ray.address: no Ray cluster answers at {address} ({_line(error)}); "
            "expected the address of its dashboard, e.g. http://127.0.0.1:8265"
        ) from error


def _line(error: object) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def reachable(where: RayAddress) -> None:
    """Make ready for a cluster that a driver of ours connects to.

    Raises:
        TrainingFailed: nobody listens at the address (Ray itself would try for a minute).
    """
    use_token()
    if where.address == "auto":
        return
    host, _, port = where.address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise TrainingFailed(
            f"backend.ray.address: no Ray cluster answers at {where.address} ({_line(error)}); "
            "expected host:port of its head, e.g. 10.0.0.1:6379, or auto"
        ) from error
