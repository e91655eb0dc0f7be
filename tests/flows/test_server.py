"""A new data folder's Prefect database is a copy of one that is kept, whatever becomes of that one."""

import sqlite3
from contextlib import closing

import pytest


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """(the kept database, that of a new data folder)"""
    from prefect import __version__
    from prefect.settings import PREFECT_HOME, temporary_settings

    home, cache = tmp_path / "home", tmp_path / "cache" / "rpg-lab"
    home.mkdir()
    cache.mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    with temporary_settings({PREFECT_HOME: home}):
        yield cache / f"prefect-{__version__}.db", home / "prefect.db"


def begin():
    from flows.prefect.server import _copy_empty_database

    _copy_empty_database()


def written(path, text):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE said (text)")
        db.execute("INSERT INTO said VALUES (?)", [text])


def said(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT text FROM said").fetchone()[0]


def test_a_new_folder_gets_a_copy_and_one_that_has_a_database_keeps_it(folders):
    kept, database = folders
    written(kept, "empty")
    begin()
    assert said(database) == "empty" and [p.name for p in database.parent.glob("*.db*")] == ["prefect.db"]
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("UPDATE said SET text = 'mine'")
    begin()
    assert said(database) == "mine" and said(kept) == "empty"


def test_what_is_no_database_is_removed_and_the_server_makes_its_own(folders):
    kept, database = folders
    kept.write_bytes(b"half a file" * 1000)
    with pytest.raises(sqlite3.Error):
        begin()
    assert not kept.exists() and list(database.parent.iterdir()) == []


def test_another_database_is_nothing_to_copy(folders, monkeypatch):
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, temporary_settings

    kept, database = folders
    written(kept, "empty")
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: "postgresql+asyncpg://a@127.0.0.1/b"}):
        begin()
    assert not database.exists()


@pytest.mark.slow
def test_the_first_one_is_made_by_prefects_migrations(folders):
    kept, database = folders
    begin()
    for path in (kept, database):
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
            assert db.execute("SELECT count(*) FROM flow_run").fetchone() == (0,)
