"""What was trained and drawn stays: through other memory, more samples, another interval, more
steps, a new version."""

import json
import resource
import shutil

import pytest

from flows.sweep.conductor import conduct, register
from flows.sweep.sharing import Claims, take_over
from rpg.config.sweep_spec import load_sweep
from rpg.store import Layout, StoreError
from rpg.store.current import flat
from rpg.store.database import build, connect
from rpg.store.run_folder import IMPORTED, pending_evaluations
from rpg.store.run_writer import append_metrics, note_removed, write_done, write_manifest
from rpg.store.samples import write_eval
from rpg.tasks.preparation import data_digest
from tests.real_sweep import SWEEP, TRIVIAL, rpg
from tests.tiny import BASE

ROW = {
    "sample": 0,
    "extracted": None,
    "correct": True,
    "reason": "",
    "tokens": 1,
    "truncated": False,
}
ROW |= dict.fromkeys(("problem_id", "problem", "answer", "response"), "?")


@pytest.fixture
def sweep(tmp_path):
    file = tmp_path / "demo.yaml"
    file.write_text(
        f"name: demo\nrun: {json.dumps(BASE)}\naxes: {{algorithm: [grpo], seed: [0, 1]}}\n"
    )
    return lambda **changes: load_sweep(file, {"training.steps": 4, **changes}, lambda spec: "data")


@pytest.fixture
def layout(tmp_path):
    return Layout.at(tmp_path / "home")


def finished(layout, sweep):
    """The sweep's runs, as if trained and evaluated, with checkpoints 0, 2 and 4."""
    folders = register(sweep, layout)
    for folder in folders:
        manifest = folder.read_manifest()
        for step in range(1, manifest["steps"] + 1):
            append_metrics(folder, 1, {"step": step, "reward": float(step)})
        for step in manifest["eval_steps"]:
            (folder.checkpoint(step) / "training").mkdir(parents=True)
            (folder.checkpoint(step) / "weights").write_text(str(step))
            for benchmark in manifest["benchmarks"]:
                write_eval(folder, benchmark, step, [ROW])
        write_done(folder, seconds=1.0, attempts=1)
    return folders


OPERATING = {
    "training.micro_batch_rows": 4,
    "training.checkpoint_every": 2,
    "backend.threads": 2,
    "evaluation.engine.rows": 8,
    "training.micro_batch_tokens": 64,
    "backend.gradient_checkpointing": True,
    "evaluation.place.memory_gib": 4.0,
    "evaluation.place.threads": 2,
}


@pytest.mark.parametrize("field", OPERATING)
def test_a_field_that_operates_keeps_the_finished_run_and_is_written_down(sweep, layout, field):
    before = finished(layout, sweep())
    after = register(sweep(**{field: OPERATING[field]}), layout)
    assert after == before
    assert all(f.state() == "done" and not pending_evaluations(f) for f in after)
    assert flat(after[0].read_manifest()["spec"])[field] == OPERATING[field]


def test_more_samples_go_on_from_those_there_are_and_are_not_owed_without_weights(sweep, layout):
    [folder, gone] = finished(layout, sweep())
    note_removed(gone, [0])
    shutil.rmtree(gone.checkpoint(0))
    [again, _] = register(sweep(**{"evaluation.samples_per_problem": 8}), layout)
    assert again == folder
    assert folder.state() == "interrupted"
    assert pending_evaluations(folder) == [
        (b, s) for s in (0, 2, 4) for b in ("chain-one", "chain-two")
    ]
    assert folder.fewer_path("chain-one", 2).exists()
    assert not folder.eval_path("chain-one", 2).exists()
    assert {step for _, step in pending_evaluations(gone)} == {2, 4}
    assert gone.eval_steps("chain-one") == [0], "what was drawn from them stays"


def test_another_interval_adds_what_can_be_had_without_training_again(sweep, layout):
    [folder, _] = finished(layout, sweep())
    assert register(sweep(**{"evaluation.every": 1}), layout)[0] == folder
    assert not pending_evaluations(folder), (
        "checkpoints 1 and 3, dropped, would have to be trained again"
    )
    (folder.checkpoint(3)).mkdir()
    register(sweep(**{"evaluation.every": 1}), layout)
    assert {step for _, step in pending_evaluations(folder)} == {3}


LONG = {"training.steps": 24, "evaluation.every": 12}


def begun_before_early_evaluations(layout, sweep):
    """A finished run as an older version left it: its manifest does not know `early`."""
    [folder, _] = finished(layout, sweep(**{**LONG, "evaluation.early": False}))
    manifest = folder.read_manifest()
    del manifest["spec"]["evaluation"]["early"]
    write_manifest(folder, manifest)
    return folder


def test_first_steps_are_evaluated_by_default_and_finished_runs_owe_nothing(sweep, layout):
    folder = begun_before_early_evaluations(layout, sweep)
    folder.checkpoint(2).mkdir()
    for _ in range(2):
        [again, new] = register(sweep(**LONG), layout)
        assert again == folder
        assert folder.state() == "done"
        assert folder.read_manifest()["eval_steps"] == [0, 12, 24], "not even where weights are"
    shutil.rmtree(new.path)
    [_, new] = register(sweep(**LONG), layout)
    assert new.read_manifest()["eval_steps"] == [0, 1, 2, 4, 12, 24]


def test_a_longer_run_does_not_owe_what_the_shorter_one_did_not_keep(sweep, layout):
    short = begun_before_early_evaluations(layout, sweep)
    [folder, _] = register(sweep(**{**LONG, "training.steps": 36}), layout)
    assert folder.read_manifest()["eval_steps"] == [0, 1, 2, 4, 12, 24, 36]
    take_over(folder, short)
    assert folder.read_manifest()["eval_steps"] == [0, 12, 24, 36]


def test_fewer_benchmarks_and_more_of_them_again(sweep, layout):
    few = {"evaluation.benchmarks": ["chain-one"]}
    [folder, _] = finished(layout, sweep(**few))
    assert folder.benchmarks() == ["chain-one"]
    assert register(sweep(), layout)[0] == folder
    assert pending_evaluations(folder) == [("chain-two", step) for step in (0, 2, 4)]
    register(sweep(**few), layout)
    assert not pending_evaluations(folder)


def test_another_temperature_evaluates_anew_and_the_samples_before_come_back(sweep, layout):
    [folder, _] = finished(layout, sweep())
    register(sweep(**{"evaluation.temperature": 0.5}), layout)
    assert len(pending_evaluations(folder)) == 6
    assert folder.benchmarks() == []
    register(sweep(), layout)
    assert not pending_evaluations(folder)
    assert folder.eval_steps("chain-one") == [0, 2, 4]


def test_a_longer_run_goes_on_where_the_shorter_one_ended(sweep, layout):
    [short, _] = finished(layout, sweep())
    [long, _] = register(sweep(**{"training.steps": 8}), layout)
    assert long != short
    source = Claims(layout).duplicate(long)
    assert source == short
    take_over(long, source)
    assert long.checkpoint_steps() == [0, 2, 4]
    assert [r["step"] for r in long.read_metrics()] == [1, 2, 3, 4]
    assert {step for _, step in pending_evaluations(long)} == {6, 8}
    assert short.state() == "done", "the shorter run stays what it was"
    [shorter, _] = register(sweep(**{"training.steps": 2}), layout)
    assert Claims(layout).duplicate(shorter) is None, (
        "a run never takes over what lies behind its end"
    )
    [other, _] = register(
        sweep(**{"training.steps": 8, "training.optimizer.learning_rate": 0.5}), layout
    )
    assert Claims(layout).duplicate(other) is None


@pytest.fixture
def of_format_1(sweep, layout):
    """Finished runs as the version before identities wrote them: without an identity record."""
    folders = finished(layout, sweep())
    for folder in folders:
        manifest = folder.read_manifest()
        for name in ("root_id", "identity", "evaluation_id", "samples"):
            del manifest[name]
        write_manifest(folder, manifest)
    return folders


def test_runs_of_an_older_format_are_refused_by_name(sweep, layout, of_format_1):
    before = [folder.manifest_path.read_bytes() for folder in of_format_1]
    with pytest.raises(StoreError, match=f"{of_format_1[0].name}: a run of an older format"):
        register(sweep(), layout)
    assert [folder.manifest_path.read_bytes() for folder in of_format_1] == before


def test_the_database_reads_finished_runs_of_an_older_format(layout, of_format_1):
    build(layout)
    with connect(layout) as db:
        runs = db.execute("SELECT run, state FROM runs ORDER BY run").fetchall()
    assert runs == [(folder.name, "done") for folder in of_format_1]


def test_imported_runs_have_no_identity_and_are_not_refused(sweep, layout, of_format_1):
    for folder in of_format_1:
        (folder.path / IMPORTED).write_text('{"scores": {}}')
    register(sweep(**{"training.steps": 5}), layout)


@pytest.mark.system
def test_a_sweep_of_more_steps_trains_the_further_ones_only(tmp_path, prefect):
    file = tmp_path / "t.yaml"
    layout = Layout.at(tmp_path / "data")
    file.write_text(SWEEP.format(name="t", steps=3, every=2, seeds=[0]))
    finished(layout, load_sweep(file, {}, data_digest))
    done = rpg(tmp_path, "sweep", "t.yaml", "--set=training.steps=6", module=TRIVIAL, **prefect)
    assert done.returncode == 0, done.stdout + done.stderr
    [name] = layout.read_sweep("t")["runs"]
    rows = layout.run("t", name).read_metrics()
    assert [(row["step"], row["attempt"]) for row in rows] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 2),
        (5, 2),
        (6, 2),
    ]
    assert layout.run("t", name).eval_steps("chain-easy") == [0, 2, 4, 6]


def test_a_conductor_opens_as_many_files_as_it_may(sweep, layout, monkeypatch):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert conduct(sweep(), layout, [], 1, None) is None
    assert limits == [(4096, 4096)]
