"""A command as a child of a flow run: its output becomes the log, and it ends with the flow run,
however that ends."""

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flows.prefect.service import end_group
from rpg.errors import UserError
from rpg.store import locks
from rpg.system.processes import child_environment, die_with_parent, owner_mark, python_module

ALIVE = Path("prefect") / "alive"
DASHBOARD = "RPG_DASHBOARD_URL"
"""In the environment of what `rpg serve` starts: where the dashboard is."""
WORK = "RPG_WORK"
"""Environment variable of a flow run's process: the folder in which `rpg serve` was started."""
COMMAND = "RPG_COMMAND"
"""Environment variable of a flow run's process: the module of the command `rpg`, a room above the
flows."""
FLOW_RUN = "RPG_FLOW_RUN"
"""In the environment of a command: the flow run that started it, to which the tasks of its sweeps
belong."""
GRACE_SECONDS = 7.0
"""Between SIGTERM and SIGKILL of the command, which gives its own children five."""
LAST_LINES = 40


def folder_tag(home: Path | str) -> str:
    """The tag of flow runs that work on this data folder: one Prefect server may serve several, on
    several machines."""
    return f"data {home}"


def alive_path(home: Path, flow_run: str, attempt: int) -> Path:
    """The lock of one attempt at a flow run; each retry has another."""
    return home / ALIVE / f"{flow_run}.{attempt}"


@contextmanager
def alive(home: Path, flow_run: str, attempt: int) -> Iterator[None]:
    """Hold the lock that shows that this attempt has a process (flows.prefect.reconcile checks it,
    on any machine)."""
    lock = locks.take(alive_path(home, flow_run, attempt), beat=True)
    if lock is None:
        raise UserError(f"flow run {flow_run} is already running in another process")
    with lock:
        try:
            yield
        finally:
            lock.path.unlink(missing_ok=True)


def follow(
    arguments: Sequence[str], say: Callable[[str], None], environment: dict[str, str]
) -> list[str]:
    """Run `rpg ARGUMENTS` to its end; returns its last lines.

    Call it directly in a flow: then a cancellation reaches this thread, and the whole process tree
    has ended within GRACE_SECONDS. UserError, with the command's last errors, if it ends with an
    exit code other than 0.
    """
    die_with_parent()
    child = subprocess.Popen(
        python_module("rpg.system.processes", os.environ[COMMAND], *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**child_environment(), **owner_mark(), "PYTHONUNBUFFERED": "1", **environment},
        text=True,
        errors="replace",
    )
    lines: deque[str] = deque(maxlen=LAST_LINES)

    def read() -> None:
        for line in child.stdout or ():
            if line.strip():
                lines.append(line.rstrip())
                say(line.rstrip())

    reader = threading.Thread(target=read, daemon=True, name="output")
    reader.start()
    try:
        while child.poll() is None:
            time.sleep(0.2)
        reader.join(timeout=5)
    finally:
        end_group(child, GRACE_SECONDS)
    if child.returncode:
        errors = [line for line in lines if line.startswith(("error:", "failed:"))]
        why = "; ".join(errors[-5:] or list(lines)[-1:])
        raise UserError(why or f"rpg {arguments[0]} ended with code {child.returncode}")
    return list(lines)
