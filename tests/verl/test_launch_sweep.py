"""The real thing on two cores: `rpg sweep` over both back ends. The run on verl trains adapters on samples a rollout old; it
loses a worker, then its whole sweep is killed; each time it goes on, and it is evaluated and aggregated in the end.
"""

import json
import os
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import duckdb
import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file

from rpg.store import Layout
from rpg.store.run_folder import pending_evaluations
from tests.verl import NOT_ON_VERL, marked
from tests.waiting import HANG, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "configs/sweeps/verl-ci.yaml"
STEPS = [1, 2, 3, 4]
SECONDS = 2 * HANG
"""For stages that take minutes on two idle cores."""


@pytest.fixture
def home(tmp_path):
    yield tmp_path
    for process in STARTED:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


STARTED: list[subprocess.Popen] = []


def sweep(home, prefect):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RPG_HOME": str(home), **prefect}
    environment["OMP_NUM_THREADS"] = "1"
    written = yaml.safe_load(SHIPPED.read_text())
    local, verl = written["axes"]["backend"]
    _, lora = written["axes"]["model.lora"]
    written["base"] = str(SHIPPED.parent / written["base"])
    # tests/verl/test_inside_job.py compares a plain job on verl with the embedded trainer, number by number.
    written["axes"] |= {"algorithm": ["grpo"], "rollout.staleness": [1]}
    others = (({**local}, {**lora}), ({**verl}, None))
    written["exclude"] = [{"backend": backend, "model.lora": adapters} for backend, adapters in others]
    written["baseline"]["rollout.staleness"] = 1
    written["set"]["training"]["steps"] = written["set"]["evaluation"]["every"] = STEPS[-1]
    file = home / "verl-ci.yaml"
    file.write_text(yaml.safe_dump(written))
    environment["RPG_SLOTS_FOLDER"] = str(home / "slots")  # other sweeps of this machine are not waited for
    log = (home / "sweep.log").open("ab")
    command = [sys.executable, "-m", "rpg", "sweep", str(file)]
    STARTED.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
    return STARTED[-1]


def runs(home):
    """{back end: run folder}"""
    layout = Layout.at(home)
    folders = layout.run_folders("verl-ci") if layout.sweep_folder("verl-ci").exists() else []
    there = (folder for folder in folders if folder.manifest_path.exists())
    return {folder.read_manifest()["spec"]["backend"]["type"]: folder for folder in there}


def listening(folder):
    """Addresses on which a run's processes can be reached."""
    connections = chain(*marked(folder, lambda process: process.net_connections("inet")))
    return {c.laddr.ip.removeprefix("::ffff:") for c in connections if c.status == psutil.CONN_LISTEN}


def worker_of(folder, name="ray::"):
    """A process of a run that is one of Ray's workers, of this name; None before there is one."""
    named = marked(folder, lambda process: process if name in process.name() else None)
    return next(filter(None, named), None)


def why(home):
    failures = [folder.read_failed() for folder in runs(home).values()]
    return f"the sweep ended: {(home / 'sweep.log').read_text()[-2000:]}\n{[failed for failed in failures if failed]}"


def wait_for(condition, process):
    home = Path(process.args[-1]).parent
    return until(condition, unless=lambda: process.poll() is not None and pytest.fail(why(home)), pause=0.1)


def test_a_sweep_on_both_back_ends_survives_kills(home, prefect):
    # 1. A worker of verl is killed in mid-step: that run fails, alone, and all of its processes end.
    process = sweep(home, prefect)
    verl = wait_for(lambda: runs(home).get("verl"), process)
    wait_for(lambda: verl.checkpoint(1).exists(), process)
    assert set(marked(verl, psutil.Process.nice)) == {os.nice(0)}, "Ray's workers would yield to evaluations"
    assert listening(verl) == {"127.0.0.1"}, "Ray, verl and torch"
    worker_of(verl, "WorkerDict").kill()
    assert process.wait(SECONDS) == 1 and not marked(verl)
    failed = verl.read_failed()
    assert "a worker of verl died" in failed["error"] and "\n" not in failed["error"], failed["error"]
    assert Path(failed["log"]).is_file() and failed["tail"] and failed["step"] >= 1
    assert runs(home)["local"].state() == "done"

    # 2. The same command goes on. kill -9 of the whole sweep, once Ray has a worker for verl: nothing of it lives on.
    process = sweep(home, prefect)
    wait_for(lambda: worker_of(verl), process)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not marked(verl), "the end of its processes", pause=0.2)

    # 3. And once more: only what is missing.
    process = sweep(home, prefect)
    assert process.wait(SECONDS) == 0, (home / "sweep.log").read_text()[-3000:]
    assert verl.log_path.read_text().count("continuing after step") == 2 and verl.attempts() == [1, 3]
    for back_end, folder in runs(home).items():
        assert folder.state() == "done" and pending_evaluations(folder) == []
        steps = [row["step"] for row in folder.read_metrics()]
        assert steps == ([0, *STEPS] if back_end == "verl" else STEPS), "each once; validation at step 0"
    same_names(home)
    adapters_are_merged(verl)
    database_holds_both(home)


def same_names(home):
    """The two trainers write the same metrics, and from the same seed and weights the same first rollout."""
    local, verl = (runs(home)[back_end].read_metrics() for back_end in ("local", "verl"))
    assert "validation_accuracy" in verl[0]
    first, other = local[0], verl[1]
    missing = set(first) - set(other)
    assert missing - NOT_ON_VERL == {"seconds_reward"}, "grading overlaps the rollout on verl"
    assert set(other) <= {*first, "validation_accuracy"}
    assert first["reward"] == pytest.approx(other["reward"], abs=1e-4) and first["tokens"] == other["tokens"]


def adapters_are_merged(folder):
    """A checkpoint is a model like any other; only what adapters stand for has changed, by low-rank matrices."""
    before, after = (load_file(folder.checkpoint(step) / "model.safetensors") for step in (0, STEPS[-1]))
    assert set(before) == set(after)
    moved = {name: after[name] - before[name] for name in before if not after[name].equal(before[name])}
    assert moved and all(name.split(".")[-2].endswith("_proj") for name in moved)
    for change in moved.values():
        strengths = torch.linalg.svdvals(change)
        assert strengths[4:].max() < 1e-3 * strengths[0], "rank 4"


def database_holds_both(home):
    path = home / "analytics" / (home / "analytics" / "CURRENT").read_text().strip()
    with duckdb.connect(str(path), read_only=True) as db:
        rows = db.execute(
            "SELECT r.spec->>'$.backend.type', m.step, count(reward), count(kl_old_to_policy) FROM metrics m "
            "JOIN runs r USING (sweep, run) WHERE m.step > 0 GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert rows == [(back_end, step, 1, 1) for back_end in ("local", "verl") for step in STEPS]
        scores = db.execute("SELECT accuracy FROM scores WHERE benchmark = 'mean' AND step = 0").fetchall()
        assert len(scores) == 2 and len(set(scores)) == 1, "one initial model"
    report = home / "reports" / "verl-ci"
    assert (report / "report.html").is_file() and "verl" in (report / "table.md").read_text()
    assert json.loads(runs(home)["verl"].manifest_path.read_text())["versions"]["verl"]
