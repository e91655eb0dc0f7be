"""The disk is bounded: evaluated checkpoints go by rule, and `rpg show` has foretold what lies
there afterwards."""

import json
import shutil

import pytest

from rpg.backends.local.training_loop import train
from rpg.evaluation.evaluator import Evaluator
from rpg.planning.space import PROVENANCE_BYTES, disk
from rpg.store import Layout
from rpg.store.checkpoints import CheckpointFolder, checkpoints_of
from rpg.store.current import current_runs
from rpg.store.gc import collect, garbage, remove, size
from rpg.store.run_folder import RunFolder, pending_evaluations
from rpg.store.run_writer import write_done, write_manifest
from rpg.store.samples import read_eval, write_samples
from tests.tiny import make_run, make_spec, numbers

SPEC = make_spec(
    training={"steps": 8, "keep_checkpoints": "all"}, evaluation={"every": 2}, algorithm="dapo"
)
quiet = lambda line: None  # noqa: E731


@pytest.fixture(scope="module")
def trained(home, tmp_path_factory):
    """A run that is trained and evaluated, with all of its checkpoints."""
    folder = make_run(home, "kept", SPEC)
    train(folder, home, quiet)
    Evaluator(Layout(home), "sweep", quiet).pass_over()
    assert folder in current_runs(Layout(home), "sweep")
    assert not pending_evaluations(folder)
    assert folder.checkpoint_steps() == [0, 2, 4, 6, 7, 8]
    return folder


@pytest.fixture
def copy(trained, tmp_path):
    """The same run in a folder of its own, with another rule."""

    def make(keep):
        folder = RunFolder(tmp_path / "runs" / "sweep" / "kept")
        shutil.copytree(trained.path, folder.path, symlinks=True)
        manifest = folder.read_manifest()
        manifest["spec"]["training"]["keep_checkpoints"] = keep
        write_manifest(folder, manifest)
        return folder

    return make


def _best(folder):
    rule = CheckpointFolder(folder, folder.read_manifest()["eval_steps"])
    return min((0, 2, 4, 6, 8), key=lambda step: (-rule._score(step), step))


@pytest.mark.parametrize("keep", ["all", "last", "best", [4], [0, 6]])
def test_what_stays_after_a_run_is_what_the_rule_says_and_what_show_foretold(copy, keep):
    folder = copy(keep)
    checkpoints_of(folder).prune(newest=1)
    best = _best(folder)
    named = {"all": {0, 2, 4, 6, 8}, "last": {8}, "best": {best, 8}}
    expected = named[keep] if isinstance(keep, str) else {*keep, 8}
    assert set(folder.checkpoint_steps()) == expected
    assert [
        s for s in folder.checkpoint_steps() if (folder.checkpoint(s) / "training").exists()
    ] == [8]
    assert not pending_evaluations(folder), "nothing is owed of what was removed on purpose"
    training = {"steps": 8, "keep_checkpoints": keep}
    foretold = disk(make_spec(training=training, evaluation={"every": 2}, algorithm="dapo"), 8 * 2)
    # A test's process has imported more than a training does: its record of that counts as long as
    # a training's.
    record = sum(map(size, folder.path.glob("provenance-*.json")))
    lies = size(folder.path) - size(folder.log_path) - record + PROVENANCE_BYTES
    after = foretold.if_last if keep == "best" and best == 8 else foretold.after
    assert lies == pytest.approx(after, rel=0.1)


def test_the_best_checkpoint_is_that_of_the_database(copy):
    folder = copy("best")

    def mean(name, step):
        return (
            read_eval(folder, name, step).to_pandas().groupby("problem_id")["correct"].mean().mean()
        )

    accuracy = {step: mean("chain-one", step) + mean("chain-two", step) for step in (0, 2, 4, 6, 8)}
    best = max(accuracy.values())
    assert _best(folder) == min(
        step for step, value in accuracy.items() if value == pytest.approx(best)
    )


def test_what_is_not_evaluated_yet_stays_under_every_rule(copy):
    folder = copy("last")
    folder.eval_path("chain-one", 4).unlink()
    checkpoints_of(folder).prune()
    assert folder.checkpoint_steps() == [4, 7, 8]
    assert {step for _, step in pending_evaluations(folder)} == {4}


def test_removed_checkpoints_are_not_trained_again(copy, home):
    folder = copy("last")
    checkpoints_of(folder).prune(newest=1)
    before = numbers(folder)
    shutil.copytree(home / "cache", folder.path.parents[2] / "cache", symlinks=True)
    train(folder, folder.path.parents[2], quiet)
    assert numbers(folder) == before
    assert folder.attempts() == [1]


def test_gc_says_what_would_go_and_does_it(copy):
    folder = copy("best")
    write_done(folder, seconds=1.0, attempts=1)
    (folder.checkpoints / "step-000003.corrupt").mkdir()
    (folder.checkpoints / "step-000003.corrupt" / "x").write_text("x" * 100)
    layout = Layout(folder.path.parents[2])
    items = garbage(layout)
    before = size(layout.home)
    collect(items)
    freed = before - size(layout.home)
    assert {*folder.checkpoint_steps()} == {_best(folder), 8}
    assert not garbage(layout)
    assert freed == pytest.approx(sum(item.size for item in items), rel=0.05)


def test_gc_leaves_a_run_alone_that_is_being_worked_on(copy):
    assert garbage(Layout(copy("best").path.parents[2])) == [], "it may be trained further"


def test_rm_puts_a_run_into_a_dated_trash_that_gc_empties(copy):
    folder = copy("all")
    layout = Layout(folder.path.parents[2])
    gone = remove(layout, "sweep/kept")
    assert not folder.path.exists()
    assert (gone / "manifest.json").exists()
    assert gone.parent == layout.home / "trash"
    assert gone.name.endswith("-sweep-kept")
    assert gone.name[:2] == "20"
    collect(garbage(layout))
    assert not gone.exists()
    assert json.dumps(garbage(layout)) == "[]"


@pytest.mark.parametrize("rules", ["the same", "other rules"])
def test_more_samples_go_on_from_those_that_are_drawn(copy, home, monkeypatch, rules):
    """The evaluator draws the further samples only; the first ones are those that were there, to
    the letter. Where they were graded by other rules, they are graded again.
    """
    folder = copy("all")
    layout = Layout(folder.path.parents[2])
    shutil.copytree(home / "cache", layout.cache, symlinks=True)
    before = read_eval(folder, "chain-one", 4).to_pylist()
    manifest = folder.read_manifest()
    manifest["spec"]["evaluation"]["samples_per_problem"] = 5
    write_manifest(folder, manifest)
    folder.eval_path("chain-one", 4).rename(folder.fewer_path("chain-one", 4))
    if rules == "other rules":
        wrong = [{**row, "correct": not row["correct"], "reason": "?"} for row in before]
        write_samples(folder.fewer_path("chain-one", 4), wrong, "other-1")
    said = []
    asked = []
    from rpg.evaluation.engines.local import LocalEngine

    real = LocalEngine.complete

    def counted(engine, requests):
        asked.append(len(requests))
        return real(engine, requests)

    monkeypatch.setattr(LocalEngine, "complete", counted)
    assert Evaluator(layout, "sweep", said.append).pass_over() == 1, said
    after = read_eval(folder, "chain-one", 4).to_pylist()
    assert asked[0] == 8 * (5 - 2)
    assert len(after) == 8 * 5
    assert not folder.fewer_path("chain-one", 4).exists()
    assert [row for row in after if row["sample"] < 2] == before
