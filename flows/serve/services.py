"""The children of `rpg serve` and `rpg worker`: how each is started, checked and stopped; repairs;
the password."""

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from flows.prefect.flow_runs import COMMAND, DASHBOARD
from flows.prefect.reconcile import reconcile
from flows.prefect.server import HOST, PUBLIC, quiet_environment
from flows.prefect.service import Service
from rpg.config.errors import ConfigError
from rpg.errors import first_line
from rpg.store import Layout, StoreError
from rpg.store.atomic_files import readable
from rpg.system.processes import python_module
from rpg.system.web import HEALTH

Say = Callable[[str], None]
AUTH = "RPG_AUTH"
SERVER_AUTH = "PREFECT_SERVER_API_AUTH_STRING"
CLIENT_AUTH = "PREFECT_API_AUTH_STRING"
AT_ONCE = 8
"""Flow runs at a time; how many trainings run at a time is decided by slots (flows.machine.slots).
"""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Plan:
    """What to serve: the module of `rpg`, ports, the database's URL (None: SQLite), the nights'
    cron line ("": none)."""

    command: str
    port: int
    dashboard_port: int
    database: str | None
    nightly: str
    secret: str | None = None
    """user:password of Prefect and the dashboard; None: whoever reaches loopback may do everything.
    """
    public: str = ""
    """URL at which a proxy offers both, as .../prefect and .../dashboard; "" without one."""

    @property
    def ui(self) -> str:
        """Where people find Prefect's pages."""
        return f"{self.public}/prefect" if self.public else f"http://{HOST}:{self.port}"

    @property
    def api(self) -> str:
        """Where programs of this machine find Prefect's API."""
        return f"http://{HOST}:{self.port}/api"

    @property
    def dashboard(self) -> str:
        """Where people find the dashboard."""
        return f"{self.public}/dashboard" if self.public else f"http://{HOST}:{self.dashboard_port}"


def repair(layout: Layout, api: str, say: Say, worker_since: float | None = None) -> None:
    """Repair what a crash has left, and say so."""
    try:
        for line in reconcile(layout, api, worker_since):
            say(f"{clock()} repaired: {line}")
    except Exception as error:  # noqa: BLE001 (the server may be restarting, the disk full; it is tried again)
        say(f"{clock()} repair postponed: {first_line(error)}")


def clock() -> str:
    return time.strftime("%H:%M:%S")


def stop_on_signals() -> threading.Event:
    """Set by SIGINT and SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


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
        # for the processes of flow runs, which Prefect starts: see python_module
        "PYTHONSAFEPATH": "1",
        "PREFECT_API_URL": plan.api,
        "PREFECT_LOGGING_LEVEL": "INFO",
        "PREFECT_RUNNER_POLL_FREQUENCY": "2",
        DASHBOARD: plan.dashboard,
        **client_environment(plan.secret),
    }
    server = {
        **common,
        "PREFECT_UI_ENABLED": "1",
        "PREFECT_UI_API_URL": f"{plan.ui}/api",
        "PREFECT_UI_SERVE_BASE": urlsplit(plan.ui).path or "/",
        "PREFECT_UI_STATIC_DIRECTORY": str(layout.home / "prefect" / "ui"),
        PUBLIC: plan.public and plan.ui,
        # Loopback does not protect from a page in the user's own browser: only our own pages may
        # call the API.
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "{0.scheme}://{0.netloc}".format(urlsplit(plan.ui)),
        "PREFECT_LOGGING_LEVEL": "WARNING",
        # How often Prefect looks at edited schedules. By default it is once a minute: a schedule
        # that was moved to the next minute would make its first run a day later.
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "10",
    }
    if plan.secret:
        server[SERVER_AUTH] = plan.secret
    if plan.database:
        server["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = plan.database
    below = urlsplit(plan.public and plan.dashboard).path
    return [
        Service(
            "server",
            python_module("flows.prefect.server", plan.port),
            f"{plan.api}/health",
            server,
            logs / "server.log",
        ),
        Service(
            "worker",
            python_module("flows.serve.flow_runner", plan.nightly),
            None,
            common,
            logs / "worker.log",
        ),
        Service(
            "dashboard",
            dashboard(HOST, plan.dashboard_port),
            f"http://{HOST}:{plan.dashboard_port}{below}{HEALTH}",
            common
            | {"RPG_PUBLIC_DASHBOARD": plan.public and plan.dashboard}
            | ({AUTH: plan.secret} if plan.secret else {}),
            logs / "dashboard.log",
        ),
    ]


def secret_of(
    home: Path, wanted: bool | None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """`user:password`, or None where nobody asked for one: `wanted` is --auth, --no-auth or
    neither.

    RPG_AUTH (or Prefect's own name for it) alone is asking for one. Where --auth stands alone, a
    password is made at the first time and kept. ConfigError if it is not of the form user:password,
    StoreError if it cannot be kept.
    """
    given = environment.get(AUTH) or environment.get(SERVER_AUTH) or environment.get(CLIENT_AUTH)
    if wanted is False or (wanted is None and not given):
        return None
    if not given:
        return _kept(home / "serve" / "auth")
    user, colon, password = given.partition(":")
    if not (user and colon and password) or not given.isprintable():
        raise ConfigError(f"{AUTH}: expected user:password in one line")
    return given


def _kept(path: Path) -> str:
    with readable("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with suppress(FileExistsError), open(os.open(path, how, 0o600), "w") as file:
            file.write(f"rpg:{secrets.token_urlsafe(18)}\n")
    with readable("read", path):
        if path.stat().st_mode & 0o077:
            why = (
                f"{path}: other users can read this password; remove the file, or: chmod 600 {path}"
            )
            raise StoreError(why)
        text = path.read_text(encoding="utf-8").strip()
    if ":" not in text:
        raise StoreError(
            f"{path}: expected user:password in one line; remove the file to get a new one"
        )
    return text


def client_environment(secret: str | None) -> dict[str, str]:
    """For whoever calls Prefect's API."""
    return {CLIENT_AUTH: secret} if secret else {}
