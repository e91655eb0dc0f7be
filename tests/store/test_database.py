"""The database says what the run folders say, whatever they contain and whoever reads or builds
meanwhile."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pyarrow.parquet
import pytest

from benchmarks.synthetic import Shape, write_run, write_sweep
from rpg.store import Layout, StoreError, queries, run_folder
from rpg.store.database import STORAGE, build, connect, open_file
from rpg.store.run_writer import append_metrics, write_failed
from rpg.store.samples import write_eval
from rpg.store.schema import TABLES, VIEWS, documentation

SMALL = Shape(steps=6, eval_every=3, problems=5, samples=3, benchmarks=("easy", "hard"), metrics=4)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def layout(tmp_path):
    return write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1), SMALL)


def rows(db, sql, *parameters):
    return db.execute(sql, parameters).fetchall()


def query(layout, sql, *parameters):
    build(layout)
    with connect(layout) as db:
        return rows(db, sql, *parameters)


def content(path):
    """All tables as sorted rows (columns by name, sums in any order), without the time of the
    build."""
    with open_file(path) as db:
        tables = {}
        for name in TABLES:
            if name != "meta":
                names = sorted(
                    column[0] for column in db.execute(f"FROM {name} LIMIT 0").description
                )
                columns = ", ".join(f'"{column}"' for column in names)
                found = rows(db, f"SELECT {columns} FROM {name}")
                tables[name] = (
                    names,
                    sorted(repr([rounded(value) for value in row]) for row in found),
                )
        return tables


def rounded(value):
    return round(value, 12) if isinstance(value, float) else value


def test_a_build_reads_what_a_run_recorded_as_often_for_many_benchmarks_as_for_one(
    tmp_path, monkeypatch
):
    reads = []
    read = run_folder.read_json_object

    def counted(path):
        if path.name == "DONE.json":
            reads.append(path)
        return read(path)

    monkeypatch.setattr(run_folder, "read_json_object", counted)

    def reads_with(*benchmarks):
        shape = replace(SMALL, benchmarks=benchmarks)
        layout = write_sweep(tmp_path / str(len(benchmarks)), "demo", ("grpo",), (0,), shape)
        reads.clear()
        build(layout)
        return len(reads)

    assert reads_with("easy", "hard", "odd", "even") == reads_with("easy")


def test_metrics_are_those_that_the_run_folder_reads(layout):
    run = layout.run("demo", "grpo-seed0")
    first = run.read_metrics()
    for attempt, steps in ((2, (4, 5)), (10, (5, 6, 7))):
        for step in steps:
            numbers = {"reward": attempt + step / 8, "loss": math.nan, "x": math.inf}
            append_metrics(run, attempt, {"step": step, **numbers})
    no_steps = ('"7"', "-1", "1.5", "true", "99999999999999999999", '8} {"step": 9')
    garbage = b'\xff\xfe\n[1]\nnull\n{"reward": 1}\n'
    garbage += "".join(f'{{"step": {step}}}\n' for step in no_steps).encode()
    garbage += b'\n  \n{"step": 3, "reward": "high"}\n{"st'
    with open(run.metrics_path(2), "ab") as handle:
        handle.write(garbage)
    expected = run.read_metrics()
    assert [row["attempt"] for row in expected] == [1, 1, 2, 2, 10, 10, 10]
    assert first[0] == expected[0]
    columns = ("step", "attempt", "reward", "loss", "x")
    found = query(
        layout, f"SELECT {', '.join(columns)} FROM metrics WHERE run = ? ORDER BY step", run.name
    )
    numbers = [tuple(row.get(name) for name in columns) for row in expected]
    assert [row[2] for row in numbers][2] == "high"
    assert found[2][2] is None
    numbers[2] = (3, 2, None, None, None)
    assert repr(found) == repr(numbers)
    message = f"demo/{run.name}/metrics-2.jsonl: 11 unreadable lines left out"
    assert query(layout, "SELECT sweep, run, message FROM warnings") == [
        ("demo", run.name, message)
    ]


def test_accuracies_in_the_database_are_what_hand_counting_gives(tmp_path):
    layout = Layout.at(tmp_path)
    write_run(layout.run("s", "r"), "grpo", 0, 0.3, Shape(2, 5, 1, 1, ("other",), 3), None)
    run = layout.run("s", "r")
    shutil.rmtree(run.path / "evals")
    answers = {  # problem -> [(extracted, correct)]
        "all-right": [("1", True)] * 4,
        "majority": [("1/2", True), ("0.5", True), ("2", False), ("3", False)],
        "tie": [("1", True), ("2", False), ("1", True), ("2", False)],
        "minority": [("2", False), ("2", False), ("1", True), (None, False), (None, False)],
        "silent": [(None, False)] * 5,
    }
    row = {
        "problem": "?",
        "answer": "1",
        "response": "",
        "reason": "",
        "tokens": 8,
        "truncated": False,
    }
    samples = [
        row | {"problem_id": problem, "sample": number, "extracted": extracted, "correct": correct}
        for problem, tries in answers.items()
        for number, (extracted, correct) in enumerate(tries)
    ]
    samples[-1] |= {"extracted": "?", "reason": "answer line: not read: unclear; read as ?"}
    write_eval(run, "b", 1, samples)
    [found] = query(layout, "SELECT unread, second_reading FROM evals")
    assert found == (pytest.approx(1 / len(samples)), None)
    read_again = [row | {"second_reading": None} for row in samples[:-1]]
    # The only file with this column.
    write_eval(run, "c", 1, [*read_again, samples[-1] | {"second_reading": True}])
    unread = (
        "SELECT benchmark, unread, second_reading FROM samples WHERE unread IS NOT NULL ORDER "
        "BY ALL"
    )
    assert query(layout, unread) == [
        ("b", "not read: unclear", None),
        ("c", "not read: unclear", True),
    ]
    [(with_it, without)] = query(
        layout, "SELECT second_reading, accuracy FROM evals WHERE benchmark = 'c'"
    )
    assert with_it == pytest.approx(without + 1 / 5 / 5)
    run.eval_path("c", 1).unlink()
    [(problems, k, accuracy, error, passed, majority)] = query(
        layout, "SELECT problems, k, accuracy, standard_error, pass_at_k, maj_at_k FROM evals"
    )
    shares = [1, 1 / 2, 1 / 2, 1 / 5, 0]
    mean = sum(shares) / 5
    assert (problems, k) == (5, 4)
    assert accuracy == pytest.approx(mean)
    assert error == pytest.approx(math.sqrt(sum((share - mean) ** 2 for share in shares) / 4 / 5))
    assert passed == pytest.approx(
        (1 + 1 + 1 + 4 / 5 + 0) / 5
    )  # one of the five subsets has none right
    assert majority == pytest.approx((1 + 1 + 1 / 2 + 0 + 0) / 5)


def test_last_best_and_mean_accuracy_equal_those_worked_out_by_hand(layout):
    scores = {
        (benchmark, step): accuracy
        for benchmark, step, accuracy in query(
            layout, "SELECT benchmark, step, accuracy FROM evals WHERE run = 'rpg-urkl-seed1'"
        )
    }
    mean = {step: (scores["easy", step] + scores["hard", step]) / 2 for step in (0, 3, 6)}
    best_step = max(mean, key=lambda step: (mean[step], -step))
    found = query(
        layout,
        """SELECT first_step, first, last_step, last, best_step, best FROM last_best
           WHERE run = 'rpg-urkl-seed1' AND benchmark = 'mean'""",
    )
    assert found == [(0, mean[0], 6, mean[6], best_step, mean[best_step])]


def test_mean_only_where_all_benchmarks_are_evaluated(layout):
    layout.run("demo", "grpo-seed0").eval_path("hard", 6).unlink()
    steps = "SELECT step FROM scores WHERE run = 'grpo-seed0' AND benchmark = 'mean' ORDER BY step"
    assert query(layout, steps) == [(0,), (3,)]


def test_paired_uses_the_last_step_that_both_have(layout):
    layout.run("demo", "grpo-seed0").eval_path("hard", 6).unlink()
    steps = query(layout, "SELECT DISTINCT benchmark, seed, step FROM paired ORDER BY ALL")
    assert steps == [("easy", 0, 6), ("easy", 1, 6), ("hard", 0, 3), ("hard", 1, 6)]
    wrong = query(
        layout,
        """SELECT d.* FROM paired d
           JOIN runs r ON (r.sweep, r.variant, r.seed) = (d.sweep, d.variant, d.seed)
           JOIN runs b ON (b.sweep, b.variant, b.seed) = (d.sweep, d.baseline, d.seed)
           JOIN samples s
             ON (s.benchmark, s.step, s.problem_id) = (d.benchmark, d.step, d.problem_id)
           GROUP BY ALL
           HAVING avg(s.correct::INT) FILTER (s.run = r.run) <> any_value(d.accuracy)
               OR avg(s.correct::INT) FILTER (s.run = b.run) <> any_value(d.baseline_accuracy)""",
    )
    assert wrong == []


def test_the_database_has_the_state_of_every_promised_run(layout):
    layout.write_sweep(
        layout.read_sweep("demo") | {"runs": ["grpo-seed0", "grpo-seed1", "not begun"]}
    )
    failed = layout.run("demo", "grpo-seed1")
    write_failed(failed, "ValueError: the loss is nan", step=3)
    columns = "run, superseded, variant, state, error, step, steps, attempts"
    found = query(layout, f"SELECT {columns} FROM runs ORDER BY run")
    old = "rpg-urkl [not in the newest file]"
    why = "not in the newest file"
    assert found == [
        ("grpo-seed0", None, "grpo", "done", None, 6, 6, 1),
        ("grpo-seed1", None, "grpo", "failed", "ValueError: the loss is nan", 6, 6, 1),
        ("not begun", None, None, "pending", None, None, None, None),
        ("rpg-urkl-seed0", why, old, "done", None, 6, 6, 1),
        ("rpg-urkl-seed1", why, old, "done", None, 6, 6, 1),
    ]
    assert query(layout, "SELECT runs, superseded FROM sweeps") == [(3, 2)]
    layout.run(
        "demo", "not begun"
    ).path.mkdir()  # a sweep that begins: the manifest comes a moment later
    assert query(layout, "SELECT state FROM runs WHERE run = 'not begun'") == [("pending",)]
    assert query(layout, "SELECT * FROM warnings") == []
    interrupted = layout.run("demo", "rpg-urkl-seed0")
    interrupted.done_path.unlink()
    assert query(layout, "SELECT state FROM runs WHERE run = 'rpg-urkl-seed0'") == [
        ("interrupted",)
    ]


def test_what_is_corrupt_is_a_warning_and_the_rest_is_there(layout):
    layout.run("demo", "grpo-seed0").manifest_path.write_text("{")
    evaluation = layout.run("demo", "grpo-seed1").eval_path("easy", 3)
    evaluation.write_bytes(evaluation.read_bytes()[:100])
    metrics = layout.run("demo", "rpg-urkl-seed0").metrics_path(2)
    metrics.mkdir()
    columns = layout.run("demo", "rpg-urkl-seed1").eval_path("easy", 0)
    pyarrow.parquet.write_table(pyarrow.table({"other": [1]}), columns)
    (layout.runs / "broken").mkdir()
    (layout.runs / "broken" / "sweep.json").write_text("[]")
    files = {
        ("broken", None): "broken/sweep.json",
        ("demo", "grpo-seed0"): "manifest.json",
        ("demo", "grpo-seed1"): "step-000003.parquet",
        ("demo", "rpg-urkl-seed0"): "metrics-2.jsonl",
        ("demo", "rpg-urkl-seed1"): "step-000000.parquet",
    }
    warnings = query(layout, "SELECT sweep, run, message FROM warnings")
    found = {(sweep, run): line for sweep, run, line in warnings}
    assert found.keys() == files.keys()
    assert all(files[place] in line and "\n" not in line for place, line in found.items())
    assert query(layout, "SELECT count(*) FROM evals") == [(4 * 2 * 3 - 2,)]
    assert query(layout, "SELECT count(*) FROM metrics") == [(4 * 6,)]


HOSTILE = "Robert'); DROP TABLE runs;--\" <script>alert(1)</script> [x]*? 🙂 beta=0.1"


def test_names_are_names_whatever_they_contain(tmp_path):
    layout = Layout.at(tmp_path / "[h]*ome'")
    name = HOSTILE.replace("/", "∕")
    shape = Shape(3, 3, 2, 2, (name,), 3)
    layout.write_sweep(
        {"name": name, "source": HOSTILE, "baseline": HOSTILE, "created": 1, "runs": [name]}
    )
    run = layout.run(name, name)
    write_run(run, HOSTILE, 0, 0.2, shape, HOSTILE)
    keys = {HOSTILE: 0.5, "a'b\"c": 1.5, "filename": 1, "sweep": 2, "Reward": 7.0, "": 3}
    append_metrics(run, 1, {"step": 4, **keys})
    found = query(
        layout,
        'SELECT m."a\'b""c", r.variant, s.baseline FROM metrics m JOIN runs r USING (sweep, run) '
        "JOIN sweeps s USING (sweep) WHERE m.run = ? AND m.step = 4",
        name,
    )
    assert found == [(1.5, HOSTILE, HOSTILE)]
    assert query(layout, "SELECT DISTINCT benchmark FROM samples") == [(name,)]
    assert query(layout, "SELECT value FROM curves WHERE metric = ?", HOSTILE) == [(0.5,)]
    [warning] = query(layout, "SELECT message FROM warnings")
    assert warning == ("metric 'reward' left out: it differs from 'Reward' only in case",)


def test_an_empty_home_and_a_run_without_numbers(tmp_path):
    layout = Layout.at(tmp_path)
    with pytest.raises(StoreError, match="no results database"):
        connect(layout)
    assert query(layout, "SELECT count(*) FROM runs") == [(0,)]
    layout.run("s", "r").path.mkdir(parents=True)
    layout.run("s", "r").metrics_path(1).write_text("")
    for view in VIEWS:
        assert query(layout, f"SELECT * FROM {view}") == []
    append_metrics(layout.run("s", "r"), 1, {"step": 1})
    assert query(layout, "SELECT count(*) FROM metrics") == [(1,)]
    assert query(layout, "SELECT count(*) FROM curves") == [(0,)]


def test_a_connection_can_neither_write_nor_reach_other_files(layout, tmp_path):
    build(layout)
    with connect(layout) as db:
        with pytest.raises(duckdb.Error):
            db.execute("DELETE FROM runs")
        with pytest.raises(duckdb.Error):
            db.execute("SELECT * FROM read_text('/etc/hostname')")
    with connect(layout, external=True) as db:
        db.execute(f"COPY runs TO '{tmp_path / 'runs.parquet'}'")
    assert (tmp_path / "runs.parquet").stat().st_size > 0


def test_the_oldest_client_that_is_allowed_can_open_the_file(layout):
    build(layout)
    with connect(layout) as db:
        [(tags,)] = rows(db, "SELECT tags FROM duckdb_databases() WHERE NOT internal")
    assert tags["storage_version"].startswith(STORAGE)
    oldest = STORAGE.removeprefix("v").removesuffix(".0")
    assert f'"duckdb>={oldest}"' in (ROOT / "pyproject.toml").read_text()


def test_the_documentation_holds_the_schema(layout):
    assert documentation() in (ROOT / "docs" / "database.md").read_text()
    build(layout)
    with connect(layout) as db:
        found = {name for (name,) in rows(db, "SELECT table_name FROM information_schema.tables")}
        assert found == {*TABLES, *VIEWS}
        for table, columns in TABLES.items():
            described = [(name, kind) for name, kind, *_ in rows(db, f"DESCRIBE {table}")]
            assert described[: len(columns)] == [
                (name, kind) for name, (kind, _) in columns.items()
            ]


@pytest.mark.parametrize(
    "error", [RuntimeError("Query interrupted"), duckdb.InterruptException("Interrupted!")]
)
def test_ctrl_c_during_a_query_is_ctrl_c(error):
    """DuckDB takes the signal and raises errors of its own, which would be shown as a traceback."""
    with pytest.raises(KeyboardInterrupt):
        queries.frame(Mock(execute=Mock(side_effect=error)), "select 1")
