"""The children of `rpg serve`: what each is started with, and how it is asked whether it is well."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from flows.prefect.flow_runs import COMMAND, DASHBOARD
from flows.prefect.server import HOST, quiet_environment
from flows.serve.password import AUTH, SERVER_AUTH, client_environment
from rpg.processes import owner_mark, python_module
from rpg.store import Layout
from rpg.web import HEALTH

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Plan:
    """What to serve: the module of the command `rpg`, ports, the database's URL (None: SQLite), the cron line of the
    nightly runs ("": none).
    """

    command: str
    port: int
    dashboard_port: int
    database: str | None
    nightly: str
    secret: str | None = None
    """user:password of Prefect and the dashboard; None: whoever reaches loopback may do everything."""

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
class Service:
    """A child of `rpg serve`: command, URL of its health check (None: healthy while it listens), and when it started."""

    name: str
    command: list[str]
    health: str | None
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen | None = None
    starts: list[float] = field(default_factory=list)
    since: float = 0.0
    silent: int = 0

    def start(self) -> None:
        self.starts = [t for t in self.starts if time.monotonic() - t < 300] + [time.monotonic()]
        self.silent, self.since = 0, time.time()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, **self.environment, **owner_mark()},
            )  # fmt: skip

    def ended(self) -> int | None:
        return self.process.poll() if self.process else -1

    def ports(self) -> list[int] | None:
        """Where it listens; None where the system does not say."""
        try:
            found = psutil.Process(self.process.pid).net_connections("inet") if self.process else []
        except psutil.NoSuchProcess:
            return []
        except psutil.AccessDenied:
            return None
        return sorted({one.laddr.port for one in found if one.status == psutil.CONN_LISTEN})

    def answers(self) -> bool:
        if self.health is None:
            return self.ports() != []
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
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def dashboard(address: str, port: int) -> list[str]:
    """The command of the dashboard."""
    return python_module("dashboard", address, port)


def services_of(layout: Layout, plan: Plan) -> list[Service]:
    """The children in the order in which they start."""
    logs = layout.home / "serve"
    common = {
        **quiet_environment(layout.home),
        "RPG_HOME": str(layout.home),
        COMMAND: plan.command,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYTHONSAFEPATH": "1",  # for the processes of flow runs, which Prefect starts: see python_module
        "PREFECT_API_URL": plan.api,
        "PREFECT_LOGGING_LEVEL": "INFO",
        "PREFECT_RUNNER_POLL_FREQUENCY": "2",
        DASHBOARD: plan.dashboard,
        **client_environment(plan.secret),
    }
    server = {
        **common,
        "PREFECT_UI_ENABLED": "1",
        "PREFECT_UI_API_URL": plan.api,
        "PREFECT_UI_STATIC_DIRECTORY": str(layout.home / "prefect" / "ui"),
        # Loopback is not a wall against a page in the user's own browser: only our own pages may call the API.
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": plan.ui,
        "PREFECT_LOGGING_LEVEL": "WARNING",
        # Prefect looks at a schedule that was edited once in so many seconds; by default once a minute, so that one which
        # was moved to the next minute made its first run a day later.
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "10",
    }
    if plan.secret:
        server[SERVER_AUTH] = plan.secret
    if plan.database:
        server["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = plan.database
    return [
        Service("server", python_module("flows.prefect.server", plan.port), f"{plan.api}/health", server, logs / "server.log"),
        Service("worker", python_module("flows.serve.flow_runner", plan.nightly), None, common, logs / "worker.log"),
        Service(
            "dashboard", dashboard(HOST, plan.dashboard_port), f"{plan.dashboard}{HEALTH}",
            common | ({AUTH: plan.secret} if plan.secret else {}), logs / "dashboard.log",
        ),
    ]  # fmt: skip
