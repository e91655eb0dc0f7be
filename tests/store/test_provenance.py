"""Runs of one table that were computed with something else are named: which runs, which versions,
and what differs."""

import importlib
import json
import sys

import pytest

from benchmarks.synthetic import Shape, write_sweep
from rpg.report.summary import summarise
from rpg.report.tables import latex, markdown
from rpg.store import queries, run_provenance
from rpg.store.database import build, connect
from rpg.store.run_provenance import differences, of_other_code, other_code_notes, recorded
from rpg.system import provenance as here

SHAPE = Shape(steps=4, eval_every=2, problems=6, samples=2, benchmarks=("easy",), metrics=3)


def record(loss="1", revision="a" * 40, torch="2.6.0", processor="Xeon", **sources):
    sources = {"rpg/losses/policy_loss.py": loss, "rpg/models/decoding.py": "1", **sources}
    machine = {"processor": processor, "host": "here"}
    versions = {"python": "3.11.7", "torch": torch}
    return {
        "code": here.code(sources),
        "sources": sources,
        "git_revision": revision,
        "versions": versions,
        "machine": machine,
    }


CODE, OTHER = (f"{record(loss=loss)['code']} (commit aaaaaaaaaa)" for loss in "12")
LOSS = "rpg/losses/policy_loss.py differs; to train a run again, remove it (rpg rm)"
REVISIONS = (
    "trained at different git revisions: commit bbbbbbbbbb+: two; commit aaaaaaaaaa: one, three"
)
MACHINES = "trained on different machines, whose numbers may differ in the last digits"


@pytest.mark.parametrize(
    ("two", "lines"),
    [
        ([record(), record()], []),
        ([record(**{"rpg/tasks/math_problems.py": "1"})], []),  # what only one of them imports
        (
            [record(loss="2")],
            [f"trained by different code: {OTHER}: two; {CODE}: one, three; {LOSS}"],
        ),
        # resumed after an upgrade: it belongs to both
        (
            [record(), record(loss="2")],
            [f"trained by different code: {OTHER}: two; {CODE}: one, two, three; {LOSS}"],
        ),
        (
            [record(revision="b" * 40 + "+")],
            [f"{REVISIONS}; the code that training imports is the same"],
        ),
        (
            [record(torch="2.7.0")],
            ["trained with different versions of torch: torch 2.7.0: two; torch 2.6.0: one, three"],
        ),
        ([record(processor="EPYC")], [f"{MACHINES}: EPYC: two; Xeon: one, three"]),
        ([{}], ["no record of the code that trained two (by an earlier version)"]),
    ],
)
def test_what_trainings_were_computed_with_is_said_where_it_differs(two, lines):
    assert differences({"one": [record()], "two": two, "three": [record()]}) == lines
    assert differences({"one": [{}], "two": []}) == [], (
        "of runs from before there is nothing to compare"
    )


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree of its own, which tests may edit."""
    root = tmp_path / "tree"
    (root / "rpg" / "losses").mkdir(parents=True)
    (root / "dashboard").mkdir()
    for name in ("rpg/losses/policy_loss.py", "rpg/losses/levels.py", "dashboard/app.py"):
        (root / name).write_text("one = 1\n")
    monkeypatch.setattr(here, "ROOT", root)
    here._digest.cache_clear()
    return root


def test_table_status_and_database_name_runs_of_other_code(tmp_path, tree):
    layout = write_sweep(tmp_path, "demo", ("grpo", "rpg-urkl"), (0, 1), SHAPE)
    folders = {name: layout.run("demo", name) for name in layout.read_sweep("demo")["runs"]}
    for name, folder in folders.items():
        if name == "rpg-urkl-seed1":
            (tree / "rpg/losses/policy_loss.py").write_text("one = 2\n")
            here._digest.cache_clear()
        run_provenance.write(folder, 1, ("rpg.losses",))
    assert of_other_code(recorded(folders.values())) == (
        ["grpo-seed0", "grpo-seed1", "rpg-urkl-seed0"],
        ["rpg/losses/policy_loss.py"],
    )
    build(layout)
    with connect(layout) as db:
        summary = summarise(db, "demo")
        assert len(queries.provenance(db, "demo")) == 4
        files = "SELECT file FROM sources GROUP BY file HAVING count(DISTINCT digest) > 1"
        assert db.execute(files).fetchall() == [("rpg/losses/policy_loss.py",)]
        codes = dict(db.execute("SELECT run, code FROM runs").fetchall())
    assert len(set(codes.values())) == 2
    assert codes["grpo-seed0"] == codes["rpg-urkl-seed0"]
    [note] = [note for note in summary.notes if "different code" in note]
    assert f"{codes['rpg-urkl-seed1']} (" in note
    assert ": rpg-urkl-seed1; " in note
    assert "rpg/losses/policy\\_loss.py differs" in markdown(summary)
    assert "trained by different code: " in latex(summary)
    (tree / "dashboard" / "app.py").write_text("one = 2\n")
    (tree / "rpg" / "losses" / "policy_loss.py").write_text("one = 1\n")
    assert other_code_notes(recorded(folders.values())) == [
        "trained by older code: rpg-urkl-seed1; rpg/losses/policy_loss.py has changed since; "
        "to train a run again, remove it (rpg rm)"
    ]


def test_a_record_that_cannot_be_read_is_a_warning(tmp_path):
    layout = write_sweep(tmp_path, "demo", ("grpo",), (0,), SHAPE)
    path = layout.run("demo", "grpo-seed0").provenance_path(1)
    path.write_text("{")
    build(layout)
    with connect(layout) as db:
        assert any(str(path) in line for line in queries.warnings(db))
    assert other_code_notes(recorded([layout.run("demo", "grpo-seed0")])) == []


def test_what_a_process_has_imported_is_ours_and_nobodys_packages():
    found = here.loaded()
    ours = {
        "rpg/system/provenance.py",
        "rpg/store/run_provenance.py",
        "tests/store/test_provenance.py",
    }
    assert ours <= set(found)
    assert not any("site-packages" in name or "lib/python" in name for name in found)
    assert here.changed(found) == []
    assert not any(name.startswith(("flows/", "rpg/report/", "rpg/evaluation/")) for name in found)
    assert json.loads(json.dumps(here.record(found)))["code"] == here.code(found)


def test_a_file_that_is_edited_after_it_was_imported_is_what_it_was(tmp_path, monkeypatch):
    """As in a process forked from one that imported it: the text of now is not what is computed
    with."""
    path = tmp_path / "users_own_reward.py"
    path.write_text("ONE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("users_own_reward")
    before = here.loaded()[str(path)]
    path.write_text("ONE = 2\n")
    assert here.loaded()[str(path)] == before
    assert here.changed(here.loaded()) == [str(path)]
    del sys.modules["users_own_reward"]
