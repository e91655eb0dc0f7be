"""The Prefect API of a sweep: the configured one, else a private one on loopback that dies with the
sweep.

Prefect's own ephemeral server would stay behind for ever after `kill -9` of the sweep. Run as a
module, this file is the same server, which ends when its parent does.
"""

import os
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from flows.prefect.service import ServerError, Service, start_in_turn
from rpg.errors import UserError
from rpg.store import StoreError, atomic_path, locks, user_cache
from rpg.system.private_parts import private_part
from rpg.system.processes import (
    ask_directly,
    die_with_parent,
    parent_mark,
    python_module,
    quick_imports,
)
from rpg.system.web import AccessControl, Address

HOST = "127.0.0.1"
PUBLIC = "RPG_PUBLIC_PREFECT"
"""Environment variable: the URL of a proxy in front of the server (`rpg serve --public-url`)."""
SERVE_LOCK = "serve.lock"
"""In the data folder: the lock of `rpg serve`; its note has the addresses of API, UI and dashboard.
"""
EPHEMERAL = {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""No schedules, late runs and other services that only a shared server needs."""


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
    """Yield the URL of the API to use, to which `PREFECT_API_URL` is set inside; ServerError as of
    `start_in_turn`. A server of our own that ends meanwhile is started again: Prefect's clients ask
    again for a minute."""
    log = home / "prefect" / "server.log"
    log.parent.mkdir(
        parents=True, exist_ok=True
    )  # before Prefect is imported, which warns without it
    os.environ.update(quiet_environment(home))
    from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings

    configured = PREFECT_API_URL.value()
    if configured:
        with ask_directly(configured):
            yield configured
        return
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    url = f"http://{HOST}:{port}/api"
    server = private(port, log)
    over = threading.Event()

    def keep() -> None:
        """Start it again whenever it ends; the kernel ends it with the thread that started it."""
        with suppress(ServerError):  # it ends again and again
            while not over.wait(0.5):
                if server.ended() is not None:
                    server.restart()
        server.stop(3)

    try:
        start_in_turn([server], log.parent)
        threading.Thread(target=keep, daemon=True, name="server").start()
        with ask_directly(url), temporary_settings({PREFECT_API_URL: url, PREFECT_UI_URL: ""}):
            yield url  # it has no pages
    finally:
        # While the server is there: later Prefect would complain on the terminal that what is
        # logged has nowhere to go.
        private_part("APILogWorker").drain_all(timeout=10)
        over.set()
        server.stop(3)


def private(port: int, log: Path) -> Service:
    """A server without pages; its group is not that of Ctrl-C: a sweep needs the API to record its
    end."""
    environment = {"PREFECT_UI_ENABLED": "0", **EPHEMERAL}
    health = f"http://{HOST}:{port}/api/health"
    command = python_module("flows.prefect.server", port)
    # Not the mark of what a sweep starts: a night's server outlives the end of each of its sweeps.
    return Service("private Prefect server", command, health, environment, log, parent_mark)


@contextmanager
def using_api(url: str) -> Iterator[None]:
    """Clients of Prefect call this API within."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with ask_directly(url), temporary_settings({PREFECT_API_URL: url}):
        yield


def _prepare_database() -> None:
    """Create or migrate the database, one server at a time: Prefect's migrations fail when two run
    at once. From then on SQLite's transactions wait for each other: Prefect refuses one (503) that
    began by reading and was overtaken.

    Prefect creates one by more than a hundred migrations, which is most of the cost of a server's
    first start. So an empty one is kept in the user's cache, and a new data folder gets a copy.
    """
    import anyio  # noqa: PLC0415 (for the server's process alone)
    from prefect import __version__
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, PREFECT_HOME

    database = PREFECT_HOME.value() / "prefect.db"
    cached = user_cache() / f"prefect-{__version__}-blocks.db"
    is_own = PREFECT_API_DATABASE_CONNECTION_URL.value() == f"sqlite+aiosqlite:///{database}"
    interface = private_part("provide_database_interface")()
    with locks.in_turn(database.with_suffix(".lock")):
        is_new = is_own and not database.exists()
        if is_own and not is_new:
            _require_whole(database)
        if is_new and cached.exists():
            with suppress(sqlite3.Error):  # what was kept is no database
                _copy(cached, database)
        if not (
            is_new and database.exists()
        ):  # the copy of one that was created as this one would be
            anyio.run(_create, interface)
        if is_new and not cached.exists():
            with suppress(OSError, StoreError, sqlite3.Error):  # the cache cannot be used
                _copy(database, cached)
    begin = interface.database_config.begin_transaction
    # The other mode is that of Postgres, too, which has row locks.
    interface.database_config.begin_transaction = lambda session, **_: begin(session, True)


def _require_whole(database: Path) -> None:
    """Ends this process with a sentence, for the log, if a database is damaged: Prefect would
    answer 503 for minutes."""
    try:
        with closing(sqlite3.connect(database, timeout=60)) as connection:
            [[damage]] = connection.execute("PRAGMA quick_check(1)")
    except sqlite3.DatabaseError as error:
        damage = str(error)
    if damage != "ok":
        advice = (
            "if it is damaged, move prefect.db* away: it has flow runs and schedules edited in "
            "the UI, no results"
        )
        sys.exit(f"error: {database}: {damage.splitlines()[-1]}; {advice}")


async def _create(interface: Any) -> None:
    """The tables, and the types of blocks, which servers that start at once would all add."""
    run_block_auto_registration = private_part("run_block_auto_registration")
    await interface.create_db()
    async with await interface.session() as session:
        await run_block_auto_registration(session=session)


def _copy(source: Path, target: Path) -> None:
    """A whole database or none; a source that is not a database is removed, and raises
    sqlite3.Error."""
    try:
        connect = sqlite3.connect
        with (
            atomic_path(target) as part,
            closing(connect(source)) as old,
            closing(connect(part)) as new,
        ):
            old.backup(new)
    except sqlite3.Error:
        source.unlink()
        raise


def main() -> None:
    """`python -m flows.prefect.server PORT`: Prefect's API on loopback, until the parent process
    dies."""
    die_with_parent()
    with quick_imports():
        import uvicorn  # noqa: PLC0415 (for the server's process alone)
        from prefect.settings import (
            PREFECT_API_BLOCKS_REGISTER_ON_START,
            PREFECT_API_DATABASE_MIGRATE_ON_START,
            temporary_settings,
        )

        create_app = private_part("create_app")
    _prepare_database()
    # Around the app, not in it: Prefect's automations call it from within, by another name. Prefect
    # itself asks for the password (PREFECT_SERVER_API_AUTH_STRING).
    port = int(sys.argv[1])
    app = AccessControl(create_app(), Address(port, public=os.environ.get(PUBLIC, "")))
    done = {
        PREFECT_API_DATABASE_MIGRATE_ON_START: False,
        PREFECT_API_BLOCKS_REGISTER_ON_START: False,
    }
    with temporary_settings(done):  # in turn
        uvicorn.run(
            app, host=HOST, port=port, log_level="error", lifespan="on", proxy_headers=False
        )


if __name__ == "__main__":
    try:
        main()
    except UserError as problem:
        sys.exit(f"error: {problem}")
