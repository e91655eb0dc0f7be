"""Builds of the database: what they read anew, side by side with others, killed, on a full disk."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from unittest.mock import Mock

import duckdb
import pytest

from benchmarks.synthetic import write_run, write_sweep
from rpg.store import Layout, StoreError, database
from rpg.store.database import KEEP, build, connect, current, open_file
from rpg.store.run_writer import append_metrics
from rpg.store.schema import TABLES
from tests.store.test_database import ROOT, SMALL, content, query, rows
from tests.waiting import HANG


@pytest.fixture
def layout(tmp_path):
    return write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1), SMALL)


class Builds:
    """Builds a database, and watches which runs each build read, kept and dropped."""

    def __init__(self, layout, monkeypatch):
        self.layout = layout
        self.ingest = Mock(wraps=database.ingest)
        monkeypatch.setattr(database, "ingest", self.ingest)
        self.runs = set()

    def next(self):
        """(read, kept, dropped) of one more build: names of runs. None if it made nothing."""
        before = self.runs
        version = current(self.layout)
        self.ingest.reset_mock()
        if build(self.layout) == version:
            return None
        read = {source.folder.name for source in self.ingest.call_args.args[2]}
        with connect(self.layout) as db:
            self.runs = {name for (name,) in rows(db, "SELECT run FROM runs")}
        return read, self.runs - read, before - self.runs


ALL = {"grpo-seed0", "grpo-seed1", "rpg-urkl-seed0", "rpg-urkl-seed1"}


def test_a_build_reads_what_changed_keeps_the_rest_and_drops_what_is_gone(layout, monkeypatch):
    builds = Builds(layout, monkeypatch)
    assert builds.next() == (ALL, set(), set())
    assert builds.next() is None
    append_metrics(layout.run("demo", "grpo-seed1"), 2, {"step": 7, "reward": 1.0})
    assert builds.next() == ({"grpo-seed1"}, ALL - {"grpo-seed1"}, set())
    write_run(layout.run("demo", "late"), "dapo", 3, 0.3, SMALL, None)
    assert builds.next() == ({"late"}, ALL, set())
    shutil.rmtree(layout.run("demo", "late").path)
    assert builds.next() == (set(), ALL, {"late"})
    layout.write_sweep(layout.read_sweep("demo") | {"baseline": "rpg-urkl"})
    assert builds.next() == (set(), ALL, set())
    current(layout).unlink()
    assert builds.next() == (ALL, set(), set())


def test_an_incremental_build_equals_a_full_one(layout, tmp_path):
    build(layout)
    changed = layout.run("demo", "grpo-seed1")
    append_metrics(changed, 2, {"step": 7, "reward": 1.0, "a new metric": 2.0})
    build(layout)
    write_run(layout.run("demo", "late"), "dapo", 3, 0.3, SMALL, None)
    build(layout)
    shutil.rmtree(layout.run("demo", "late").path)
    build(layout)
    layout.write_sweep(layout.read_sweep("demo") | {"baseline": "rpg-urkl"})
    build(layout)
    layout.audits.mkdir()
    (layout.audits / "loss.json").write_text('{"bias": 0.25}')
    incremental = build(layout)
    assert build(layout) == incremental, "without changes nothing is made"
    shutil.copytree(layout.home, tmp_path / "copy", copy_function=shutil.copy2)
    fresh = Layout.at(tmp_path / "copy")
    shutil.rmtree(fresh.analytics)
    one = content(incremental)
    other = content(build(fresh))
    for name in set(TABLES) - {"meta", "runs"}:
        assert one[name] == other[name], name
    assert query(layout, "SELECT report->>'$.bias' FROM audits") == [("0.25",)]
    assert query(layout, "SELECT DISTINCT baseline FROM paired") == [("rpg-urkl",)]


def test_a_reader_keeps_its_version_while_others_build_and_prune(layout):
    first = build(layout)
    with open_file(first) as reader:
        before = rows(reader, "SELECT count(*) FROM metrics")
        for step in range(10, 10 + KEEP + 2):
            append_metrics(layout.run("demo", "grpo-seed0"), 2, {"step": step, "reward": 1.0})
            assert build(layout) != first
        assert not first.exists()
        assert len(list(layout.analytics.glob("*.duckdb"))) == KEEP
        assert rows(reader, "SELECT count(*) FROM metrics") == before
        assert rows(reader, "SELECT count(*) FROM samples") == [(4 * 2 * 3 * 5 * 3,)]


def python(code, *arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    code = f"import sys\nfrom rpg.store import Layout\n{code}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment, **streams
    )


BUILDER = """
from rpg.store.database import build
for _ in range(6):
    build(Layout.at(sys.argv[1]))
print("built")
"""
WRITER = """
from rpg.store.run_writer import append_metrics
run = Layout.at(sys.argv[1]).run("demo", "grpo-seed0")
for step in range(100, 1000):
    append_metrics(run, 2, {"step": step, "reward": 1.0, "accuracy": 1.0})
print("wrote")
"""
READER = """
from rpg.store.database import connect
reads = 0
while reads < 60:
    with connect(Layout.at(sys.argv[1])) as db:
        step, = db.execute("SELECT step FROM runs WHERE run = 'grpo-seed0'").fetchone()
        top, bad = db.execute("SELECT max(step), count(*) FILTER (reward IS NULL) FROM metrics "
                              "WHERE run = 'grpo-seed0'").fetchone()
        assert step == top and bad == 0, (step, top, bad)  # one version, never a mixture
    reads += 1
print("read")
"""


@pytest.mark.system
def test_builders_writers_and_readers_at_once(layout):
    build(layout)
    processes = [python(code, layout.home) for code in (WRITER, BUILDER, BUILDER, READER, READER)]
    outputs = [process.communicate(timeout=HANG)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 5, outputs
    assert [line.split()[-1] for line in outputs] == ["wrote", "built", "built", "read", "read"]
    assert query(layout, "SELECT max(step) FROM metrics") == [(999,)]


def test_a_full_disk_and_a_killed_build_leave_the_previous_version(layout):
    before = build(layout)
    append_metrics(layout.run("demo", "grpo-seed0"), 2, {"step": 9, "reward": 1.0})
    pid = os.fork()
    if pid == 0:  # files may not grow: what a full disk does to a database
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            build(layout)
        except StoreError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert current(layout) == before
    code = "import os, rpg.store.database as d\n"
    code += "d.ingest = lambda *a: os.kill(os.getpid(), 9)\nd.build(Layout.at(sys.argv[1]))"
    assert python(code, layout.home).wait(timeout=HANG) == -signal.SIGKILL
    assert list(layout.analytics.glob(".results-*.tmp*"))
    assert current(layout) == before
    assert query(layout, "SELECT max(step) FROM metrics") == [(9,)]
    assert not list(layout.analytics.glob(".results-*.tmp*"))


@pytest.mark.parametrize(
    "damage", ["truncated", "garbage", "other version", "gone", "pointer", "not text", "no folder"]
)
def test_a_damaged_database_is_rebuilt(layout, damage):
    path = build(layout)
    pointer = layout.analytics / "CURRENT"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    elif damage == "garbage":
        path.write_bytes(b"not a database" * 1000)
    elif damage == "other version":
        with duckdb.connect(
            path
        ) as db:  # nothing has changed in the run folders, but the columns have
            db.execute("UPDATE meta SET schema_version = 0; ALTER TABLE runs DROP COLUMN variant")
    elif damage == "gone":
        path.unlink()
    elif damage == "not text":
        pointer.write_bytes(b"\xff\xfe\x00")
    elif damage == "no folder":
        shutil.rmtree(layout.analytics)
    else:
        pointer.write_text("../../../etc/passwd\n")
    connect(layout).close()  # by the first who reads it
    if damage in ("truncated", "garbage", "other version"):
        assert current(layout) != path
    assert query(layout, "SELECT (SELECT count(*) FROM metrics), count(variant) FROM runs") == [
        (24, 4)
    ]
