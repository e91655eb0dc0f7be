"""The real thing on two cores: `rpg sweep` over both back ends, killed twice, gone on with, evaluated, aggregated."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import psutil
import pytest

from rpg.backends.verl.jobs import MARK
from rpg.store import Layout
from rpg.store.pending import pending_evaluations
from tests.verl import NOT_ON_VERL
from tests.waiting import HANG

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
SWEEP = ROOT / "configs/sweeps/verl-ci.yaml"
STEPS = [1, 2, 3]


SECONDS = 2 * HANG
"""For stages that take minutes on two idle cores."""


@pytest.fixture
def home(tmp_path):
    yield tmp_path
    for process in STARTED:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


STARTED: list[subprocess.Popen] = []


def sweep(home):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RPG_HOME": str(home)}
    environment["PREFECT_HOME"] = str(home / "prefect")
    environment["RPG_SLOTS_FOLDER"] = str(home / "slots")  # other sweeps of this machine are not waited for
    log = (home / "sweep.log").open("ab")
    command = [sys.executable, "-m", "rpg", "sweep", str(SWEEP), "--axis", "algorithm=[grpo,rpg-ufkl]"]
    STARTED.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
    return STARTED[-1]


def runs(home):
    """{(back end, algorithm): run folder}"""
    layout = Layout.at(home)
    folders = layout.run_folders("verl-ci") if layout.sweep_folder("verl-ci").exists() else []
    found = {}
    for folder in folders:
        if folder.manifest_path.exists():
            manifest = folder.read_manifest()
            found[manifest["spec"]["backend"]["type"], manifest["algorithm"]] = folder
    return found


def marked(folder):
    found = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(folder.path) and process.status() != psutil.STATUS_ZOMBIE:
                found[process.name()] = process
        except psutil.Error:
            continue
    return found


def listening(folder):
    """Addresses on which a run's processes can be reached."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(folder.path):
                found |= {
                    c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN
                }
        except psutil.Error:
            continue
    return {address.removeprefix("::ffff:") for address in found}


def wait_for(condition, process, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never happened"
        assert process.poll() is None, "the sweep ended before it happened"
        time.sleep(0.1)
    return value


def test_a_sweep_on_both_back_ends_survives_kills(home):
    # 1. kill -9 of the whole sweep in the middle of a verl run: nothing of it lives on.
    process = sweep(home)
    first = wait_for(lambda: runs(home).get(("verl", "grpo")), process)
    wait_for(lambda: first.checkpoint(1).exists(), process)
    assert listening(first) == {"127.0.0.1"}, "Ray, verl and torch"
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while marked(first):
        assert time.monotonic() < deadline, f"orphans: {marked(first)}"
        time.sleep(0.2)

    # 2. The same command goes on. In the next run a worker of verl is killed in mid-step: that run fails, alone.
    process = sweep(home)
    second = wait_for(lambda: runs(home).get(("verl", "rpg-ufkl")), process)
    wait_for(lambda: second.checkpoint(1).exists(), process)
    worker = wait_for(
        lambda: next((p for name, p in marked(second).items() if "WorkerDict" in name), None), process
    )
    worker.kill()
    assert process.wait(SECONDS) == 1, (home / "sweep.log").read_text()[-3000:]
    failed = second.read_failed()
    assert "a worker of verl died" in failed["error"] and "\n" not in failed["error"], failed["error"]
    assert Path(failed["log"]).is_file() and failed["tail"] and failed["step"] >= 1
    assert {key: folder.state() for key, folder in runs(home).items() if folder != second} == {
        ("local", "grpo"): "done", ("local", "rpg-ufkl"): "done", ("verl", "grpo"): "done"
    }  # fmt: skip
    assert "going on after step" in first.log_path.read_text()

    too_little_memory(second)

    # 3. Ctrl-C, or Cancel in the UI, once Ray and verl's workers are there again: all has ended when it has.
    process = sweep(home)
    wait_for(lambda: any("WorkerDict" in name for name in marked(second)), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 130 and not marked(second)

    # 4. And once more: only what is missing.
    process = sweep(home)
    assert process.wait(SECONDS) == 0, (home / "sweep.log").read_text()[-3000:]
    assert "going on after step" in second.log_path.read_text()
    assert first.attempts() == [1, 2]
    attempts = second.attempts()
    assert attempts[0] == 1 and 2 not in attempts, "no memory: the second attempt wrote nothing"
    assert attempts[-1] in (3, 4), "what was cancelled may have come to a step"

    for (back_end, _), folder in runs(home).items():
        assert folder.state() == "done" and pending_evaluations(folder) == []
        steps = [row["step"] for row in folder.read_metrics().rows]
        assert steps == ([0, *STEPS] if back_end == "verl" else STEPS), "each once; validation at step 0"
    same_names_and_numbers(home)
    database_holds_both(home)


def too_little_memory(folder):
    """Ray's own guard, told that the machine is full at 1 %, kills the workers of the next attempt."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "100"}
    command = [sys.executable, "-m", "rpg.backends.verl", str(folder.path)]
    with folder.log_path.open("ab") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=300)
    assert done.returncode == 1
    assert folder.read_failed()["error"].startswith("too little memory: lower backend.max_tokens_per_gpu")


def same_names_and_numbers(home):
    """The two trainers write the same metrics, and here, from the same seed and weights, nearly the same values."""
    found = runs(home)
    for algorithm in ("grpo", "rpg-ufkl"):
        local, verl = (found[b, algorithm].read_metrics().rows for b in ("local", "verl"))
        assert "validation_accuracy" in verl[0]
        verl = verl[1:]
        missing = set(local[0]) - set(verl[0])
        assert missing - NOT_ON_VERL == {"seconds_reward"}, "grading overlaps the rollout on verl"
        assert set(verl[0]) - set(local[0]) <= {"validation_accuracy"}
        for a, b in zip(local, verl, strict=True):
            assert a["reward"] == pytest.approx(b["reward"], abs=1e-4) and a["tokens"] == b["tokens"]
            assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-2)


def database_holds_both(home):
    path = home / "analytics" / (home / "analytics" / "CURRENT").read_text().strip()
    with duckdb.connect(str(path), read_only=True) as db:
        rows = db.execute(
            "SELECT r.spec->>'$.backend.type', m.step, count(*), count(reward), count(kl_old_to_policy) FROM metrics m "
            "JOIN runs r USING (sweep, run) WHERE m.step > 0 GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert rows == [(back_end, step, 2, 2, 2) for back_end in ("local", "verl") for step in STEPS]
        scores = db.execute(
            "SELECT variant, step, accuracy FROM scores WHERE benchmark = 'mean' AND step = 0 ORDER BY ALL"
        ).fetchall()
        assert len(scores) == 4 and len({accuracy for *_, accuracy in scores}) == 1, (
            "all begin with the same model"
        )
    report = home / "reports" / "verl-ci"
    assert (report / "report.html").is_file() and "verl" in (report / "table.md").read_text()
    assert json.loads(runs(home)["verl", "grpo"].manifest_path.read_text())["versions"]["verl"]
