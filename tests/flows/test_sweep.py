"""The main job, end to end and for real: processes, Prefect server, training, evaluation, database, report."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rpg.store import Layout
from tests.real_sweep import SMALL, rpg

pytestmark = pytest.mark.slow
CLOCK = ("time", "attempt", "tokens_per_second")


def start(root, home, *args):
    environment = {**os.environ, "RPG_HOME": str(home), "COLUMNS": "160"}
    log = (root / f"{home.name}.log").open("wb")
    command = [sys.executable, "-m", "rpg", *args]
    return subprocess.Popen(
        command, cwd=root, env=environment, stdout=log, stderr=log, start_new_session=True
    )


def numbers(home):
    """Everything a sweep measured, without what depends on a clock."""
    out = {}
    for folder in Layout.at(home).run_folders("small"):
        rows = [{k: v for k, v in row.items() if k not in CLOCK and not k.startswith("seconds_")}
                for row in folder.read_metrics().rows]  # fmt: skip
        evals = {
            (b, s): folder.read_eval(b, s).to_pylist()
            for b in folder.benchmarks()
            for s in folder.eval_steps(b)
        }
        weights = (folder.checkpoint(6) / "model.safetensors").read_bytes()
        out[folder.name] = (rows, evals, weights)
    return out


def until(condition, within=120):
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def test_every_stage_left_its_files(bench):
    root, done = bench
    layout = Layout.at(root / "data")
    folders = layout.run_folders("small")
    assert len(folders) == 2 and all(f.state() == "done" for f in folders)
    for folder in folders:
        metrics = folder.read_metrics()
        assert [row["step"] for row in metrics.rows] == [1, 2, 3, 4, 5, 6] and not metrics.warnings
        assert [row["optimizer_step"] for row in metrics.rows] == [2, 4, 6, 8, 10, 12]
        for benchmark in ("chain-easy", "chain-medium"):
            assert folder.eval_steps(benchmark) == [0, 3, 6]
            assert len(folder.read_eval(benchmark, 6)) == 8 * 2
    assert (layout.analytics / "CURRENT").exists()
    report = layout.reports("small")
    for name in ("report.png", "report.html"):
        assert (report / name).stat().st_size > 10_000
    assert "grpo" in done.stdout.lower() and "mean accuracy" in done.stdout.lower()


def test_a_second_call_does_nothing_and_says_so(bench):
    root, _ = bench
    before = numbers(root / "data")
    began = time.monotonic()
    again = rpg(root, "sweep", "small.yaml")
    assert again.returncode == 0 and "already done" in again.stdout and "nothing was trained" in again.stdout
    assert time.monotonic() - began < 20  # the contract of the issue, not a benchmark
    assert numbers(root / "data") == before


@pytest.mark.parametrize("moment", ["early", "late"])
def test_kill_nine_of_everything_then_the_same_command_gives_the_same_numbers(bench, moment):
    root, _ = bench
    home = root / f"killed-{moment}"
    (home / "cache").parent.mkdir()
    subprocess.run(["cp", "-r", str(root / "data/cache"), str(home / "cache")], check=True)
    sweep = start(root, home, "sweep", "small.yaml", "--workers", "1")
    lines = 2 if moment == "early" else 9
    until(lambda: sum(len(f.read_metrics().rows) for f in Layout.at(home).run_folders("small")) >= lines)
    tree = [psutil.Process(sweep.pid), *psutil.Process(sweep.pid).children(recursive=True)]
    for process in tree:
        process.kill()
    sweep.wait()
    again = rpg(root, "sweep", "small.yaml", "--home", str(home))
    assert again.returncode == 0, again.stdout + again.stderr
    assert numbers(home) == numbers(root / "data")


def test_kill_nine_of_the_conductor_alone_leaves_no_orphan(bench):
    root, _ = bench
    home = root / "orphans"
    sweep = start(root, home, "sweep", "small.yaml", "--set", "training.steps=500")
    until(lambda: any(f.attempts() for f in Layout.at(home).run_folders("small")))
    children = psutil.Process(sweep.pid).children(recursive=True)
    assert len(children) >= 2
    sweep.kill()
    sweep.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_ctrl_c_ends_the_children_and_says_how_to_continue(bench):
    root, _ = bench
    home = root / "interrupted"
    sweep = start(root, home, "sweep", "small.yaml", "--set", "training.steps=500")
    until(lambda: any(f.attempts() for f in Layout.at(home).run_folders("small")))
    children = psutil.Process(sweep.pid).children(recursive=True)
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(timeout=30) == 130
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive
    said = (root / "interrupted.log").read_text()
    assert "Continue with: rpg sweep small.yaml" in said and "Traceback" not in said


def test_two_at_once_the_second_is_told_who_is_running_it(bench):
    root, _ = bench
    home = root / "twice"
    first = start(root, home, "sweep", "small.yaml", "--set", "training.steps=500")
    try:
        until(lambda: (home / "runs/small/sweep.json").exists())
        second = rpg(root, "sweep", "small.yaml", "--home", str(home))
        assert (
            second.returncode == 2
            and str(first.pid) in second.stderr
            and "already being run" in second.stderr
        )
    finally:
        first.send_signal(signal.SIGINT)
        first.wait(timeout=30)


def test_a_run_that_cannot_train_fails_alone(bench):
    root, _ = bench
    text = SMALL.replace("name: small", "name: partly").replace(
        "  seed: [0]\n",
        "  model: [{type: pretrained, path: /nowhere/model}, {type: tiny, warm_start: null}]\n  seed: [0]\n",
    )
    (root / "partly.yaml").write_text(text.replace("steps: 6", "steps: 3").replace("baseline: grpo\n", ""))
    done = rpg(root, "sweep", "partly.yaml")
    layout = Layout.at(root / "data")
    states = {f.name: f.state() for f in layout.run_folders("partly")}
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(states.values()) == ["done", "done", "failed", "failed"], states
    assert "/nowhere/model" in done.stderr and "Traceback" not in done.stderr
    failed = next(f for f in layout.run_folders("partly") if f.state() == "failed")
    record = json.loads(failed.failed_path.read_text())
    assert "/nowhere/model" in record["error"] and Path(record["log"]).exists()


def test_a_full_disk_fails_the_runs_clearly_and_more_space_lets_them_go_on(bench, tmp_path):
    root, _ = bench
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=7m", "tmpfs", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        subprocess.run(["cp", "-r", str(root / "data/cache"), str(disk / "cache")], check=True)
        done = rpg(root, "sweep", "small.yaml", "--home", str(disk))
        assert done.returncode == 1, done.stdout + done.stderr
        assert "space" in done.stderr and str(disk) in done.stderr and "Traceback" not in done.stderr
        assert "rpg sweep small.yaml" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        again = rpg(root, "sweep", "small.yaml", "--home", str(disk))
        assert again.returncode == 0, again.stdout + again.stderr
        assert numbers(disk) == numbers(root / "data")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize(
    "args,words",
    [
        (["sweep", "nothing.yaml"], ["nothing.yaml", "no such file"]),
        (["sweep", "small.yaml", "--set", "training.stepz=3"], ["training.stepz", "did you mean 'steps'"]),
        (["sweep", "small.yaml", "--set", "algorithm=gropo"], ["gropo", "did you mean 'grpo'"]),
        (["sweep", "small.yaml", "--home", "/proc/none"], ["/proc/none", "--home"]),
        (["train", "small.yaml"], ["axes"]),
        (["report", "smal"], ["smal", "did you mean 'small'"]),
        (["status", "smal"], ["smal", "did you mean 'small'"]),
    ],
)
def test_mistakes_exit_with_two_and_one_clear_message(bench, args, words):
    root, _ = bench
    done = rpg(root, *args)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and done.stderr.startswith("error: ")
    for word in words:
        assert word in done.stderr.replace("\n", " ")


def test_the_same_name_with_another_rate_compares_the_new_runs_only(bench, tmp_path):
    """The issue's example: a table never holds one algorithm at the new rate and another at the old one."""
    root, _ = bench
    home = tmp_path / "data"
    home.mkdir()
    subprocess.run(["cp", "-r", str(root / "data/cache"), str(home / "cache")], check=True)
    few = ["--set", "training.steps=2", "--set", "evaluation.every=2"]
    first = rpg(root, "sweep", "small.yaml", "--home", str(home), *few)
    assert first.returncode == 0, first.stdout + first.stderr
    old = set(Layout.at(home).read_sweep("small")["runs"])
    rate = ["--set", "training.optimizer.learning_rate=0.02", "--set", "algorithm=grpo"]
    second = rpg(root, "sweep", "small.yaml", "--home", str(home), *few, *rate)
    assert second.returncode == 0, second.stdout + second.stderr
    new = set(Layout.at(home).read_sweep("small")["runs"])
    assert not new & old and "RPG-REINFORCE-URKL" not in second.stdout
    curves = (home / "reports/small/curves.csv").read_text()
    table = (home / "reports/small/table.csv").read_text()
    assert "grpo" in table and "urkl" not in table and "urkl" not in curves
    shown = rpg(root, "sql", "select distinct run from scores", "--home", str(home)).stdout
    assert all(name in shown for name in new) and not any(name in shown for name in old)
    status = rpg(root, "status", "small", "--home", str(home)).stdout
    superseded = [line for line in status.splitlines() if "superseded: " in line]
    assert len(superseded) == 2 and all(any(name in line for line in superseded) for name in old)
    assert any("training.optimizer.learning_rate=0.0001, now 0.02" in line for line in superseded)
