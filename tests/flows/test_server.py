"""The Prefect server of a new data folder: its first database, two starts at once, and one that
hangs."""

import concurrent.futures
import json
import multiprocessing
import os
import sqlite3
import sys
import urllib.request
from contextlib import closing

import httpx
import pytest

from flows.prefect import server, service
from flows.prefect.server import prefect_api
from flows.prefect.service import ServerError, Service, start_in_turn
from tests.waiting import HANG, until


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """(a data folder, the kept database, that of the next data folder)"""
    from prefect import __version__
    from prefect.settings import PREFECT_HOME, temporary_settings

    home = tmp_path / "next"
    cache = tmp_path / "cache" / "rpg-lab"
    home.mkdir()
    cache.mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    with temporary_settings({PREFECT_HOME: home}):
        yield tmp_path / "home", cache / f"prefect-{__version__}-blocks.db", home / "prefect.db"


def user_version(path, value=""):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"PRAGMA user_version{value}").fetchone()


def tables(path):
    with closing(sqlite3.connect(path)) as db:
        migrated = db.execute("SELECT count(*) FROM alembic_version").fetchone()
        return migrated, db.execute("SELECT count(*) FROM flow_run").fetchone()


def write_through_a_server_of_its_own(home):
    with prefect_api(home) as url:
        body = json.dumps({"name": "f"}).encode()
        ask = urllib.request.Request(f"{url}/flows/", body, {"content-type": "application/json"})
        with urllib.request.urlopen(ask, timeout=300) as answer:
            return json.load(answer)["id"]


@pytest.mark.system
@pytest.mark.component
def test_two_first_starts_at_once_make_one_database_and_the_next_is_a_copy(folders):
    home, kept, database = folders
    kept.write_bytes(b"half a file" * 1000)
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn) as pool:
        ids = list(pool.map(write_through_a_server_of_its_own, [home] * 2))
    assert len(set(ids)) == 1, "both wrote the same flow"
    assert tables(kept) == tables(home / "prefect/prefect.db") == ((1,), (0,)), (
        "though no database was kept"
    )
    user_version(kept, "=7")
    server._prepare_database()
    assert user_version(database) == (7,), "a copy"
    user_version(database, "=8")
    server._prepare_database()
    assert (user_version(database), user_version(kept)) == ((8,), (7,))


@pytest.mark.component
def test_fifty_forms_at_once_are_all_accepted_and_counted_once(prefect):
    """SQLite refuses a transaction when another wrote since it began to read; of these, two thirds
    of those sent once."""
    hourly = {"schedule": {"interval": 3600, "anchor_date": "2026-01-01T00:00:00Z"}, "active": True}
    with httpx.Client(base_url=f"{prefect['PREFECT_API_URL']}/", timeout=HANG) as api:
        flow = api.post("flows/", json={"name": "f"}).json()["id"]
        made = api.post("deployments/", json={"name": "d", "flow_id": flow}).json()["id"]
        deployment = f"deployments/{made}"
        schedule = api.post(f"{deployment}/schedules", json=[hourly]).json()[0]["id"]

        def submit(number):
            if number % 2:
                return api.patch(f"{deployment}/schedules/{schedule}", json=hourly).status_code
            run = {"name": f"run {number}", "state": {"type": "SCHEDULED"}}
            return api.post(f"{deployment}/create_flow_run", json=run).status_code

        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            assert set(pool.map(submit, range(100))) == {201, 204}
        runs = api.post("flow_runs/filter", json={"deployments": {"id": {"any_": [made]}}}).json()
        assert sorted(run["name"] for run in runs) == sorted(f"run {n}" for n in range(0, 100, 2))


def test_a_server_that_does_nothing_is_given_up_with_its_last_error(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "STILL_SECONDS", 1.0)
    log = tmp_path / "server.log"
    said = "OSError: no way\n(error: https://sqlalche.me/e)\nbye\n"
    code = f"import sys, time; sys.stderr.write({said!r}); time.sleep(600)"
    hangs = Service("server", [sys.executable, "-c", code], "http://127.0.0.1:9/api", {}, log)
    try:
        with pytest.raises(ServerError, match=rf"nothing for 1 s; OSError: no way \(log: {log}"):
            start_in_turn([hangs], tmp_path)
    finally:
        hangs.stop(0)


def test_a_server_that_is_killed_amid_a_sweep_is_started_again_and_stopped_with_it(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    listens = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(600)"
    made = Service("server", [sys.executable, "-c", listens], None, {}, tmp_path / "log")
    monkeypatch.setattr(server, "private", lambda *_: made)
    with prefect_api(tmp_path):
        made.process.kill()
        until(lambda: len(made.starts) == 2 and made.ports(), "its second start")
    assert made.ended() is not None


def test_a_damaged_database_is_named_with_what_to_do(folders):
    *_, database = folders
    with closing(sqlite3.connect(database)) as db:
        db.executescript(
            "CREATE TABLE a (b); CREATE TABLE c (d); INSERT INTO a VALUES (hex(zeroblob(9999)))"
        )
    whole = database.read_bytes()
    for damaged in (whole[:8192], whole[:4096] + bytes(4096) + whole[8192:], b"text" * 9999):
        database.write_bytes(damaged)
        with pytest.raises(
            SystemExit, match=r"/prefect\.db: .*; if it is damaged, move prefect\.db\* away"
        ):
            server._prepare_database()
