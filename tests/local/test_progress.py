"""A step that takes long says where it is, in a file and in the log; the numbers do not depend on
it."""

import io
import json
import time
from dataclasses import replace
from unittest.mock import Mock

import pytest
from rich.console import Console

from flows import monitor
from flows.sweep.flow import _announce
from rpg.backends import progress_reporter as module
from rpg.backends.local.training_loop import train
from rpg.backends.progress_reporter import Progress
from rpg.models.policy import Policy
from rpg.store.live_status import EVALUATION, TRAINING, progress_line, read_progress, write_progress
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import append_metrics, claim_run, release_run, write_waiting
from tests.tiny import make_run, make_spec, numbers

SPEC = {"algorithm": "dapo", "training": {"steps": 2}, "rollout": {"max_refills": 2}}


@pytest.fixture
def slow(monkeypatch):
    """Every rollout takes a fifth of a second longer after its first position, every look is
    quick."""
    real = Policy.sample

    def sample(self, prompts, plan):
        def told(finished, position):
            plan.tell(finished, position)
            if position == 1:
                time.sleep(0.2)

        return real(self, prompts, replace(plan, tell=told))

    monkeypatch.setattr(Policy, "sample", sample)
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.02)
    monkeypatch.setattr(module, "SAY_SECONDS", 0.05)


def test_a_run_is_pending_until_something_happened_to_it(tmp_path):
    folder = RunFolder(tmp_path / "sweep" / "run")
    folder.path.mkdir(parents=True)

    def shown():
        (view,) = monitor.Watch([folder]).views()
        return view.state, view.error

    assert shown() == ("pending", None), "its manifest comes a moment later"
    folder.manifest_path.write_text("{")
    assert shown()[0] == "pending"
    assert "manifest.json" in shown()[1]
    folder.manifest_path.unlink()
    append_metrics(folder, 0, {"step": 1})
    assert shown()[0] == "interrupted" and "manifest.json" in shown()[1], "it was lost"


def test_a_long_step_tells_its_phases_and_refills_and_changes_no_number(
    home, tmp_path, slow, monkeypatch
):
    seen = []
    lines = []
    write = module.write_progress

    def written(path, record):
        seen.append(record)
        write(path, record)

    monkeypatch.setattr(module, "write_progress", written)
    told = make_run(tmp_path, "told", make_spec(**SPEC))
    train(told, home, lines.append)
    rollouts = [record for record in seen if record["phase"] == "rollout"]
    assert rollouts
    assert all(0 <= record["done"] <= record["of"] for record in seen)
    assert any(one["tokens_per_second"] and "different rewards" in one["note"] for one in rollouts)
    assert any("rollout, " in line and "of 64 responses" in line for line in lines)
    assert not (told.path / TRAINING).exists()
    monkeypatch.undo()
    plain = make_run(tmp_path, "plain", make_spec(**SPEC))
    train(plain, home, lines.append)
    assert numbers(plain) == numbers(told)


def test_a_fast_training_writes_nothing(home, tmp_path, monkeypatch):
    monkeypatch.setattr(
        module, "write_progress", lambda *_: pytest.fail("a step of milliseconds is written")
    )
    train(make_run(tmp_path, "fast", make_spec(**SPEC)), home, lambda line: None)


def test_the_time_left_comes_from_the_share_that_is_over_and_from_the_step_before(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    progress = Progress()
    progress.begin_step(1, 3)
    assert progress.record() is None
    progress.begin("rollout", 8, "responses")
    clock[0] = 10.0
    progress.done = 2
    progress.share = 0.25
    progress.tokens = 500
    record = progress.record()
    assert (record["left"], record["tokens_per_second"], record["seconds"]) == (30.0, 50.0, 10.0)
    assert (
        progress_line(record)
        == "step 1: rollout, 2 of 8 responses, 50 tokens/s, 0:10, about 0:30 left"
    )
    clock[0] = 100.0
    progress.begin_step(2, 3)
    progress.begin("rollout", 8, "responses")
    clock[0] = 110.0
    assert progress.record()["left"] == 90.0


def test_an_old_or_broken_file_says_nothing(tmp_path):
    path = tmp_path / TRAINING
    write_progress(path, {"phase": "update", "step": 1})
    assert read_progress(path)["phase"] == "update"
    assert [p.name for p in tmp_path.iterdir()] == [TRAINING]
    records = (
        {"time": "x", "phase": "y"},
        {"time": time.time()},
        {"time": time.time() - 61, "phase": "y"},
    )
    for broken in ("", "{", "[]", "{}", *map(json.dumps, records)):
        path.write_text(broken)
        assert read_progress(path) is None


def test_status_and_the_lines_of_a_sweep_show_it(tmp_path):
    folder = make_run(tmp_path, "one", make_spec())
    claim_run(folder)
    write_progress(
        folder.path / TRAINING, {"step": 3, "phase": "update", "done": 1, "of": 6, "what": "rows"}
    )
    write_progress(
        folder.path / EVALUATION, {"step": 2, "phase": "evaluation on easy", "done": 1, "of": 8}
    )
    now = "step 3: update, 1 of 6 rows; step 2: evaluation on easy, 1 of 8"
    assert monitor.Watch([folder]).views()[0].now == folder.now() == now
    console = Console(record=True, width=200, file=io.StringIO())
    live = monitor.Progress(console, "sweep", [folder])
    live.lines()
    console.print(live.render())
    assert console.export_text().count(now) == 2
    began = live.began
    _announce(Mock(progress=live), "training and evaluating")
    assert live.began > began, (
        "its pace is that of the training: a warm start before it took minutes"
    )
    release_run(folder)
    write_waiting(folder, "waits for disk space")
    assert monitor.Watch([folder]).views()[0].now is None
    monitor.Progress(console, "sweep", [folder]).lines()
    assert console.export_text().count("waits for disk space") == 2, (
        "and while nothing else goes on"
    )
