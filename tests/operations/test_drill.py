"""A night kills, edits and imports on purpose, so that a fault in what follows makes it red."""

import importlib
import os

import pytest

from benchmarks import nights
from flows import drill
from flows.nightly import plan
from rpg.config.sweep_spec import load_sweep
from rpg.errors import UserError
from rpg.store import Layout
from rpg.system.processes import KILL_AFTER

SWEEP = """\
name: few
run: {task: {type: chain}, model: {type: tiny}, training: {steps: 4}}
axes: {algorithm: [grpo, dapo], seed: [0]}
drill: {kill_after: 3, edited_from: {training.steps: 8}, imports: [LOG]}
"""
LOG = "{kind: csv, file: theirs.csv, variant: theirs, seed: 2}"
OF_DRILLS = (
    "resume: the optimizer begins anew",
    "store: superseded runs count",
    "import: the last update of a rollout, not their mean",
)


@pytest.fixture
def sets(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "few.yaml").write_text(SWEEP.replace("LOG", LOG))
    (folder / "theirs.csv").write_text("step,reward\n1,0.25\n2,0.5\n")
    return folder


def test_the_earlier_file_runs_first_then_runs_are_killed_then_they_go_on(
    sets, tmp_path, monkeypatch
):
    monkeypatch.setattr(drill, "_import", lambda log, sweep, layout: ran.append(log.variant))
    sweep = load_sweep(sets / "few.yaml", {}, lambda spec: "data")
    earlier = load_sweep(sets / "few.yaml", sweep.spec.drill.edited_from, lambda spec: "data")
    ran = []

    def run(planned):
        ran.append((planned.runs[0].spec.training.steps, os.environ.get(KILL_AFTER)))

    drill.run_drill(sweep, earlier, Layout.at(tmp_path / "data"), run)

    assert ran == [(8, None), "theirs", (4, "3"), (4, None)]


def test_a_log_outside_of_the_set_is_refused(sets, tmp_path):
    (tmp_path / "secret.csv").write_text("step,reward\n1,0.25\n")
    (sets / "theirs.csv").unlink()
    (sets / "theirs.csv").symlink_to(tmp_path / "secret.csv")
    sweep = load_sweep(sets / "few.yaml", {}, lambda spec: "data")

    with pytest.raises(UserError, match="leads out of"):
        drill.run_drill(sweep, None, Layout.at(tmp_path / "data"), lambda planned: None)


def test_the_shipped_set_kills_edits_and_imports():
    from rpg.config.shipped import NIGHTLY

    drills = [sweep.spec.drill for sweep in plan(NIGHTLY, {})[1].values() if hasattr(sweep, "runs")]
    [found] = [one for one in drills if one]
    assert found.kill_after and found.edited_from and found.imports


@pytest.mark.system
def test_a_night_sees_faults_of_resuming_superseding_and_importing(
    tmp_path, monkeypatch, no_server
):
    """And is green where nothing is wrong, which a second night of other code shows."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in nights.LOADED:
        importlib.import_module(name)
    checkout = nights.Checkout(tmp_path / "nights", ["lives"])
    faults = {fault["name"]: fault for fault in nights.faults()}

    [first] = checkout.night()
    with checkout.changed("a comment"):
        [same] = checkout.night()
    seen = {}
    for name in OF_DRILLS:
        nights.plant(checkout.tree, faults[name])
        with checkout.changed(name):
            [night] = checkout.night()
        seen[name] = night

    assert not first["red"], first
    assert not same["red"], same
    assert "compared: 3 of 3 runs" in same["said"]
    assert all(night["red"] for night in seen.values()), seen
