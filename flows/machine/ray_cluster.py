"""Trainings on a Ray cluster, as a conductor sees them (rpg.backends.ray_bridge is the process that
talks with Ray)."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from flows.machine.programs import RAY_BRIDGE
from rpg.errors import UserError
from rpg.store import RunFolder, StoreError
from rpg.store.run_writer import write_waiting
from rpg.system import provenance
from rpg.system.processes import (
    LOST,
    PARENT,
    birth,
    child_environment,
    here,
    owner_mark,
    python_module,
)

RELEASE_SECONDS = 4.0
NOT_SENT = {
    PARENT,
    "RPG_OWNED_BY",
    "RPG_SLOTS",
    "RPG_SLOTS_FOLDER",
    "RPG_WORK",
    "RPG_FLOW_RUN",
    "RPG_AUTH",
}
"""Variables of ours that mean nothing on another machine, or that nobody else shall see."""


class ClusterGone(UserError):
    """The Ray cluster of a sweep cannot be reached; the message says what to do."""


class Remote:
    """A training on the cluster, with as much of Popen's interface as a sweep uses."""

    stdin = None

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.returncode: int | None = None
        self.answer: dict[str, Any] = {}
        self._ended = threading.Event()

    def answered(self, answer: dict[str, Any]) -> None:
        """What became of it: {code: exit code}, {refused: why} or {lost: why}."""
        self.answer = answer
        self.returncode = answer.get("code", LOST)
        self._ended.set()

    def waits(self, why: str) -> None:
        """Say so in the run's log and state, where no training of it has begun."""
        with suppress(OSError, StoreError):
            if self.folder.waiting():
                write_waiting(self.folder, why)
                with self.folder.log_path.open("a") as log:
                    log.write(f"{time.strftime('%H:%M')} {why}\n")

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int:
        self._ended.wait()
        return LOST if self.returncode is None else self.returncode


class Cluster:
    """The connection of one sweep to one Ray cluster; made when it is first needed, and again when
    it was lost."""

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self._log = log
        self._changed = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._ready = self._closed = self._was_up = False
        self._error: str | None = None
        self._running: dict[str, Remote] = {}
        self._keys = map(str, count(1))

    def start(
        self,
        module: str,
        folder: RunFolder,
        threads: int,
        needs: Mapping[str, float],
        minutes: float = 1.0,
    ) -> Remote:
        """Ask for a training, which waits until a node has room; ClusterGone if there is no such
        cluster (any more)."""
        ours = {name: value for name, value in os.environ.items() if name.startswith("RPG_")}
        order = {
            "module": module,
            "folder": str(folder.path),
            "asked": {"pid": os.getpid(), "boot": here()["boot"], "birth": birth(os.getpid())},
            "threads": threads,
            "environment": {name: value for name, value in ours.items() if name not in NOT_SENT},
            "versions": provenance.embedded(),
            "needs": dict(needs),
            "wait_minutes": minutes,
        }
        with self._changed:
            self._connect()
            remote = Remote(folder)
            key = next(self._keys)
            self._running[key] = remote
            assert self._process is not None and self._process.stdin is not None
            with suppress(OSError):  # it has just ended; the listener says so to all
                self._process.stdin.write(json.dumps({"key": key, **order}) + "\n")
                self._process.stdin.flush()
            return remote

    def _connect(self) -> None:
        """With the lock held: until the process is there and knows its cluster."""
        if self._process is None and not self._closed:
            self._error = None
            self._ready = False
            begun = threading.Event()
            # The process ends with the thread that starts it
            # (rpg.system.processes.die_with_parent).
            threading.Thread(
                target=self._keep, args=(begun,), name="ray cluster", daemon=True
            ).start()
            begun.wait()
        self._changed.wait_for(lambda: self._ready or self._error is not None or self._closed)
        if not self._ready:
            again = "; run the same command again, and every run continues from its last checkpoint"
            why = self._error or "the connection was closed"
            raise ClusterGone(why + again if self._was_up else why)

    def _keep(self, begun: threading.Event) -> None:
        try:
            with self._log.open("ab") as output:
                process = self._process = subprocess.Popen(
                    python_module(RAY_BRIDGE, self.address),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    text=True,
                    start_new_session=True,
                    env={
                        **child_environment(),
                        **owner_mark(),
                        "OMP_NUM_THREADS": "1",
                        "PYTHONUNBUFFERED": "1",
                    },
                )
        except OSError as error:
            self._error = f"the process for the Ray cluster cannot be started: {error.strerror}"
            return
        finally:
            begun.set()
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            with self._changed:
                if "waits" in message:
                    self._running[message["key"]].waits(message["waits"])
                elif "key" in message:
                    self._running.pop(message["key"]).answered(message)
                elif "error" in message:
                    self._error = message["error"]
                else:
                    self._ready = self._was_up = True
                self._changed.notify_all()
        process.wait()
        with self._changed:
            lost = f"backend.place: the Ray cluster at {self.address!r} was lost (log: {self._log})"
            self._error = self._error or lost
            self._process = None
            self._ready = False
            for remote in self._running.values():
                remote.answered({"lost": "the connection to the Ray cluster was lost"})
            self._running.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """End all trainings there; when this returns they have given their leases back, as far as
        can be seen."""
        running = [remote.folder for remote in self._running.values()]
        self._closed = True
        if self._process is not None:
            self._process.kill()
        await_release(running)


def await_release(folders: Sequence[RunFolder]) -> None:
    """Wait until trainings that were told to end have given their leases back, for RELEASE_SECONDS
    at most."""
    deadline = time.monotonic() + RELEASE_SECONDS
    while time.monotonic() < deadline and any(folder.lease() for folder in folders):
        time.sleep(0.1)
