"""The main job, end to end: processes, Prefect server, training, evaluation, database, report.

Where it is about who runs what, the trainings are made up (benchmarks/trivial) and everything
around them is real.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request

import psutil
import pytest

from rpg.cli import main
from rpg.store import Layout
from rpg.store.samples import read_eval
from tests.real_sweep import LONG, SLOW, SMALL, SWEEP, TRIVIAL, rpg, start
from tests.waiting import HANG, ended, until

pytestmark = pytest.mark.component
CLOCK = ("time", "attempt", "tokens_per_second")


def numbers(home, name="small"):
    """Everything a sweep measured, without what depends on a clock."""
    out = {}
    for folder in Layout.at(home).run_folders(name):
        rows = [
            {k: v for k, v in row.items() if k not in CLOCK and not k.startswith("seconds_")}
            for row in folder.read_metrics()
        ]
        drawn = [(b, s) for b in folder.benchmarks() for s in folder.eval_steps(b)]
        evals = {(b, s): read_eval(folder, b, s).to_pylist() for b, s in drawn}
        steps = folder.read_manifest()["steps"]
        weights = (folder.checkpoint(steps) / "model.safetensors").read_bytes()
        out[folder.name] = (rows, evals, weights)
    assert len(out) == 2
    return out


def steps_done(home, name="small"):
    return sum(len(folder.read_metrics()) for folder in Layout.at(home).run_folders(name))


def cached(root, home):
    """A data folder in which data and initial model are there already."""
    shutil.copytree(root / "data/cache", home / "cache")
    return home


def kill_everything(sweep):
    """kill -9 of the whole tree, in an order that is nobody's choice."""
    tree = [psutil.Process(sweep.pid), *psutil.Process(sweep.pid).children(recursive=True)]
    for process in tree:
        process.kill()
    sweep.wait()


@pytest.fixture(scope="module")
def whole(tmp_path_factory, prefect):
    """A folder with the file of a trivial sweep and a finished run of it."""
    root = tmp_path_factory.mktemp("trivial")
    (root / "plain.yaml").write_text(SWEEP.format(name="plain", steps=6, every=3, seeds=[0, 1]))
    (root / "long.yaml").write_text(LONG)
    done = rpg(root, "sweep", "plain.yaml", module=TRIVIAL, **prefect)
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def test_the_flow_run_says_what_it_is_and_holds_its_log_and_artifacts(whole, prefect):
    """As one that was started from Prefect's form does."""

    def found(kind, **filters):
        body = json.dumps(filters).encode()
        request = urllib.request.Request(
            f"{prefect['PREFECT_API_URL']}/{kind}/filter",
            body,
            {"content-type": "application/json"},
        )
        return json.load(urllib.request.urlopen(request, timeout=HANG))

    [run] = found("flow_runs", flow_runs={"name": {"any_": ["sweep plain: 2 runs"]}})
    mine = {"flow_run_id": {"any_": [run["id"]]}}
    kept = {one["key"]: one for one in found("artifacts", artifacts=mine)}
    assert set(kept) == {"dashboard-plain", "progress-plain", "result-plain", "verdict-plain"}
    assert all(one["description"] for one in kept.values())
    for name in ("dashboard", "result", "verdict"):
        assert "/?sweep=plain)" in kept[f"{name}-plain"]["data"], "a link to the dashboard's page"
    assert kept["progress-plain"]["data"] == 100.0
    lines = [one["message"] for one in found("logs", logs=mine, sort="TIMESTAMP_ASC")]
    trained = [
        f"{folder.name}: trained" for folder in Layout.at(whole / "data").run_folders("plain")
    ]
    assert lines[0] == "preparing data and models"
    assert set(trained) <= set(lines)


def test_every_stage_left_its_files(bench):
    root, done = bench
    layout = Layout.at(root / "data")
    folders = layout.run_folders("small")
    assert len(folders) == 2
    assert all(f.state() == "done" for f in folders)
    for folder in folders:
        metrics = folder.read_metrics()
        assert [row["step"] for row in metrics] == [1, 2, 3, 4, 5, 6]
        assert [row["optimizer_step"] for row in metrics] == [2, 4, 6, 8, 10, 12]
        for benchmark in ("chain-easy", "chain-medium"):
            assert folder.eval_steps(benchmark) == [0, 3, 6]
            assert len(read_eval(folder, benchmark, 6)) == 8 * 2
    assert (layout.analytics / "CURRENT").exists()
    report = layout.reports("small")
    for name in ("report.png", "report.html"):
        assert (report / name).stat().st_size > 10_000
    assert "grpo" in done.stdout.lower()
    assert "mean accuracy" in done.stdout.lower()


@pytest.mark.system
def test_the_pages_of_a_real_sweep(bench, monkeypatch):
    from tests.dashboard.driver import PAGES, show, texts

    monkeypatch.setenv("RPG_HOME", str(bench[0] / "data"))
    for page in PAGES:
        show(page, sweep="small", sweeps="small")
    run = Layout.at(bench[0] / "data").run_folders("small")[0].name
    app = show("run", sweep="small", run=run, benchmark="chain-easy", step="6")
    assert "16 of 16 samples" in texts(app)


def test_a_second_call_does_nothing_and_says_so(bench):
    root, _ = bench
    before = numbers(root / "data")
    again = rpg(root, "sweep", "small.yaml")
    assert again.returncode == 0
    assert "already done" in again.stdout
    assert "nothing was trained" in again.stdout
    assert numbers(root / "data") == before


@pytest.mark.system
def test_kill_nine_of_everything_then_the_same_command_gives_the_same_numbers(bench, prefect):
    """Bit for bit: killed before the first step, and when one run is done and the next has
    begun."""
    root, _ = bench
    home = cached(root, root / "killed")
    for lines in (0, 9):
        sweep = start(root, "sweep", "small.yaml", "--workers", "1", home=home, **prefect)
        there = lambda lines=lines: (home / "runs").exists() and steps_done(home) >= lines  # noqa: E731
        until(there, f"{lines} steps")
        kill_everything(sweep)
    again = rpg(root, "sweep", "small.yaml", "--home", str(home), **prefect)
    assert again.returncode == 0, again.stdout + again.stderr
    assert numbers(home) == numbers(root / "data")


def test_kill_nine_of_the_conductor_alone_leaves_no_orphan(whole):
    """Neither of its trainings nor of its evaluator nor of its own Prefect server."""
    home = whole / "orphans"
    sweep = start(whole, "sweep", "long.yaml", home=home, module=TRIVIAL, **SLOW)
    until(lambda: (home / "runs").exists() and steps_done(home, "long"), "a step")
    children = psutil.Process(sweep.pid).children(recursive=True)
    assert len(children) >= 3
    sweep.kill()
    sweep.wait()
    ended(children)


@pytest.mark.system
def test_ctrl_c_ends_the_children_and_the_command_it_prints_continues_this_sweep(whole, prefect):
    """Not one of the file's own name, settings and data folder. A second call meanwhile is told who
    is running it."""
    home = whole / "stopped here"
    file = whole / "my sweep.yaml"
    file.write_text(LONG)
    steps = ["--set", "training.steps=400", "--set", "evaluation.every=400"]
    options = ["--name", "mine", "--axis", "seed=[5]", *steps, "--home"]
    how = {"home": whole / "interrupted", "module": TRIVIAL, **prefect}
    sweep = start(whole, "sweep", file.name, *options, str(home), **how, **SLOW)
    until(lambda: (home / "runs").exists() and steps_done(home, "mine"), "a step")
    second = rpg(whole, "sweep", file.name, *options, str(home))
    assert second.returncode == 2
    assert "already being run" in second.stderr
    assert str(sweep.pid) in second.stderr
    children = psutil.Process(sweep.pid).children(recursive=True)
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(HANG) == 130
    ended(children)
    said = (whole / "interrupted.log").read_text()
    assert "Traceback" not in said
    printed = shlex.split(said.partition("Continue with: ")[2].splitlines()[0])
    assert printed[:3] == [sys.executable, "-m", "rpg"]
    again = rpg(whole, *printed[3:], **how)
    assert again.returncode == 0, again.stderr
    assert Layout.at(home).sweeps() == ["mine"]
    assert not (whole / "interrupted" / "runs").exists()
    [folder] = Layout.at(home).run_folders("mine")
    manifest = folder.read_manifest()
    assert (folder.state(), manifest["seed"], manifest["steps"]) == ("done", 5, 400)


def test_a_run_that_cannot_train_fails_alone(whole, prefect):
    home = whole / "partly"
    sweep = start(whole, "sweep", "plain.yaml", home=home, module=TRIVIAL, **prefect, **SLOW)
    until(lambda: (home / "runs").exists() and steps_done(home, "plain"), "a step")
    training = lambda: next((f for f in Layout.at(home).run_folders("plain") if f.lease()), None)  # noqa: E731
    victim = until(training, "a training")
    os.kill(victim.lease()["pid"], signal.SIGKILL)
    assert sweep.wait(HANG) == 1
    assert sorted(folder.state() for folder in Layout.at(home).run_folders("plain")) == [
        "done",
        "failed",
    ]
    said = (whole / "partly.log").read_text()
    reason = victim.read_failed()["error"]
    assert "killed by signal 9" in reason
    assert reason in said
    assert "Traceback" not in said


def test_a_full_disk_pauses_the_sweep_which_says_so_and_goes_on_with_more_space(
    whole, prefect, tmp_path
):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True)
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        sweep = start(whole, "sweep", "plain.yaml", home=disk, module=TRIVIAL, **prefect)
        log = whole / "disk.log"
        until(
            lambda: "waits for disk space" in log.read_text(),
            "a wait",
            lambda: sweep.poll() is not None,
        )
        said = log.read_text()
        assert str(disk) in said
        assert "MB needed" in said
        assert "Traceback" not in said
        assert {f.state() for f in Layout.at(disk).run_folders("plain")} <= {"running", "pending"}
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        assert sweep.wait(HANG) == 0, log.read_text()
        assert numbers(disk, "plain") == numbers(whole / "data", "plain")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["sweep", "nothing.yaml"], ["nothing.yaml", "no such file"]),
        (
            ["sweep", "small.yaml", "--set", "training.stepz=3"],
            ["training.stepz", "did you mean 'steps'"],
        ),
        (["sweep", "small.yaml", "--set", "algorithm=gropo"], ["gropo", "did you mean 'grpo'"]),
        (["sweep", "small.yaml", "--home", "/proc/none"], ["/proc/none", "--home"]),
        (["train", "small.yaml"], ["axes"]),
        (["reconcile", "--home", "typo"], ["/typo: no such folder", "--home"]),
        (
            ["sweep", "small.yaml", "--set", "model={type: pretrained, path: /nowhere/model}"],
            ["model.path", "/nowhere/model", "no such folder"],
        ),
        (["status", "--home", "small.yaml/x"], ["small.yaml is a file, not a folder", "--home"]),
        (["sweep", "small.yaml", "--home", "what?"], ["what?", "'?' cannot be used", "--home"]),
        (["report", "smal"], ["smal", "did you mean 'small'"]),
        (["status", "smal"], ["smal", "did you mean 'small'"]),
    ],
)
def test_mistakes_exit_with_two_and_one_clear_message(bench, args, words, monkeypatch, capsys):
    root, _ = bench
    monkeypatch.chdir(root)
    monkeypatch.setenv("RPG_HOME", str(root / "data"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sys, "argv", ["rpg", *args])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert end.value.code == 2, said
    assert "Traceback" not in said.err
    assert said.err.startswith("error: ")
    for word in words:
        assert word in said.err.replace("\n", " ")


@pytest.mark.system
def test_the_same_name_with_another_rate_compares_the_new_runs_only(bench, prefect, tmp_path):
    """The issue's example: a table never holds one algorithm at the new rate and another at the old
    one."""
    home = tmp_path / "data"
    (tmp_path / "small.yaml").write_text(SMALL)
    shutil.copytree(bench[0] / "data", home)
    old = set(Layout.at(home).read_sweep("small")["runs"])
    rate = ["--set", "training.optimizer.learning_rate=0.02", "--set", "algorithm=grpo"]
    second = rpg(tmp_path, "sweep", "small.yaml", *rate, module=TRIVIAL, **prefect)
    assert second.returncode == 0, second.stdout + second.stderr
    new = set(Layout.at(home).read_sweep("small")["runs"])
    assert not new & old
    assert "RPG-REINFORCE-URKL" not in second.stdout
    curves = (home / "reports/small/curves.csv").read_text()
    table = (home / "reports/small/table.csv").read_text()
    assert "grpo" in table
    assert "urkl" not in table
    assert "urkl" not in curves
    shown = rpg(tmp_path, "sql", "select distinct run from scores").stdout
    assert all(name in shown for name in new)
    assert not any(name in shown for name in old)
    status = rpg(tmp_path, "status", "small").stdout
    superseded = [line for line in status.splitlines() if "superseded: " in line]
    assert len(superseded) == 2
    assert all(any(name in line for line in superseded) for name in old)
    assert any("training.optimizer.learning_rate=0.0001, now 0.02" in line for line in superseded)
