"""Children of a sweep: each in its own process group, none of which outlives the sweep."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flows.machine.programs import last_line
from flows.machine.ray_cluster import Cluster, Remote
from flows.machine.slurm_queue import SlurmQueue
from rpg.system.fork_server import ForkedProcess, ForkServer
from rpg.system.processes import (
    child_environment,
    end_descendants,
    owner_mark,
    python_module,
    thread_environment,
)

Child = subprocess.Popen[bytes] | ForkedProcess | Remote
GRACE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL: a trainer leaves its files consistent at any moment, so this is a
courtesy."""


class Stopped(Exception):
    """The sweep was told to stop while this child was running or waiting to start."""


class Children:
    """Starts one-thread Python children and ends every one of them on `stop()`.

    A child leads its own process group, so that whatever it starts ends with it; it also watches
    for the death of its parent (see rpg.backends.training_process), so that `kill -9` of the sweep
    leaves no orphan.
    """

    def __init__(self, fork_server: ForkServer | None = None) -> None:
        self._fork_server = fork_server
        self._running: set[Child] = set()
        self._clusters: dict[str, Cluster] = {}
        self._slurm: SlurmQueue | None = None
        self._lock = threading.Lock()
        self.stopping = threading.Event()

    def start(
        self,
        module: str,
        *args: str | Path,
        log: Path,
        threads: int = 1,
        stdin: int = subprocess.DEVNULL,
        keep: Sequence[int] = (),
        extra: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        """Start `python -m module args`, its output appended to `log`: forked from the fork server,
        where there is one.

        `keep` are open files the child inherits (locks it is to hold), `extra` goes over its
        environment.
        """
        environment = {
            **child_environment(),
            **thread_environment(threads),
            **owner_mark(),
            **(extra or {}),
        }
        with self._lock, log.open("ab") as output:
            self._check_going()
            child: subprocess.Popen[bytes] | ForkedProcess | None = None
            if self._fork_server is not None and threads == 1:
                child = self._fork_server.start(
                    module,
                    [str(arg) for arg in args],
                    output.fileno(),
                    pipe=stdin == subprocess.PIPE,
                    keep=keep,
                    environment=extra or {},
                )
            if child is None:
                self._check_going()  # `stop` has ended the fork server
                child = subprocess.Popen(
                    python_module(module, *args),
                    stdin=stdin,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=keep,
                    env=environment,
                )
            self._running.add(child)
        return child

    def _check_going(self) -> None:
        if self.stopping.is_set():
            raise Stopped

    def cluster(self, address: str, log: Path) -> Cluster:
        """The connection to a Ray cluster, on which trainings run that are not processes of this
        machine."""
        with self._lock:
            self._check_going()
            return self._clusters.setdefault(address, Cluster(address, log))

    def slurm(self, sweep: Path) -> SlurmQueue:
        """The Slurm jobs of the sweep in this folder. From the first call on, `stop` cancels
        them."""
        with self._lock:
            self._check_going()
            self._slurm = self._slurm or SlurmQueue(sweep)
            return self._slurm

    def watch(self, children: Sequence[Child], log: Path, note: Callable[[str], None]) -> list[int]:
        """The exit codes of children that share a log; `note` gets the log's last line until all
        have ended."""
        while any(child.poll() is None for child in children):
            note(last_line(log))
            time.sleep(0.2)
        return [self.wait(child) for child in children]

    def wait(self, child: Child) -> int:
        """The child's exit code; raises Stopped when the sweep is being stopped."""
        try:
            code = child.wait()
        finally:
            self.kill(child)  # grandchildren, if any
            with self._lock:
                self._running.discard(child)
        if self.stopping.is_set():
            raise Stopped
        return code

    def stop(self) -> None:
        """End every child's whole group: SIGTERM, a short grace, SIGKILL. Safe to call twice and
        from a handler."""
        self.stopping.set()
        running = list(self._running)
        for child in running:
            self.kill(child, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        for cluster in self._clusters.values():
            cluster.close()
        if self._slurm is not None:
            self._slurm.close()
        while time.monotonic() < deadline and any(child.poll() is None for child in running):
            time.sleep(0.05)
        for child in running:
            self.kill(child)
        if self._fork_server is not None:
            self._fork_server.close()
        end_descendants()  # what has left its group, as Ray's processes do

    @staticmethod
    def kill(child: Child, how: int = signal.SIGKILL) -> None:
        """Send a signal to the child's group; a Remote ends with the connection to its cluster, or
        its job."""
        if not isinstance(child, Remote):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, how)
