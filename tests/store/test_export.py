"""`rpg sql --out` and `rpg export`: what other tools get is what the database holds."""

import signal
import threading

import pandas
import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import Shape, write_sweep
from rpg.cli.app import app
from rpg.errors import UserError
from rpg.store import Layout
from rpg.store.database import connect
from rpg.store.schema import TABLES, VIEWS

import rpg.cli.export  # noqa: F401  isort: skip  (registers the commands)

HOSTILE = 'a "b", <i>\n;DROP TABLE runs;-- 🙂'


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    write_sweep(folder, "demo", ["grpo", HOSTILE], [0, 1], Shape(4, 2, 3, 2, ("easy",)))
    return folder


def call(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("kind", "read"), [("parquet", pandas.read_parquet), ("csv", pandas.read_csv)]
)
def test_every_table_and_view_is_a_file_and_so_is_a_query(home, tmp_path, kind, read):
    assert call("export", tmp_path / "out", "--format", kind, "--home", home).exit_code == 0
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {f"{name}.{kind}" for name in (*TABLES, *VIEWS)}
    with connect(Layout.at(home)) as db:
        for name in (*TABLES, *VIEWS):
            [count] = db.execute(f"SELECT count(*) FROM {name}").fetchone()
            assert len(read(tmp_path / "out" / f"{name}.{kind}")) == count
        reward = db.execute("SELECT sum(reward) FROM metrics").fetchone()[0]
    assert read(tmp_path / "out" / f"metrics.{kind}")["reward"].sum() == pytest.approx(
        reward, rel=1e-12
    )
    assert HOSTILE in set(read(tmp_path / "out" / f"runs.{kind}")["variant"])
    for more in (["--sweep", "demo"], ["--online"]):
        with pytest.raises(UserError, match=more[0]):
            call("export", tmp_path / "out", "--format", kind, "--home", home, *more)
    out = tmp_path / "scores.csv"
    assert call("sql", "SELECT range(2000) AS many", "--out", out, "--home", home).exit_code == 0
    assert set(pandas.read_csv(out)["many"].str.count(",")) == {1999}


def test_ctrl_c_ends_a_query_that_would_take_a_minute(home):
    """DuckDB itself hears of it where a part of a query ends, here with the sum, and raises an
    error of its own."""
    endless = "SELECT sum(sin(a.range * b.range)) FROM range(100000) a, range(15000) b"
    threading.Timer(
        1.0, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
    ).start()
    assert call("sql", endless, "--home", home).exit_code


def test_what_is_null_is_empty_and_what_has_no_result_is_a_sentence(home, command_line):
    sql = "SELECT NULL::VARCHAR AS a, NULL::DOUBLE AS b, 'nan'::DOUBLE AS c, 7 AS d, 0.25 AS e"
    said = call("sql", sql, "--home", home)
    assert said.exit_code == 0
    assert said.output.splitlines()[-1].split() == ["nan", "7", "0.25"]
    late = (
        "SELECT if(i = 2999, 'x', '1')::INT FROM range(3000) t(i)"  # it fails while it is fetched
    )
    for query, words in ((late, "sql: Conversion Error"), (" ", "sql: ' ' has no result")):
        assert words in command_line("sql", query, "--home", home)[2]
    assert "--home: is empty" in command_line("aggregate", "--home", "")[2]
    assert "without --json" in command_line("audit", "--field", "--json", "--output", "x.md")[2]
    assert (
        call(
            "sql", "SELECT uuid() AS id", "--out", home.parent / "id.json", "--home", home
        ).exit_code
        == 0
    )
