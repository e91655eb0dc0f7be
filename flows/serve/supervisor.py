"""`rpg serve`: Prefect server, worker and dashboard as children of one process, on loopback, watched and restarted.

Whoever kills this process ends them all (rpg.processes); whoever kills one of them has it back a moment later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable

from flows.machine.slots import machine
from flows.prefect.concurrency import mirror
from flows.prefect.flow_runs import folder_tag
from flows.prefect.server import HOST, SERVE_LOCK, START_SECONDS, ServerError, quiet_environment
from flows.serve.password import client_environment
from flows.serve.problems import ServerLog, look, show
from flows.serve.services import Plan, Service, services_of
from rpg.config.errors import ConfigError
from rpg.store import Layout, StoreError, locks
from rpg.store.serve_health import write_problems

Say = Callable[[str], None]
LOOK_SECONDS = 1.0
HEALTH_SECONDS = 10.0
UNHEALTHY = 6
"""A service that does not answer this many times in a row is started again."""
RECONCILE_SECONDS = 60.0
START_TRIES = 5
"""A service that ends this often before everything is up is given up."""
RESTARTS = 10
"""A service that ends this often within five minutes is given up, and everything with it."""


def serve(layout: Layout, plan: Plan, say: Say) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code.

    A second call for the same data folder says where the first one is and returns 0.

    Raises:
        ConfigError: a port is taken, or a cron line or database URL cannot be used.
        ServerError: a service does not come up; the message names its log.
    """
    layout.home.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        quiet_environment(layout.home) | client_environment(plan.secret)
    )  # before Prefect is imported
    path = layout.home / SERVE_LOCK
    lock = locks.take(path, {"api": plan.api, "ui": plan.ui, "dashboard": plan.dashboard}, beat=True)
    if lock is None:
        first = locks.note(path)
        say(f"{layout.home} is already served by {locks.who(path)}:")
        _tell(say, str(first.get("ui", "?")), str(first.get("dashboard", "?")))
        return 0
    with lock:
        _check(plan)
        services = services_of(layout, plan)
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        try:
            _start(services, stop)
            _repair(layout, plan, services, say)
            if not stop.is_set():
                _tell(say, plan.ui, plan.dashboard)
                say(f"  access     {_access(plan)}")
                told = _tell_worker(services, None, say)
                say("Ctrl-C stops everything")
                _watch(layout, plan, services, stop, say, told)
        finally:
            _stop(layout, plan, services, say)
    return 0


def _tell(say: Say, ui: str, dashboard: str) -> None:
    say(f"  Prefect    {ui}/deployments")
    say(f"  dashboard  {dashboard}")


def _access(plan: Plan) -> str:
    if plan.secret:
        return "with the password you gave, or that of serve/auth in the data folder"
    return (
        "whoever has an account on this machine can start runs here and read everything; "
        "rpg serve --auth asks for a password"
    )


def _worker(services: list[Service]) -> Service:
    return next(service for service in services if service.name == "worker")


def _tell_worker(services: list[Service], told: list[int] | None, say: Say) -> list[int] | None:
    """Say where the worker listens when that is not what was `told` before: Prefect takes a free port there."""
    ports = _worker(services).ports()
    if not ports or ports == told:
        return told
    say(f"  worker     {HOST}:{', '.join(map(str, ports))} (its flow runs only, with a token)")
    return ports


def _check(plan: Plan) -> None:
    for option, port in (("--port", plan.port), ("--dashboard-port", plan.dashboard_port)):
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                raise ConfigError(
                    f"{option} {port}: in use on {HOST}; choose another, e.g. {option} {port + 11}"
                )
    if plan.port == plan.dashboard_port:
        raise ConfigError(f"--port and --dashboard-port are both {plan.port}; give two")
    if plan.database and not plan.database.startswith(("postgresql+asyncpg://", "sqlite+aiosqlite://")):
        raise ConfigError(
            "--database: expected postgresql+asyncpg://user:password@host:port/name or sqlite+aiosqlite:///file"
        )
    if plan.nightly:
        from prefect.client.schemas.schedules import CronSchedule
        from pydantic import ValidationError

        try:
            CronSchedule(cron=plan.nightly)
        except ValidationError as error:
            raise ConfigError(
                f"--nightly {plan.nightly!r}: {error.errors()[0]['msg']}; e.g. '0 2 * * *'"
            ) from None


def _start(services: list[Service], stop: threading.Event) -> None:
    """One after the other; what ends meanwhile is started again."""
    deadline = time.monotonic() + START_SECONDS
    for number, newest in enumerate(services, 1):
        newest.start()
        while not stop.is_set():
            ended = [service for service in services[:number] if service.ended() is not None]
            if not ended and newest.answers():
                break
            for service in ended:
                if len(service.starts) >= START_TRIES:
                    raise ServerError(f"the {service.name} did not come up; its log: {service.log}")
                service.start()
            if time.monotonic() > deadline:
                raise ServerError(f"the {newest.name} did not come up; its log: {newest.log}")
            time.sleep(0.2)


def _watch(
    layout: Layout,
    plan: Plan,
    services: list[Service],
    stop: threading.Event,
    say: Say,
    told: list[int] | None,
) -> None:
    """Start again what has ended or does not answer; repair what crashes left, and look whether what is due happens."""
    asked = repaired = began = time.monotonic()
    log, said = ServerLog(services[0].log), [""]
    while not stop.wait(LOOK_SECONDS):
        now = time.monotonic()
        told = _tell_worker(services, told, say)
        ask, asked = now - asked > HEALTH_SECONDS, now if now - asked > HEALTH_SECONDS else asked
        for service in services:
            code = service.ended()
            if code is None and ask:
                service.silent = 0 if service.answers() else service.silent + 1
            if code is not None or service.silent >= UNHEALTHY:
                if len(service.starts) >= RESTARTS:
                    raise ServerError(
                        f"the {service.name} has ended {RESTARTS} times; its log: {service.log}"
                    )
                how = "ended" if code is not None else "does not answer"
                say(f"{time.strftime('%H:%M:%S')} the {service.name} {how}: started again")
                service.stop(0)
                service.start()
                repaired = min(repaired, now - RECONCILE_SECONDS + 15)  # soon, when it is up
        if ask:
            _mirror(plan)
        if now - repaired > RECONCILE_SECONDS:
            repaired = now
            _repair(layout, plan, services, say)
            said = _examine(layout, plan, log, said, now - began, say)


def _mirror(plan: Plan) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    # The server may be what is being started again; a setting that cannot be used is said by what trains.
    with contextlib.suppress(Exception), temporary_settings({PREFECT_API_URL: plan.api}):
        mirror(machine())


def _examine(
    layout: Layout, plan: Plan, log: ServerLog, said: list[str], up_for: float, say: Say
) -> list[str]:
    """Say what is wrong where that has changed since it was `said`: here, in Prefect's UI, for `rpg status`."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    problems = log.problems(time.time())
    with temporary_settings({PREFECT_API_URL: plan.api}):
        try:
            problems += look(folder_tag(layout.home), up_for)
        except Exception as error:  # said by the health checks, where it lasts
            problems.append(f"Prefect's API does not answer: {type(error).__name__}")
        with contextlib.suppress(StoreError):  # a full disk: the terminal knows
            write_problems(layout.home, problems)
        if problems != said:
            for line in problems:
                say(f"{time.strftime('%H:%M:%S')} problem: {line}")
            if said and said != [""] and not problems:
                say(f"{time.strftime('%H:%M:%S')} what was wrong is over")
            with contextlib.suppress(Exception):  # the API may be what is wrong
                show(problems)
    return problems


def _repair(layout: Layout, plan: Plan, services: list[Service], say: Say) -> None:
    from flows.prefect.reconcile import reconcile

    try:
        for line in reconcile(layout, plan.api, _worker(services).since):
            say(f"{time.strftime('%H:%M:%S')} repaired: {line}")
    # A server that is just being restarted, a full disk: the next look is a minute away.
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else repr(error)
        say(f"{time.strftime('%H:%M:%S')} repair put off: {why}")


def _stop(layout: Layout, plan: Plan, services: list[Service], say: Say) -> None:
    """The worker first, and at once: its flow runs end with it, and the server can still be told."""
    by_name = {service.name: service for service in services}
    by_name["worker"].stop(0)
    by_name["worker"].since = time.time()  # nothing that is not finished by now will be
    by_name["dashboard"].stop(0)
    if by_name["server"].ended() is None and by_name["server"].answers():
        time.sleep(0.5)  # the kernel ends the worker's descendants one after the other
        _repair(layout, plan, services, say)
    by_name["server"].stop(3)
    say("stopped")
