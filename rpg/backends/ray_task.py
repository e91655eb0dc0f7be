"""One training on a node of a Ray cluster: the ordinary training process, with its own lock, lease
and log.

Ray keeps nothing of a run. Its files are in the data folder that all nodes share, so a run that is
lost with its node resumes from its last checkpoint wherever it is started next.

When the worker is killed (Ray does so when the conductor is gone), the training releases its lease
and ends: between the two stands rpg.backends.ray_supervisor. A training that was killed outright
would leave a lease that other hosts believe for two minutes.
"""

import os
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpg.errors import UserError
from rpg.store.lease import read_lease
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import clear_waiting
from rpg.system import provenance
from rpg.system.processes import parent_mark, python_module, thread_environment

SEEN_SECONDS = 60.0
"""How long a network file system may take to show what another host wrote."""


@dataclass(frozen=True)
class Order:
    """A training as it is sent to a node.

    Args:
        module: run as `python -m module FOLDER`.
        folder: that of the run, in a data folder that has the same path on every node.
        asked: {pid, boot, birth} of the asking process; where the data folder is shared the run's
            waiting.json has the same.
        threads: of the training process.
        environment: variables to add to those of the node.
        versions: package versions of the asking process.
        needs: {num_cpus, num_gpus, memory} that Ray reserves.
        wait_minutes: for a node that is large enough, where none is promised.
    """

    module: str
    folder: str
    asked: dict[str, Any]
    threads: int
    environment: dict[str, str]
    versions: dict[str, str]
    needs: dict[str, float]
    wait_minutes: float = 1.0


def train_here(order: Order) -> dict[str, Any]:
    """Train the run on this node. Returns {node, code, newest}: exit code (negative: the signal)
    and newest checkpoint. Raises UserError: this node has other package versions, or does not see
    the data folder.
    """
    _check_versions(order.versions)
    _check_folder(order)
    folder = RunFolder(Path(order.folder))
    clear_waiting(folder)
    with folder.log_path.open("ab") as output:
        command = python_module(order.module, order.folder, "--on-node")
        training = subprocess.Popen(
            python_module("rpg.backends.ray_supervisor", *command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                **order.environment,
                **thread_environment(order.threads),
                **parent_mark(),
            },
        )
    code = training.wait()
    return {
        "node": socket.gethostname(),
        "code": code,
        "newest": max(folder.checkpoint_steps(), default=-1),
    }


def _check_versions(versions: dict[str, str]) -> None:
    installed = provenance.embedded()
    different = {
        name: version for name, version in versions.items() if installed.get(name) != version
    }
    if different:
        pairs = (
            f"{n} {installed.get(n, 'is missing')} instead of {different[n]}" for n in different
        )
        raise UserError(
            f"backend.place: the cluster node {socket.gethostname()} has other versions of "
            "packages, so bits may differ: "
            f"{', '.join(pairs)}; install the same versions there"
        )


def _check_folder(order: Order) -> None:
    """Check that the run's folder is the one that the asking process has just written to."""
    path = Path(order.folder) / "waiting.json"
    home = Path(order.folder).parents[2]
    deadline = time.monotonic() + SEEN_SECONDS
    while True:
        note = read_lease(path) or {}
        if all(note.get(name) == value for name, value in order.asked.items()):
            return
        if not home.is_dir() or time.monotonic() > deadline:
            raise UserError(
                f"backend.place: the data folder {home} of this machine is not the one on "
                "the cluster node "
                f"{socket.gethostname()}; it must be on storage that all nodes share, at "
                "the same path"
            )
        time.sleep(0.5)
