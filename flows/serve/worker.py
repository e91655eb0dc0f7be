"""`rpg worker`: another machine that runs what is started at an `rpg serve`.

Both work in the same data folder. A flow run goes to whichever machine asks Prefect first, so a machine that has enough
to do (flows.serve.flow_runner.AT_ONCE) leaves it to the others; its trainings take slots, GPUs and locks as usual.
"""

from __future__ import annotations

import os
import socket
import threading
import time

from flows.prefect.flow_runs import folder_tag
from flows.prefect.server import HOST, SERVE_LOCK, WORKERS, ServerError, quiet_environment, using_api
from flows.serve.password import client_environment
from flows.serve.services import (
    LOOK_SECONDS,
    RECONCILE_SECONDS,
    Plan,
    Say,
    Service,
    clock,
    repair,
    services_of,
    stop_on_signals,
)  # fmt: skip
from rpg.config.errors import ConfigError
from rpg.processes import python_module
from rpg.store import Layout, locks


def join(layout: Layout, plan: Plan, say: Say) -> int:
    """Work for the server at `plan.api` until SIGINT or SIGTERM; returns the exit code.

    Raises:
        ConfigError: the server works in another data folder than this machine, or there is none here.
        ServerError: nobody answers there, or the worker ends again and again.
    """
    if not layout.home.is_dir():
        raise ConfigError(f"--home {layout.home}: no such folder; expected the data folder of the server")
    os.environ.update(quiet_environment(layout.home) | client_environment(plan.secret))
    host = socket.gethostname()
    path = layout.home / WORKERS / host
    _check(layout, plan)
    lock = locks.take(path, beat=True)
    if lock is None:
        say(f"this machine works for {plan.ui} already, {locks.who(path)}")
        return 0
    with lock:
        worker = services_of(layout, plan)[1]
        worker.command = python_module("flows.serve.flow_runner")
        worker.log = layout.home / "serve" / f"worker-{host}.log"
        stop = stop_on_signals()
        worker.start()
        say(f"{host} works for {plan.ui} in {layout.home}; its log: {worker.log}")
        say("Ctrl-C stops it, and what it runs")
        try:
            _watch(layout, plan, worker, stop, say)
        finally:
            worker.stop(0)
            time.sleep(0.5)  # the kernel ends its descendants one after the other
            repair(layout, plan.api, say)
            path.unlink(missing_ok=True)
    return 0


def _check(layout: Layout, plan: Plan) -> None:
    """Check that there is a server, and that it works in the data folder of this machine."""
    from prefect.client.orchestration import get_client

    try:
        socket.create_connection((HOST, plan.port), timeout=10).close()  # Prefect would try for long
        with using_api(plan.api), get_client(sync_client=True) as client:
            tags = client.read_deployment_by_name("sweep/sweep").tags
    except Exception as error:  # noqa: BLE001 (of the network, of httpx and of Prefect)
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = f"is it up, and the tunnel: ssh -N -L {plan.port}:127.0.0.1:{plan.port} THAT-MACHINE?"
        if "401" in why:
            hint = "it asks for a password: set RPG_AUTH, or give --auth"
        raise ServerError(f"no rpg serve at {plan.ui} ({why}); {hint}") from None
    if folder_tag(layout.home) not in tags:
        theirs = ", ".join(tag.removeprefix(folder_tag("")) for tag in tags if tag.startswith(folder_tag("")))
        raise ConfigError(
            f"--home {layout.home}: the server at {plan.ui} works in {theirs or 'another data folder'}; expected the same "
            "folder, at the same place, on storage that both machines share"
        )
    if not locks.alive(layout.home / SERVE_LOCK):
        raise ConfigError(
            f"--home {layout.home}: nobody serves this folder, as far as {layout.home / SERVE_LOCK} says, but "
            f"{plan.ui} does: it is not the same storage on both machines"
        )


def _watch(layout: Layout, plan: Plan, worker: Service, stop: threading.Event, say: Say) -> None:
    repaired = time.monotonic()
    while not stop.wait(LOOK_SECONDS):
        if worker.ended() is not None:
            worker.restart()
            say(f"{clock()} the worker ended: started again")
        if time.monotonic() - repaired > RECONCILE_SECONDS:
            repaired = time.monotonic()
            repair(layout, plan.api, say)
