"""`rpg serve`: Prefect server, worker and dashboard as children of one process, on loopback; `rpg
worker`: one more worker.

They all end with this process, even by `kill -9` (rpg.system.processes); one that ends by itself is
restarted.
"""

import contextlib
import os
import re
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from flows.prefect.flow_runs import folder_tag
from flows.prefect.reconcile import WORKERS
from flows.prefect.server import HOST, SERVE_LOCK, quiet_environment, using_api
from flows.prefect.service import ServerError, Service, start_in_turn
from flows.serve.services import (
    AT_ONCE,
    Plan,
    Say,
    client_environment,
    clock,
    repair,
    services_of,
    stop_on_signals,
)
from rpg.config.errors import ConfigError
from rpg.errors import first_line
from rpg.store import Layout, StoreError, locks
from rpg.store.live_status import write_problems
from rpg.system.processes import python_module

LOOK_SECONDS = 1.0
HEALTH_SECONDS = 10.0
RECONCILE_SECONDS = 60.0
UNHEALTHY = 6
"""A service that does not answer this many times in a row is started again."""
START_TRIES = 5
"""A service that ends this often before everything is up is given up."""
UNSCHEDULED_SECONDS = 180.0
"""Prefect's scheduler creates the runs of a schedule within a minute."""
LATE = timedelta(minutes=5)
"""A run that has been due for this long is late; a worker may be restarted within that time."""


def serve(layout: Layout, plan: Plan, say: Say) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code.

    A second call for the same data folder says where the first one is and returns 0. Raises
    ConfigError: a port is taken, or a cron line or database URL cannot be used. ServerError: a
    service does not come up; the message names its log.
    """
    layout.home.mkdir(parents=True, exist_ok=True)
    # before Prefect is imported
    os.environ.update(quiet_environment(layout.home) | client_environment(plan.secret))
    path = layout.home / SERVE_LOCK
    lock = locks.take(
        path, {"api": plan.api, "ui": plan.ui, "dashboard": plan.dashboard}, beat=True
    )
    if lock is None:
        first = locks.note(path)
        say(f"{layout.home} is already served by {locks.who(path)}:")
        _tell(say, str(first.get("ui", "?")), str(first.get("dashboard", "?")))
        return 0
    with lock:
        _check(plan)
        services = services_of(layout, plan)
        stop = stop_on_signals()
        try:
            start_in_turn(services, layout.home / "prefect", stop, START_TRIES)
            repair(layout, plan.api, say, services[1].since)
            if not stop.is_set():
                _tell(say, plan.ui, plan.dashboard)
                access = (
                    "with the password you gave, or the one in serve/auth of the data folder"
                    if plan.secret
                    else "anyone with an account on this machine can start runs here and read "
                    "everything; "
                    "rpg serve --auth asks for a password"
                )
                say(f"  access     {access}")
                _watch(layout, plan, services, stop, say)
        finally:
            _stop(layout, plan, services, say)
    return 0


def _tell(say: Say, ui: str, dashboard: str) -> None:
    say(f"  Prefect    {ui}/deployments")
    say(f"  dashboard  {dashboard}")


def _tell_ports(worker: Service, told: list[int] | None, say: Say) -> list[int] | None:
    """Say where the worker listens when that has changed since it was `told`: Prefect takes a free
    port there."""
    ports = worker.ports()
    if not ports or ports == told:
        return told
    say(f"  worker     {HOST}:{', '.join(map(str, ports))} (its flow runs only, with a token)")
    return ports


def _check(plan: Plan) -> None:
    for option, port in (("--port", plan.port), ("--dashboard-port", plan.dashboard_port)):
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                why = (
                    f"{option} {port}: in use on {HOST}; choose another, e.g. {option} {port + 11}"
                )
                raise ConfigError(why)
    if plan.port == plan.dashboard_port:
        raise ConfigError(
            f"--port and --dashboard-port are both {plan.port}; choose two different ports"
        )
    if plan.public and not re.fullmatch(
        r"https://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~-]+)*", plan.public
    ):
        raise ConfigError(
            f"--public-url {plan.public!r}: expected https://host or https://host/path, "
            "without a slash at the end"
        )
    if plan.database and not plan.database.startswith(
        ("postgresql+asyncpg://", "sqlite+aiosqlite://")
    ):
        raise ConfigError(
            "--database: expected postgresql+asyncpg://user:password@host:port/name or "
            "sqlite+aiosqlite:///file"
        )
    if plan.nightly:
        from prefect.client.schemas.schedules import CronSchedule

        try:
            CronSchedule(cron=plan.nightly)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise ConfigError(f"--nightly {plan.nightly!r}: {why}; e.g. '0 2 * * *'") from None


def _watch(
    layout: Layout, plan: Plan, services: list[Service], stop: threading.Event, say: Say
) -> None:
    """Restart what has ended or does not answer, repair what crashes left; beside the server, look
    for what is due."""
    worker = next(service for service in services if service.name == "worker")
    told = _tell_ports(worker, None, say)
    say("Ctrl-C stops everything")
    asked = repaired = time.monotonic()
    began = asked
    problems = None
    while not stop.wait(LOOK_SECONDS):
        now = time.monotonic()
        told = _tell_ports(worker, told, say)
        ask = now - asked > HEALTH_SECONDS
        if ask:
            asked = now
        for service in services:
            code = service.ended()
            if code is None and ask:
                service.silent = 0 if service.answers() else service.silent + 1
            if code is not None or service.silent >= UNHEALTHY:
                service.restart()
                why = "does not answer" if code is None else "ended"
                say(f"{clock()} the {service.name} {why}: restarted")
                repaired = min(repaired, now - RECONCILE_SECONDS + 15)  # soon, when it is up
        if now - repaired > RECONCILE_SECONDS:
            repaired = now
            repair(layout, plan.api, say, worker.since)
            if len(services) > 1:
                problems = _examine(layout, plan, say, now - began, problems)


def _examine(
    layout: Layout, plan: Plan, say: Say, up_for: float, told: list[str] | None
) -> list[str]:
    """Report problems: to the dashboard, to `rpg status`, and in the terminal where they are not
    those that were `told`."""
    try:
        with using_api(plan.api):
            problems = look(folder_tag(layout.home), up_for)
    except Exception as error:  # noqa: BLE001 (of the network, of httpx and of Prefect)
        problems = [f"Prefect's API does not answer: {type(error).__name__}"]
    with contextlib.suppress(StoreError):  # a full disk: the terminal shows it
        write_problems(layout.home, problems)
    for line in problems if problems != told else ():
        say(f"{clock()} problem: {line}")
    if told and not problems:
        say(f"{clock()} all problems are solved")
    return problems


def schedule_problems(
    deployments: list[Any], runs: list[Any], now: datetime, up_for: float, running: int = 0
) -> list[str]:
    """Schedules that cannot run or create no runs, and runs that nobody starts. `runs` are those in
    a scheduled state; `running` is the number of flow runs that go on."""
    active = [
        (deployment, [schedule for schedule in deployment.schedules if schedule.active])
        for deployment in deployments
        if not deployment.paused
    ]
    problems = []
    for deployment, schedules in active:
        lacking = [name for schedule in schedules for name in missing(deployment, schedule)]
        problems += [
            f"a schedule of {deployment.name} cannot run: it has no {name}; in Prefect, "
            "edit the schedule "
            f"or the defaults of the deployment {deployment.name}"
            for name in dict.fromkeys(lacking)
        ]
    scheduled = {run.deployment_id for run in runs}
    just_now = now - timedelta(
        seconds=UNSCHEDULED_SECONDS
    )  # an edit of one schedule makes all runs anew
    problems += [
        f"the schedule of {deployment.name} creates no runs: nothing will start when it is due; "
        "see serve/server.log in the data folder"
        for deployment, schedules in active
        if schedules
        if all(schedule.updated < just_now for schedule in deployment.schedules)
        if deployment.id not in scheduled and up_for > UNSCHEDULED_SECONDS
    ]
    late = [run for run in runs if run.expected_start_time and now - run.expected_start_time > LATE]
    return problems + ([_lateness(late, deployments, running)] if late else [])


def missing(deployment: Any, schedule: Any) -> list[str]:
    """The required fields of the form that neither the schedule nor the deployment has a value
    for."""
    required = (deployment.parameter_openapi_schema or {}).get("required", [])
    values = {**(deployment.parameters or {}), **(schedule.parameters or {})}
    return [name for name in required if values.get(name) in (None, "")]


def _lateness(late: list[Any], deployments: list[Any], running: int) -> str:
    first = min(late, key=lambda run: run.expected_start_time)
    names = {deployment.id: deployment.name for deployment in deployments}
    name = names.get(first.deployment_id, first.name)
    why = f"{running} flow runs are running, the most that may; the next begins when one ends"
    if running < AT_ONCE:
        why = "the worker starts none, see serve/worker.log"
    return (
        f"{len(late)} flow run{'s are' if len(late) > 1 else ' is'} late; the first, "
        f"{name}, was due at "
        f"{first.expected_start_time.astimezone():%Y-%m-%d %H:%M}: {why}"
    )


def look(tag: str, up_for: float) -> list[str]:
    """Problems with the schedules and runs of the deployments with this tag, according to the
    Prefect API in the settings, `up_for` seconds after server and worker were started: a schedule
    that creates no runs is "Ready" in Prefect's UI."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter

    with get_client(sync_client=True) as client:
        ours = {"tags": {"all_": [tag]}}
        scheduled = {**ours, "state": {"type": {"any_": ["SCHEDULED"]}}}
        going_on = {**ours, "state": {"type": {"any_": ["RUNNING", "PENDING"]}}}
        deployments = client.read_deployments(
            deployment_filter=DeploymentFilter.model_validate(ours)
        )
        runs = client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(scheduled))
        running = client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(going_on))
        return schedule_problems(deployments, runs, datetime.now(UTC), up_for, len(running))


def _stop(layout: Layout, plan: Plan, services: list[Service], say: Say) -> None:
    """The worker first, and at once: its flow runs end with it, and the server can still be
    told."""
    server, worker, dashboard = services
    worker.stop(0)
    worker.since = time.time()  # nothing that is not finished by now will be
    dashboard.stop(0)
    if server.ended() is None and server.answers():
        time.sleep(0.5)  # the kernel ends the worker's descendants one after the other
        repair(layout, plan.api, say, services[1].since)
    server.stop(3)
    say("stopped")


def join(layout: Layout, plan: Plan, say: Say) -> int:
    """Work for the server at `plan.api` until SIGINT or SIGTERM; returns the exit code.

    Both work in the same data folder. A flow run goes to whichever machine asks Prefect first, so a
    machine that has enough to do (flows.serve.services.AT_ONCE) leaves it to the others; its
    trainings take slots, GPUs and locks.

    Raises ConfigError: the server works in another data folder than this machine, or there is none
    here. ServerError: nobody answers there, or the worker ends again and again.
    """
    if not layout.home.is_dir():
        raise ConfigError(
            f"--home {layout.home}: no such folder; expected the data folder of the server"
        )
    os.environ.update(quiet_environment(layout.home) | client_environment(plan.secret))
    host = socket.gethostname()
    path = layout.home / WORKERS / host
    _check_server(layout, plan)
    lock = locks.take(path, beat=True)
    if lock is None:
        say(f"this machine already works for {plan.ui}, {locks.who(path)}")
        return 0
    with lock:
        worker = services_of(layout, plan)[1]
        worker.command = python_module("flows.serve.flow_runner")
        worker.log = layout.home / "serve" / f"worker-{host}.log"
        stop = stop_on_signals()
        worker.start()
        say(f"{host} works for {plan.ui} in {layout.home}; its log: {worker.log}")
        try:
            _watch(layout, plan, [worker], stop, say)
        finally:
            worker.stop(0)
            time.sleep(0.5)  # the kernel ends its descendants one after the other
            repair(layout, plan.api, say)
            path.unlink(missing_ok=True)
    return 0


def _check_server(layout: Layout, plan: Plan) -> None:
    """Check that there is a server, and that it works in the data folder of this machine."""
    from prefect.client.orchestration import get_client

    try:
        socket.create_connection(
            (HOST, plan.port), timeout=10
        ).close()  # Prefect would try for long
        with using_api(plan.api), get_client(sync_client=True) as client:
            tags = client.read_deployment_by_name("sweep/sweep").tags
    except Exception as error:  # noqa: BLE001 (of the network, of httpx and of Prefect)
        why = first_line(error)
        hint = (
            f"is it running, and the tunnel open? ssh -N -L {plan.port}:127.0.0.1:{plan.port} "
            "THAT-MACHINE"
        )
        if "401" in why:
            hint = "it requires a password: set RPG_AUTH, or pass --auth"
        raise ServerError(f"no rpg serve at {plan.ui} ({why}); {hint}") from None
    if folder_tag(layout.home) not in tags:
        theirs = ", ".join(
            tag.removeprefix(folder_tag("")) for tag in tags if tag.startswith(folder_tag(""))
        )
        raise ConfigError(
            f"--home {layout.home}: the server at {plan.ui} works in "
            f"{theirs or 'another data folder'}; expected the same "
            "folder, at the same path, on storage that both machines share"
        )
    if not locks.alive(layout.home / SERVE_LOCK):
        raise ConfigError(
            f"--home {layout.home}: {layout.home / SERVE_LOCK} says that no server uses "
            f"this folder, but {plan.ui} does: "
            "the storage is not the same on both machines"
        )
