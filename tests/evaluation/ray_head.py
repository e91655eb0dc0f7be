"""A Ray cluster of one node on loopback, for as long as the tests need it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.waiting import HANG, free_port, until

QUIET = "--include-log-monitor=false"
"""No process that watches what the workers print, to tell a driver who does not ask for it."""


def _dashboard(port: int | None) -> list[str]:
    """A job's log, with its dashboard, does ask for it."""
    if port is None:
        return ["--include-dashboard=false", "--no-monitor", QUIET]  # nor an autoscaler
    return [f"--dashboard-port={port}"]


def node_command(address: str, ip: str, cpus: int = 1) -> list[str]:
    """The command of one more node, to be started as a host (tests.places), with which all of its
    processes end.

    One after the other: nodes of one machine that start at once choose the same names for their
    sockets.
    """
    return [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--block",
        f"--address={address}",
        f"--node-ip-address={ip}",
        f"--num-cpus={cpus}",
        "--object-store-memory=80000000",
        "--disable-usage-stats",
        QUIET,
        f"--dashboard-agent-listen-port={free_port()}",
        f"--dashboard-agent-grpc-port={free_port()}",
        f"--runtime-env-agent-port={free_port()}",
    ]


@contextlib.contextmanager
def ray_head(cpus: int = 2, dashboard: int | None = None):
    """Yields `host:port`. All ports are free ones, and only the processes started here are ended.

    With a port for its `dashboard` the cluster takes jobs there. Ray's control server listens on
    every interface, whatever it is told: unless RAY_AUTH_MODE says otherwise it asks for a token,
    which Ray makes. Whatever is started while it is up inherits that a worker may take long to
    start, as it does beside other tests: after its 60 seconds Ray ends it and starts another, which
    takes as long.
    """
    port = free_port()
    folder = Path(
        tempfile.mkdtemp(prefix="rpg-ray-", dir="/tmp")
    )  # a socket's path may have 107 characters
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--port={port}",
        f"--num-cpus={cpus}",
        *_dashboard(dashboard),
        "--object-store-memory=80000000",
        f"--temp-dir={folder}",
        "--disable-usage-stats",
        f"--dashboard-agent-listen-port={free_port()}",
        f"--dashboard-agent-grpc-port={free_port()}",
        f"--runtime-env-agent-port={free_port()}",
        f"--ray-client-server-port={free_port()}",
    ]
    patience = pytest.MonkeyPatch()
    patience.setenv("RAY_worker_register_timeout_seconds", str(int(HANG)))
    with open(folder / "head.log", "wb") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:

        def started():
            return b"Ray runtime started" in (folder / "head.log").read_bytes()

        def ended():
            if head.poll() is not None:
                pytest.fail((folder / "head.log").read_text()[-2000:])

        until(started, "Ray's head", ended)
        yield f"127.0.0.1:{port}"
    finally:
        patience.undo()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)  # its workers end when they miss it
        head.wait()
        shutil.rmtree(folder, ignore_errors=True)
