"""`rpg sql --out` and `rpg export`: what other tools get is what the database holds."""

import json
import signal
import threading
from unittest.mock import Mock
from unittest.mock import call as call_of

import pandas
import pytest
from typer.testing import CliRunner

from benchmarks.synthetic import Shape, write_sweep
from rpg.cli.app import app
from rpg.errors import UserError
from rpg.store import Layout, sample_texts
from rpg.store.database import build, connect
from rpg.store.samples import read_eval, read_samples, write_samples
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


def test_sql_has_the_prompt_the_answer_and_the_response_of_each_sample(tmp_path, command_line):
    layout = write_sweep(tmp_path, "texts", ["grpo"], [0], Shape(4, 2, 3, 2, ("easy",)))
    stored = read_eval(layout.run("texts", "grpo-seed0"), "easy", 4).to_pylist()
    write_samples(
        layout.evaluations / "other" / "hard.parquet",
        [{**stored[0], "problem": "by hand?", "response": "=1+1 \x1b[2J" + "long " * 1000}],
    )
    sql = "SELECT problem_id, sample, prompt, answer, response FROM samples"

    trained = f"{sql} WHERE step = 4 ORDER BY ALL"
    out = tmp_path / "texts.parquet"
    assert call("sql", trained, "--out", out, "--home", layout.home).exit_code == 0
    columns = ["problem_id", "sample", "problem", "answer", "response"]
    assert pandas.read_parquet(out).values.tolist() == sorted(
        [row[name] for name in columns] for row in stored
    )

    by_hand = f"{sql} WHERE sweep = ''"
    said = command_line("sql", by_hand, "--home", layout.home)[1]
    assert "by hand?" in said
    assert "\x1b" not in said
    assert "\\x1b[2J" in said
    assert said.count("long") < 500
    whole = json.loads(command_line("sql", by_hand, "--json", "--home", layout.home)[1])
    [line] = whole["result"]["rows"]
    assert line[-1].count("long") == 1000


def test_texts_are_read_for_the_rows_of_a_query_only(tmp_path, monkeypatch):
    layout = write_sweep(tmp_path, "texts", ["grpo"], [0], Shape(4, 2, 3, 2, ("easy",)))
    read = Mock(side_effect=read_samples)
    monkeypatch.setattr(sample_texts, "read_samples", read)

    assert call("sql", "SELECT count(*), avg(tokens) FROM samples", "--home", layout.home)
    assert read.call_count == 0
    few = "SELECT response FROM samples WHERE step = 2 LIMIT 1"
    assert call("sql", few, "--home", layout.home).exit_code == 0
    assert read.call_args_list == [call_of(layout.run("texts", "grpo-seed0").eval_path("easy", 2))]


def test_a_text_whose_file_is_gone_is_null(tmp_path):
    layout = write_sweep(tmp_path, "texts", ["grpo"], [0], Shape(4, 2, 3, 2, ("easy",)))
    build(layout)
    layout.run("texts", "grpo-seed0").eval_path("easy", 2).unlink()
    with connect(layout) as db:
        sample_texts.add_texts(db, layout)
        found = db.execute(
            "SELECT step, count(*), count(prompt) FROM samples GROUP BY ALL ORDER BY 1"
        )
        assert found.fetchall() == [(0, 6, 6), (2, 6, 0), (4, 6, 6)]
