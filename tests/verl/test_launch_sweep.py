"""The real thing on two cores: `rpg sweep` over both back ends, each run on verl ended in the middle, gone on with,
evaluated, aggregated. Of the runs on verl one trains adapters, the other all weights on samples that are a rollout old.
"""

import json
import os
import signal
import subprocess
import sys
import time
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
from tests.waiting import HANG

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "configs/sweeps/verl-ci.yaml"
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


def sweep(home, prefect):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RPG_HOME": str(home), **prefect}
    environment["OMP_NUM_THREADS"] = "1"
    written = yaml.safe_load(SHIPPED.read_text())
    _, verl = written["axes"]["backend"]
    written["base"] = str(SHIPPED.parent / written["base"])
    written["axes"]["algorithm"] = ["grpo"]
    # tests/verl/test_inside_job.py compares a plain job on verl with the embedded trainer, number by number.
    written["exclude"] = [rule for rule in written["exclude"] if "algorithm" not in rule]
    written["exclude"].append({"backend": {**verl}, "rollout.staleness": 0, "model.lora": None})
    written["set"]["evaluation"]["every"] = 3  # each look at a checkpoint costs seconds of start-up
    file = home / "verl-ci.yaml"
    file.write_text(yaml.safe_dump(written))
    environment["RPG_SLOTS_FOLDER"] = str(home / "slots")  # other sweeps of this machine are not waited for
    log = (home / "sweep.log").open("ab")
    command = [sys.executable, "-m", "rpg", "sweep", str(file)]
    STARTED.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
    return STARTED[-1]


def runs(home):
    """{(back end, variant): run folder}; the variants are plain, stale and adapters."""
    layout = Layout.at(home)
    folders = layout.run_folders("verl-ci") if layout.sweep_folder("verl-ci").exists() else []
    found = {}
    for folder in folders:
        if folder.manifest_path.exists():
            spec = folder.read_manifest()["spec"]
            stale, lora = spec["rollout"]["staleness"], spec["model"]["lora"]
            variant = "stale" if stale else "adapters" if lora else "plain"
            found[spec["backend"]["type"], variant] = folder
    return found


def listening(folder):
    """Addresses on which a run's processes can be reached."""
    connections = chain(*marked(folder, lambda process: process.net_connections("inet")))
    return {c.laddr.ip.removeprefix("::ffff:") for c in connections if c.status == psutil.CONN_LISTEN}


def why(home):
    failures = [folder.read_failed() for folder in runs(home).values()]
    return f"the sweep ended: {(home / 'sweep.log').read_text()[-2000:]}\n{[failed for failed in failures if failed]}"


def wait_for(condition, process, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never happened"
        assert process.poll() is None, why(Path(process.args[-1]).parent)
        time.sleep(0.1)
    return value


def run_of(home, variant, process):
    """Its folder on verl, once it has a checkpoint and not yet all."""
    folder = wait_for(lambda: runs(home).get(("verl", variant)), process)
    wait_for(lambda: folder.checkpoint(1).exists(), process)
    return folder


def test_a_sweep_on_both_back_ends_survives_kills(home, prefect):
    # 1. Ctrl-C, or Cancel in the UI, as soon as a verl run's Ray has workers: all has ended when it has.
    process = sweep(home, prefect)
    stale = wait_for(lambda: runs(home).get(("verl", "stale")), process)
    wait_for(lambda: any(name.startswith("ray::") for name in marked(stale)), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 130 and not marked(stale)

    # 2. The same command goes on. A worker of verl is killed in mid-step: that run fails, alone.
    process = sweep(home, prefect)
    stale = run_of(home, "stale", process)
    named = lambda p: p if "WorkerDict" in p.name() else None  # noqa: E731
    wait_for(lambda: next(filter(None, marked(stale, named)), None), process).kill()

    # 3. kill -9 of the whole sweep in the middle of the run that trains adapters: nothing of it lives on.
    adapters = run_of(home, "adapters", process)
    assert listening(adapters) == {"127.0.0.1"}, "Ray, verl and torch"
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while marked(adapters):
        assert time.monotonic() < deadline, f"orphans: {marked(adapters)}"
        time.sleep(0.2)
    failed = stale.read_failed()
    assert "a worker of verl died" in failed["error"] and "\n" not in failed["error"], failed["error"]
    assert Path(failed["log"]).is_file() and failed["tail"] and failed["step"] >= 1
    assert {key for key, folder in runs(home).items() if folder.state() == "done"} == {
        ("local", "plain"), ("local", "stale")
    }  # fmt: skip

    # 4. And once more: only what is missing.
    process = sweep(home, prefect)
    assert process.wait(SECONDS) == 0, (home / "sweep.log").read_text()[-3000:]
    for folder in (stale, adapters):
        assert "continuing after step" in folder.log_path.read_text()
    assert stale.attempts()[-2:] == [2, 3] and adapters.attempts() == [1, 2]

    for (back_end, _), folder in runs(home).items():
        assert folder.state() == "done" and pending_evaluations(folder) == []
        steps = [row["step"] for row in folder.read_metrics().rows]
        assert steps == ([0, *STEPS] if back_end == "verl" else STEPS), "each once; validation at step 0"
    same_names_and_numbers(home)
    adapters_are_merged(adapters)
    database_holds_both(home)


def same_names_and_numbers(home):
    """The two trainers write the same metrics, and here, from the same seed and weights, nearly the same values."""
    found = runs(home)
    local, verl = (found[back_end, "stale"].read_metrics().rows for back_end in ("local", "verl"))
    assert "validation_accuracy" in verl[0]
    verl = verl[1:]
    missing = set(local[0]) - set(verl[0])
    assert missing - NOT_ON_VERL == {"seconds_reward"}, "grading overlaps the rollout on verl"
    assert set(verl[0]) - set(local[0]) <= {"validation_accuracy"}
    for a, b in zip(local, verl, strict=True):
        assert a["reward"] == pytest.approx(b["reward"], abs=1e-4) and a["tokens"] == b["tokens"]
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-2)
        assert a["ess"] == pytest.approx(b["ess"], rel=1e-2)
        assert a["sampler_age"] == b["sampler_age"] == min(a["step"] - 1, 1)
        assert a["kl_sampler_to_policy"] == pytest.approx(b["kl_sampler_to_policy"], rel=0.05, abs=1e-6)


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
            "SELECT r.spec->>'$.backend.type', m.step, count(*), count(reward), count(kl_old_to_policy) FROM metrics m "
            "JOIN runs r USING (sweep, run) WHERE m.step > 0 GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        counts = {"local": (2, 2, 2), "verl": (2, 2, 2)}
        assert rows == [(back_end, step, *of) for back_end, of in counts.items() for step in STEPS]
        scores = db.execute(
            "SELECT variant, step, accuracy FROM scores WHERE benchmark = 'mean' AND step = 0 ORDER BY ALL"
        ).fetchall()
        assert len(scores) == 4 and len({accuracy for *_, accuracy in scores}) == 1, "one initial model"
    report = home / "reports" / "verl-ci"
    assert (report / "report.html").is_file() and "verl" in (report / "table.md").read_text()
    assert json.loads(runs(home)["verl", "stale"].manifest_path.read_text())["versions"]["verl"]
