"""Two sweeps with common runs at once, real processes, trivial trainings: everything once, and
nobody waits in silence."""

import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.trivial import HOLD, SECONDS, SWEEP
from flows.sweep.sharing import Claims, take_over
from rpg.store import Layout
from rpg.store.run_writer import append_metrics, write_manifest
from rpg.store.samples import drift_path, metadata, read_eval, write_eval
from tests.operations.serving import ROOT
from tests.waiting import HANG, until

pytestmark = pytest.mark.component


@pytest.fixture
def start(tmp_path, prefect):
    begun = []

    def begin(name, seeds, steps=4, seconds=0.25, **environment):
        file = tmp_path / f"{name}.yaml"
        file.write_text(SWEEP.format(name=name, steps=steps, every=2, seeds=list(seeds)))
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            **prefect,
            SECONDS: str(seconds),
            "RPG_SLOTS_FOLDER": str(tmp_path / "slots"),
            "RPG_SLOTS": "4",
            **environment,
        }
        log = (tmp_path / f"{name}.log").open("ab")
        command = [sys.executable, "-m", "benchmarks.trivial", "sweep", str(file)]
        command += ["--home", str(tmp_path / "data"), "-w", "2"]
        begun.append(
            subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=tmp_path)
        )
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()
        one.wait()


def numbers(folder):
    rows = [(row["step"], row["reward"]) for row in folder.read_metrics()]
    evals = {
        s: read_eval(folder, "chain-easy", s).to_pylist() for s in folder.eval_steps("chain-easy")
    }
    return rows, evals


@pytest.mark.system
def test_common_runs_are_trained_once_in_the_one_slot_of_the_machine_for_both_sweeps(
    start, tmp_path
):
    layout = Layout.at(tmp_path / "data")
    said = set()
    most = 0
    sweeps = [start("one", range(2), RPG_SLOTS="1"), start("two", range(1, 3), RPG_SLOTS="1")]
    while any(one.poll() is None for one in sweeps):
        folders = [f for name in ("one", "two") for f in layout.run_folders(name)]
        most = max(most, sum(folder.lease() is not None for folder in folders))
        said |= {folder.waiting() for folder in folders} - {None}
        time.sleep(0.1)
    assert [one.returncode for one in sweeps] == [0, 0] and most == 1, (
        tmp_path / "two.log"
    ).read_text()
    assert any("waits for a slot: 1 of 1 on this machine taken by" in why for why in said), said
    by_id = {}
    for folder in (*layout.run_folders("one"), *layout.run_folders("two")):
        assert folder.state() == "done"
        assert not folder.waiting()
        by_id.setdefault(folder.read_manifest()["run_id"], []).append(folder)
    assert sorted(map(len, by_id.values())) == [1, 1, 2]
    common = max(by_id.values(), key=len)
    trained = [f for f in common if not (f.path / "shared.json").exists()]
    assert len(trained) == 1, "it has exactly one folder in which it was trained"
    assert numbers(common[0]) == numbers(common[1])
    samples = [f.eval_path("chain-easy", 4) for f in common]
    assert os.path.samefile(*samples), "graded samples are links, not copies"


@pytest.mark.system
def test_a_killed_sweep_is_taken_over_where_it_was(start, tmp_path):
    layout = Layout.at(tmp_path / "data")
    first = start("one", [0], steps=12, **{HOLD: "5"})
    until(lambda: any(len(f.read_metrics()) >= 5 for f in layout.run_folders("one")), "five steps")
    second = start("two", [0], steps=12)
    runs = layout.run_folders
    until(
        lambda: any(f.waiting() for f in runs("two")), "a wait", lambda: second.poll() is not None
    )
    told = [f.waiting() for f in layout.run_folders("two")]
    first.send_signal(signal.SIGKILL)
    before = [row["step"] for row in layout.run_folders("one")[0].read_metrics()]
    assert second.wait(HANG) == 0
    assert f"waits for the same run of sweep one (process {first.pid})" in told
    metrics = layout.run_folders("two")[0].read_metrics()
    assert [row["step"] for row in metrics] == list(range(1, 13))
    taken = {row["step"] for row in metrics if row["attempt"] == 1}
    assert set(before) <= taken, "nothing that was finished is computed again"


ROW = {
    "problem_id": "p",
    "problem": "?",
    "answer": "?",
    "response": "?",
    "sample": 0,
    "extracted": None,
    "correct": True,
    "reason": "",
    "tokens": 1,
    "truncated": False,
}


def evaluated(layout, sweep, samples, *, benchmarks=("b",), rows=None, weights=True):
    """A run with one evaluated checkpoint."""
    folder = layout.run(sweep, "x-s0-0123abcd")
    manifest = {
        "run_id": "0123abcd",
        "variant": "x",
        "algorithm": "x",
        "seed": 0,
        "spec": {},
        "created": 0.0,
        "steps": 2,
        "samples": samples,
        "eval_steps": [2],
        "benchmarks": list(benchmarks),
    }
    write_manifest(folder, manifest)
    for benchmark in benchmarks if rows else ():
        write_eval(folder, benchmark, 2, [{**ROW, "sample": n} for n in range(rows)], "rules")
        drift_path(folder.eval_path(benchmark, 2)).write_text("{}")
    if rows and weights:
        folder.checkpoint(2).mkdir(parents=True)
        (folder.checkpoint(2) / "weights").write_text("2")
    return folder


@pytest.mark.parametrize(
    ("wanted", "weights", "samples", "fewer", "drift"),
    [
        (4, True, 4, False, True),
        (6, True, None, True, False),  # the evaluator adds two
        (2, True, None, False, False),  # the evaluator takes two of those that are stored
        (2, False, 2, False, False),
        (6, False, 4, False, True),  # nobody can draw more
    ],
)
def test_a_run_that_is_taken_over_has_the_samples_it_asks_for(
    tmp_path, wanted, weights, samples, fewer, drift
):
    layout = Layout.at(tmp_path)
    source = evaluated(layout, "theirs", 4, benchmarks=("a", "b"), rows=4, weights=weights)
    folder = evaluated(layout, "ours", wanted)

    take_over(folder, source)

    path = folder.eval_path("b", 2)
    assert folder.benchmarks() == ["b"], "the others are of no use here"
    assert path.exists() == (samples is not None)
    if samples:
        assert read_eval(folder, "b", 2).num_rows == samples
        assert metadata(path) == {"rules": "rules"}
    assert folder.fewer_path("b", 2).exists() == fewer
    assert drift_path(path).exists() == drift


def test_taking_over_can_be_interrupted_anywhere_and_done_again(tmp_path, monkeypatch):
    """A kill is imitated by an error at every single link or copy, and each time it is simply done
    again."""
    layout = Layout.at(tmp_path)
    source = layout.run("old", "x-s0-0123abcd")
    steps = (0, 2, 4)
    manifest = {
        "run_id": "0123abcd",
        "variant": "x",
        "algorithm": "x",
        "seed": 0,
        "spec": {},
        "created": 0.0,
        "steps": 4,
        "eval_steps": list(steps),
        "benchmarks": ["b"],
    }
    write_manifest(source, manifest)
    row = {
        "sample": 0,
        "extracted": None,
        "correct": True,
        "reason": "",
        "tokens": 1,
        "truncated": False,
    }
    row |= dict.fromkeys(("problem_id", "problem", "answer", "response"), "?")
    for step in steps:
        (source.checkpoint(step) / "training").mkdir(parents=True)
        (source.checkpoint(step) / "training" / "state").write_text(str(step))
        (source.checkpoint(step) / "weights").write_text(str(step))
        write_eval(source, "b", step, [row])
        append_metrics(source, 1, {"step": step, "reward": step})
    import flows.sweep.sharing as sharing

    real = sharing.link
    calls = 0
    for stop in range(1, 11):
        folder = layout.run(f"new{stop}", "x-s0-0123abcd")
        write_manifest(folder, manifest)
        calls = 0

        def link(source, target, stop=stop):
            nonlocal calls
            calls += 1
            if calls == stop:
                raise KeyboardInterrupt
            real(source, target)

        monkeypatch.setattr(sharing, "link", link)
        try:
            take_over(folder, source)
        except KeyboardInterrupt:
            monkeypatch.setattr(sharing, "link", real)
            take_over(folder, source)
        assert folder.checkpoint_steps() == [0, 2, 4]
        assert folder.eval_steps("b") == [0, 2, 4]
        assert (folder.checkpoint(4) / "training" / "state").read_text() == "4"
        assert [row["step"] for row in folder.read_metrics()] == [0, 2, 4]
    assert calls == 9
    assert Claims(layout).duplicate(layout.run("new1", "x-s0-0123abcd")) is None, (
        "nobody is further"
    )
