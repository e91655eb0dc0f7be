"""One training on a node of a Ray cluster: the ordinary training process, with its own lock, lease and log.

Nothing of a run is kept by Ray: its files lie in the data folder that all nodes share, so a run that is lost with its
node goes on from its last checkpoint wherever it is started next.

Whoever ends the worker (Ray does, when the conductor is gone), the training gives its lease back and ends: between them
stands the process that the training is forked from (rpg.fork_server), or rpg.backends.ray_supervisor where it is not forked. Killed
outright it would leave a lease that other hosts believe for two minutes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rpg import provenance
from rpg.errors import UserError
from rpg.fork_server import FORKED, Awaited, ForkServer
from rpg.processes import parent_mark, python_module
from rpg.store.lease import read_lease
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import clear_waiting

SEEN_SECONDS = 60.0
"""How long a network file system may take until it shows here what another host wrote."""
FORK_SERVER_LOG = "fork-server.log"
"""In the sweep's folder: what the processes that trainings are forked from have to say."""
_fork_servers: dict[str, ForkServer] = {}
"""Of this process, by the module whose processes it forks: a worker of Ray gets one training after the other."""


@dataclass(frozen=True)
class Order:
    """A training as it is sent to a node.

    Args:
        module: what is run as `python -m module FOLDER`.
        folder, home: the run's folder and the data folder, at the same place on every node.
        asked: {pid, boot, birth} of who asks; the run's waiting.json says the same where the data folder is shared.
        threads: of the training process.
        environment: what the process shall find there besides what the node has.
        versions: packages of who asks.
        needs: {num_cpus, num_gpus, memory} that Ray reserves.
    """

    module: str
    folder: str
    home: str
    asked: dict[str, Any]
    threads: int
    environment: dict[str, str]
    versions: dict[str, str]
    needs: dict[str, float]


def train_here(order: Order) -> dict[str, Any]:
    """Train the run on this node; {node, code, newest}: its exit code (negative: the signal) and newest checkpoint.

    Raises:
        UserError: this node has other packages, or does not show the data folder.
    """
    _check_versions(order.versions)
    _check_folder(order)
    folder = RunFolder(Path(order.folder))
    clear_waiting(folder)
    with folder.log_path.open("ab") as output:
        child = _forked(order, folder, output.fileno()) or _started(order, output)
    code = child.wait()
    return {
        "node": socket.gethostname(),
        "code": code,
        "newest": (folder.checkpoint_steps() or [-1])[-1],
    }


def _forked(order: Order, folder: RunFolder, log: int) -> Awaited | None:
    """The training, forked from this worker's fork server; None where it has to be started.

    A worker that has used a GPU gets no second training from Ray: a fork server there would only cost time.
    """
    if (
        sys.platform != "linux"
        or order.module not in FORKED
        or order.threads != 1
        or order.needs.get("num_gpus")
    ):
        return None
    if order.module not in _fork_servers:
        _fork_servers[order.module] = ForkServer(
            folder.path.parent / FORK_SERVER_LOG,
            [order.module],
            order.environment | parent_mark(),
            Path(order.home),
        )
    return _fork_servers[order.module].start(
        order.module, _arguments(order), log, False, [], order.environment
    )


def _started(order: Order, output: IO[bytes]) -> subprocess.Popen[bytes]:
    threads = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(order.threads)
    )
    usual = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        python_module("rpg.backends.ray_supervisor", *python_module(order.module, *_arguments(order))),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=order.home,
        start_new_session=True,
        env={**os.environ, **order.environment, **threads, **usual, **parent_mark()},
    )


def _arguments(order: Order) -> list[str]:
    return [order.folder, "--home", order.home, "--on-node"]


def _check_versions(wanted: dict[str, str]) -> None:
    there = provenance.embedded()
    other = [
        f"{name} {there.get(name, 'is missing')} instead of {version}"
        for name, version in wanted.items()
        if there.get(name) != version
    ]
    if other:
        raise UserError(
            f"backend.place: the cluster node {socket.gethostname()} has other packages, with which the bits may differ: "
            f"{', '.join(other)}; install the same versions there"
        )


def _check_folder(order: Order) -> None:
    """That the run's folder is the one which the asking process has just written to."""
    path = Path(order.folder) / "waiting.json"
    deadline = time.monotonic() + SEEN_SECONDS
    while True:
        note = read_lease(path) or {}
        if all(note.get(name) == value for name, value in order.asked.items()):
            return
        if not Path(order.home).is_dir() or time.monotonic() > deadline:
            raise UserError(
                f"backend.place: the data folder {order.home} of this machine is not the one on the cluster node "
                f"{socket.gethostname()}; it must be on storage that all nodes share, at the same place"
            )
        time.sleep(0.5)
