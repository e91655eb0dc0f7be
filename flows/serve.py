"""`rpg serve`: Prefect server, worker and dashboard as children of one process, on loopback, watched and restarted.

Whoever kills this process ends them all (rpg.guard); whoever kills one of them has it back a moment later.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flows.server import HOST, SERVE_LOCK, START_SECONDS, ServerError, quiet_environment
from rpg.config.errors import ConfigError
from rpg.guard import owner_mark
from rpg.store import Layout, locks

DASHBOARD = "RPG_DASHBOARD_URL"
Say = Callable[[str], None]
LOOK_SECONDS = 1.0
HEALTH_SECONDS = 10.0
UNHEALTHY = 6
"""A part that does not answer this many times in a row is started again."""
RECONCILE_SECONDS = 60.0
RESTARTS = 10
"""A part that ends this often within five minutes is given up, and everything with it."""


@dataclass(frozen=True)
class Plan:
    """What to serve: ports, the database's URL (None: SQLite), the cron line of the nights ("": none)."""

    port: int
    dashboard_port: int
    database: str | None
    nightly: str

    @property
    def ui(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def api(self) -> str:
        return f"{self.ui}/api"

    @property
    def dashboard(self) -> str:
        return f"http://{HOST}:{self.dashboard_port}"


@dataclass
class Part:
    """One child: its command, where its health can be asked, and when it was started."""

    name: str
    command: list[str]
    health: str | None
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen | None = None
    starts: list[float] = field(default_factory=list)
    silent: int = 0

    def start(self) -> None:
        self.starts = [t for t in self.starts if time.monotonic() - t < 300] + [time.monotonic()]
        self.silent = 0
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, **self.environment, **owner_mark()},
            )  # fmt: skip

    def ended(self) -> int | None:
        return self.process.poll() if self.process else -1

    def answers(self) -> bool:
        if self.health is None:
            return True
        try:
            with urllib.request.urlopen(self.health, timeout=5) as answer:
                return answer.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def stop(self, grace: float) -> None:
        if self.process is None:
            return
        if grace and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(grace)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self.process.wait()


def serve(layout: Layout, plan: Plan, say: Say) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code.

    A second call for the same data folder says where the first one is and returns 0.

    Raises:
        ConfigError: a port is taken, or a cron line or database URL cannot be used.
        ServerError: a part does not come up; the message names its log.
    """
    layout.home.mkdir(parents=True, exist_ok=True)
    path = layout.home / SERVE_LOCK
    lock = locks.take(path, {"api": plan.api, "ui": plan.ui, "dashboard": plan.dashboard})
    if lock is None:
        first = locks.note(path)
        say(f"{layout.home} is already served by process {first.get('pid', '?')}:")
        _tell(say, str(first.get("ui", "?")), str(first.get("dashboard", "?")))
        return 0
    with lock:
        _check(plan)
        parts = _parts(layout, plan)
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        try:
            _start(parts, stop)
            _repair(layout, plan, say)
            if not stop.is_set():
                _tell(say, plan.ui, plan.dashboard)
                say("Ctrl-C stops everything")
                _watch(layout, plan, parts, stop, say)
        finally:
            _stop(layout, plan, parts, say)
    return 0


def _tell(say: Say, ui: str, dashboard: str) -> None:
    say(f"  Prefect    {ui}/deployments")
    say(f"  dashboard  {dashboard}")


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


def _parts(layout: Layout, plan: Plan) -> list[Part]:
    """The children in the order in which they start."""
    logs, root = layout.home / "serve", Path(__file__).resolve().parents[1]
    common = {
        **quiet_environment(layout.home),
        "RPG_HOME": str(layout.home),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
        "PREFECT_API_URL": plan.api,
        "PREFECT_LOGGING_LEVEL": "INFO",
        "PREFECT_RUNNER_POLL_FREQUENCY": "2",
        DASHBOARD: plan.dashboard,
    }
    server = {
        **common,
        "PREFECT_UI_ENABLED": "1",
        "PREFECT_UI_API_URL": plan.api,
        "PREFECT_UI_STATIC_DIRECTORY": str(layout.home / "prefect" / "ui"),
        # Loopback is not a wall against a page in the user's own browser: only our own pages may call the API.
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": plan.ui,
        "PREFECT_LOGGING_LEVEL": "WARNING",
    }
    if plan.database:
        server["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = plan.database
    python = [sys.executable, "-m"]
    streamlit = {
        "server.address": HOST, "server.port": plan.dashboard_port, "server.headless": "true",
        "browser.gatherUsageStats": "false", "server.fileWatcherType": "none", "client.toolbarMode": "minimal",
    }  # fmt: skip
    flags = [f"--{name}={value}" for name, value in streamlit.items()]
    return [
        Part("server", [*python, "flows.server", str(plan.port)], f"{plan.api}/health", server, logs / "server.log"),
        Part("worker", [*python, "flows.worker", plan.nightly], None, common, logs / "worker.log"),
        Part(
            "dashboard", [*python, "flows.guarded", "streamlit", "run", str(root / "dashboard" / "app.py"), *flags],
            f"{plan.dashboard}/_stcore/health", common, logs / "dashboard.log",
        ),
    ]  # fmt: skip


def _start(parts: list[Part], stop: threading.Event) -> None:
    deadline = time.monotonic() + START_SECONDS
    for part in parts:
        part.start()
        while not stop.is_set() and not part.answers():
            if part.ended() is not None or time.monotonic() > deadline:
                raise ServerError(f"the {part.name} did not come up; its log: {part.log}")
            time.sleep(0.2)


def _watch(layout: Layout, plan: Plan, parts: list[Part], stop: threading.Event, say: Say) -> None:
    """Start again what has ended or does not answer; repair from time to time what crashes left."""
    asked = repaired = time.monotonic()
    while not stop.wait(LOOK_SECONDS):
        now = time.monotonic()
        ask, asked = now - asked > HEALTH_SECONDS, now if now - asked > HEALTH_SECONDS else asked
        for part in parts:
            code = part.ended()
            if code is None and ask:
                part.silent = 0 if part.answers() else part.silent + 1
            if code is not None or part.silent >= UNHEALTHY:
                if len(part.starts) >= RESTARTS:
                    raise ServerError(f"the {part.name} has ended {RESTARTS} times; its log: {part.log}")
                how = "ended" if code is not None else "does not answer"
                say(f"{time.strftime('%H:%M:%S')} the {part.name} {how}: started again")
                part.stop(0)
                part.start()
                repaired = min(repaired, now - RECONCILE_SECONDS + 15)  # soon, when it is up
        if now - repaired > RECONCILE_SECONDS:
            repaired = now
            _repair(layout, plan, say)


def _repair(layout: Layout, plan: Plan, say: Say) -> None:
    from flows.reconcile import reconcile

    try:
        for line in reconcile(layout, plan.api):
            say(f"{time.strftime('%H:%M:%S')} repaired: {line}")
    except (
        Exception
    ) as error:  # a server that is just being restarted, a full disk: the next look is a minute away
        say(
            f"{time.strftime('%H:%M:%S')} repair put off: {str(error).splitlines()[0] if str(error) else error!r}"
        )


def _stop(layout: Layout, plan: Plan, parts: list[Part], say: Say) -> None:
    """The worker first, and at once: its flow runs end with it, and the server can still be told."""
    by_name = {part.name: part for part in parts}
    by_name["worker"].stop(0)
    by_name["dashboard"].stop(0)
    if by_name["server"].ended() is None and by_name["server"].answers():
        time.sleep(0.5)  # the kernel ends the worker's descendants one after the other
        _repair(layout, plan, say)
    by_name["server"].stop(3)
    say("stopped")
