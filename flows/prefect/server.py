"""The Prefect API of a sweep: the configured one, else a private one on loopback that dies with the sweep.

Prefect's own ephemeral server would stay behind for ever after `kill -9` of the sweep. Run as a module, this file is the
same server, which ends when its parent does.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from rpg.errors import UserError
from rpg.processes import die_with_parent, parent_mark, python_module, quick_imports
from rpg.store import StoreError, atomic_path, locks, user_cache
from rpg.web import AccessControl, Address

STILL_SECONDS = 60.0
"""How long a server that starts may do nothing at all. A busy machine makes it slow, but never that still."""
HOST = "127.0.0.1"
PUBLIC = "RPG_PUBLIC_PREFECT"
"""Environment variable: the URL of a proxy in front of the server (`rpg serve --public-url`)."""
SERVE_LOCK = "serve.lock"
"""In the data folder: the lock of `rpg serve`; its note has the addresses of API, UI and dashboard."""
EPHEMERAL = {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""No schedules, late runs and other services that only a shared server needs."""


class ServerError(UserError):
    """The private Prefect server did not start; the message names its log."""


def quiet_environment(home: Path) -> dict[str, str]:
    """Prefect settings for an unattended, offline, silent client; the user's own settings stay."""
    defaults = {
        "PREFECT_HOME": str(home / "prefect"),
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    }
    return {name: os.environ.get(name, value) for name, value in defaults.items()}


@contextmanager
def prefect_api(home: Path) -> Iterator[str]:
    """Yield the URL of the API to use, to which `PREFECT_API_URL` is set inside; ServerError as of `wait_healthy`."""
    log = home / "prefect" / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)  # before Prefect is imported, which warns without it
    os.environ.update(quiet_environment(home))
    from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings

    if configured := PREFECT_API_URL.value():
        yield configured
        return
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    url = f"http://{HOST}:{port}/api"
    with log.open("ab") as output:
        server = subprocess.Popen(
            python_module("flows.prefect.server", port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the sweep, which needs the API to record its end
            env={**os.environ, "PREFECT_UI_ENABLED": "0", **EPHEMERAL, **parent_mark()},
        )
    try:
        wait_healthy(server, url, log)
        with temporary_settings({PREFECT_API_URL: url, PREFECT_UI_URL: ""}):  # it has no pages
            yield url
    finally:
        end_group(server, 3)


def end_group(child: subprocess.Popen[Any], grace: float) -> None:
    """SIGTERM to a child that leads a group, which ends its own children; after the grace SIGKILL to the whole group."""
    if grace and child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@contextmanager
def using_api(url: str) -> Iterator[None]:
    """Clients of Prefect call this API within."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: url}):
        yield


def answers(url: str) -> bool:
    """Whether the health check at this address succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:  # urllib's errors and timeouts are such
        return False


def wait_healthy(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the API at `url` answers; ServerError when its process ends or does nothing for STILL_SECONDS."""
    movement = Movement(log.parent)
    while not answers(f"{url}/health"):
        if server.poll() is not None:
            raise ServerError(
                f"the private Prefect server ended with code {server.poll()}; {last_error(log)}"
            )
        if movement.still_seconds(server.pid, log) > STILL_SECONDS:
            raise ServerError(
                f"the private Prefect server has done nothing for {STILL_SECONDS:.0f} s; {last_error(log)}"
            )
        time.sleep(0.1)


class Movement:
    """Whether a process that starts still gets anywhere: it computes, its log grows, or the database in `prefect_home`
    changes, which another server may be creating while this one waits for it.
    """

    def __init__(self, prefect_home: Path) -> None:
        self._home = prefect_home
        self._seen: object = None
        self._since = time.monotonic()

    def still_seconds(self, pid: int, log: Path) -> float:
        """How long nothing has changed, up to this call."""
        computed, files = 0.0, []
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            computed = times.user + times.system
        for path in (log, *self._home.glob("prefect.db*")):
            with suppress(OSError):
                files.append((path.name, path.stat().st_size, path.stat().st_mtime_ns))
        seen = (pid, computed, files)
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since


def last_error(log: Path) -> str:
    """The last line of a log that names an error, else its last line, and where the log is."""
    try:
        lines = [
            line.strip() for line in log.read_text(errors="replace")[-20_000:].splitlines() if line.strip()
        ]
    except OSError:
        lines = []
    named = [line for line in lines if "error" in line.lower()] or lines
    return f"{named[-1][:300]} (log: {log})" if named else f"its log: {log}"


def _prepare_database() -> None:
    """Create or migrate the database, one server at a time: Prefect's migrations fail when two run at once. From then on
    SQLite's transactions wait for each other: Prefect refuses one (503) that began by reading and was overtaken.

    Prefect creates one by more than a hundred migrations, which is most of the cost of a server's first start. So an
    empty one is kept in the user's cache, and a new data folder gets a copy.
    """
    import anyio  # noqa: PLC0415 (for the server's process alone)
    from prefect import __version__
    from prefect.server.database import provide_database_interface
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, PREFECT_HOME

    own, kept = PREFECT_HOME.value() / "prefect.db", user_cache() / f"prefect-{__version__}.db"
    is_own = PREFECT_API_DATABASE_CONNECTION_URL.value() == f"sqlite+aiosqlite:///{own}"
    interface = provide_database_interface()
    with locks.in_turn(own.with_suffix(".lock")):
        is_new = is_own and not own.exists()
        if is_new and kept.exists():
            with suppress(sqlite3.Error):  # what was kept is no database
                _copy(kept, own)
        anyio.run(_create, interface)
        if is_new and not kept.exists():
            with suppress(OSError, StoreError, sqlite3.Error):  # the cache cannot be used
                _copy(own, kept)
    begin = interface.database_config.begin_transaction
    # The other mode is that of Postgres, too, which has row locks.
    interface.database_config.begin_transaction = lambda session, **_: begin(session, True)


async def _create(interface: Any) -> None:
    """The tables, and the types of blocks, which servers that start at once would all add."""
    from prefect.server.models.block_registration import run_block_auto_registration

    await interface.create_db()
    async with await interface.session() as session:
        await run_block_auto_registration(session=session)


def _copy(source: Path, target: Path) -> None:
    """A whole database or none; a source that is no database is removed, and raises sqlite3.Error."""
    try:
        with (
            atomic_path(target) as part,
            closing(sqlite3.connect(source)) as old,
            closing(sqlite3.connect(part)) as new,
        ):
            old.backup(new)
    except sqlite3.Error:
        source.unlink()
        raise


def main() -> None:
    """`python -m flows.prefect.server PORT`: Prefect's API on loopback, until the parent process dies."""
    die_with_parent()
    with quick_imports():
        import uvicorn  # noqa: PLC0415 (for the server's process alone)
        from prefect.server.api.server import create_app
        from prefect.settings import (
            PREFECT_API_BLOCKS_REGISTER_ON_START,
            PREFECT_API_DATABASE_MIGRATE_ON_START,
            temporary_settings,
        )

    _prepare_database()
    # Around the app, not in it: Prefect's automations call it from within, by another name. Prefect itself asks for the
    # password (PREFECT_SERVER_API_AUTH_STRING).
    port = int(sys.argv[1])
    app = AccessControl(create_app(), Address(port, public=os.environ.get(PUBLIC, "")))
    done = {PREFECT_API_DATABASE_MIGRATE_ON_START: False, PREFECT_API_BLOCKS_REGISTER_ON_START: False}
    with temporary_settings(done):  # in turn
        uvicorn.run(app, host=HOST, port=port, log_level="error", lifespan="on", proxy_headers=False)


if __name__ == "__main__":
    main()
