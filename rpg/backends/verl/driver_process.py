"""verl's driver as a child of the launcher: it ends with the launcher, and what it started here
with it."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import psutil

from rpg.backends.ray_connection import probe, use_token
from rpg.backends.training_process import TrainingFailed
from rpg.backends.verl.overrides import MAIN, LaunchPlan
from rpg.config.backend import RayAddress
from rpg.errors import first_line
from rpg.system.processes import parent_mark, python_module

MARK = "RPG_VERL_RUN"
"""In the environment of every process of a run on this machine, so that all of them can be found
and ended."""


def start_driver(plan: LaunchPlan, log: Path, mark: str) -> subprocess.Popen[bytes]:
    """Start a training; its output goes to `log`."""
    environment = {**os.environ, **plan.environment, MARK: mark, **parent_mark()}
    environment.pop("RAY_ADDRESS", None)  # the run says where its Ray is
    with log.open("ab") as output:
        return subprocess.Popen(
            python_module(MAIN, *plan.arguments()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,  # Ray's workers import from the folder in which the driver stands
        )


def end_marked(mark: str) -> None:
    """Kill every process on this machine that carries the mark of a run.

    psutil's own function to wait is not used: it would take a child's exit code from the process
    that started it.
    """
    deadline = time.monotonic() + 10.0
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


def require_reachable(where: RayAddress) -> None:
    """Raises: TrainingFailed: nothing listens where verl's driver is to find its cluster."""
    use_token()
    try:
        if where.address != "auto":
            probe(where.address)
    except (OSError, ValueError) as error:
        raise TrainingFailed(
            f"backend.ray.address: no Ray cluster answers at {where.address} "
            f"({first_line(error)}); "
            "expected host:port of its head, e.g. 10.0.0.1:6379, or auto"
        ) from error
