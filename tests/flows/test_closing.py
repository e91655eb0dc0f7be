"""A command that ends well has shown what the files say: database, report and table are products,
and a product that is missing, older than its files or damaged is made again.

Trainings are made up (benchmarks/trivial); everything around them is real.
"""

import json
import shutil

import pytest

from rpg.store import Layout
from rpg.store.database import connect
from rpg.store.samples import read_eval
from tests.real_sweep import SWEEP, TRIVIAL, rpg

pytestmark = pytest.mark.component


def sweep_of(root, seeds, **how):
    (root / "closing.yaml").write_text(SWEEP.format(name="closing", steps=4, every=2, seeds=seeds))
    return rpg(root, "sweep", "closing.yaml", module=TRIVIAL, **how)


def table(printed):
    """What a command prints below its progress."""
    return printed[printed.index("GRPO: accuracy") :]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, prefect):
    """The folder of a finished sweep of two seeds; `half` in it is the database with one of
    them."""
    root = tmp_path_factory.mktemp("closing")
    first = sweep_of(root, [5], **prefect)
    assert first.returncode == 0, first.stdout + first.stderr
    shutil.copytree(root / "data/analytics", root / "half")
    both = sweep_of(root, [5, 6], **prefect)
    assert both.returncode == 0, both.stdout + both.stderr
    (root / "table").write_text(table(both.stdout))
    return root


@pytest.fixture
def home(finished, tmp_path, monkeypatch):
    """A copy of the data folder, as a user would make one: with other times."""
    shutil.copytree(finished / "data", tmp_path / "data", copy_function=shutil.copyfile)
    monkeypatch.setenv("RPG_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(finished)
    return tmp_path / "data"


def evaluated_runs(home):
    with connect(Layout.at(home)) as db:
        query = "SELECT DISTINCT run FROM scores WHERE sweep = 'closing'"
        return {run for (run,) in db.execute(query).fetchall()}


def older(home, root):
    shutil.rmtree(home / "analytics")
    shutil.copytree(root / "half", home / "analytics")


def missing(home, _):
    shutil.rmtree(home / "analytics")


def without_pointer(home, _):
    (home / "analytics/CURRENT").unlink()


def garbage_pointer(home, _):
    (home / "analytics/CURRENT").write_bytes(bytes(range(128, 256)))


@pytest.mark.parametrize("harm", [older, missing, without_pointer, garbage_pointer])
def test_a_finished_sweep_prints_what_its_files_say(home, finished, command_line, harm):
    harm(home, finished)

    code, out, err = command_line("sweep", "closing.yaml")

    assert code == 0, err
    assert "already done" in out
    assert table(out) == (finished / "table").read_text()
    assert len(evaluated_runs(home)) == 2


@pytest.mark.parametrize("name", ["report.html", "table.csv", "made-of.json"])
def test_a_report_that_is_missing_or_damaged_is_written_again(home, command_line, name):
    path = home / "reports/closing" / name
    whole = path.read_text()
    path.write_text(whole[:40])

    code, _, err = command_line("sweep", "closing.yaml")

    assert code == 0, err
    if name != "made-of.json":  # it has times
        assert path.read_text() == whole
    assert "files" in json.loads((home / "reports/closing/made-of.json").read_text())


def test_what_is_whole_is_left_alone(home, command_line):
    command_line("sweep", "closing.yaml")  # notices the other times
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()}

    code, _, err = command_line("sweep", "closing.yaml")

    assert code == 0, err
    after = {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()}
    written = {path.name for path in after if after[path] != before.get(path)}
    assert not {"CURRENT", "report.html", "DONE.json", "manifest.json"} & written


def test_a_damaged_evaluation_is_named_and_owed_again(home, finished, command_line, prefect):
    folder = Layout.at(home).run_folders("closing")[0]
    [benchmark, *_] = folder.benchmarks()
    path = folder.eval_path(benchmark, 4)
    samples = read_eval(folder, benchmark, 4).to_pylist()
    path.write_bytes(path.read_bytes()[:-30])

    for command in ("status", "report"):
        code, out, err = command_line(command, "closing")
        assert code == 1
        assert f"damaged: {folder.name}/evals/{benchmark}/step-000004.parquet" in err
    assert "no result includes it" in out, "the notes of the report"
    again = sweep_of(finished, [5, 6], home=home, **prefect)

    assert again.returncode == 0, again.stdout + again.stderr
    assert "1 of 2 runs to do" in again.stdout
    assert read_eval(folder, benchmark, 4).to_pylist() == samples
    assert folder.damage() == {}


def test_damaged_metrics_are_named_and_count_nowhere(home, command_line):
    folder = Layout.at(home).run_folders("closing")[1]
    path = folder.metrics_path(1)
    path.write_text(path.read_text().replace('"reward": ', '"reward": 1'))

    for words in (["status", "closing"], ["report", "closing"], ["sweep", "closing.yaml"]):
        code, _, err = command_line(*words)
        assert code == 1 and f"damaged: {folder.name}/metrics-1.jsonl" in err, words
    with connect(Layout.at(home)) as db:
        query = "SELECT count(*) FROM metrics WHERE run = ?"
        assert db.execute(query, [folder.name]).fetchone() == (0,)
        [(message,)] = db.execute("SELECT message FROM warnings").fetchall()
    assert "metrics-1.jsonl" in message


def test_a_damaged_manifest_is_named_then_written_again(home, command_line):
    folder = Layout.at(home).run_folders("closing")[0]
    folder.manifest_path.write_bytes(b"\x00garbage")

    code, _, err = command_line("report", "closing")
    assert code == 1
    assert f"damaged: {folder.name}/manifest.json" in err
    code, _, err = command_line("sweep", "closing.yaml")

    assert code == 0, err
    assert folder.read_manifest()["seed"] == 5


def test_a_valid_manifest_that_was_changed_is_named_then_written_again(home, command_line):
    folder = Layout.at(home).run_folders("closing")[0]
    text = folder.manifest_path.read_text("utf-8")
    folder.manifest_path.write_text(text.replace('"algorithm": "grpo"', '"algorithm": "dapo"'))
    assert folder.manifest_path.read_text("utf-8") != text

    for command in ("status", "report"):
        code, _, err = command_line(command, "closing")
        assert code == 1 and f"damaged: {folder.name}/manifest.json has changed" in err, command
    with connect(Layout.at(home)) as db:
        query = "SELECT algorithm FROM runs WHERE run = ?"
        assert db.execute(query, [folder.name]).fetchone() == (None,)
    code, _, err = command_line("sweep", "closing.yaml")

    assert code == 0, err
    assert folder.read_manifest()["algorithm"] == "grpo"
