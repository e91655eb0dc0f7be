"""The real thing on two cores: `rpg sweep` over both back ends. The run on verl loses a worker,
then its whole sweep is killed; each time it goes on, and in the end every number of every step is
that of the embedded trainer's run.
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
import yaml

from rpg.backends.verl.checkpoints import State
from rpg.config.run_spec import RunSpec
from rpg.planning.space import disk, token_records
from rpg.store import Layout
from rpg.store.gc import size
from rpg.store.run_folder import pending_evaluations
from rpg.store.token_records import VALUES, read_records, recorded_steps, records_path
from tests.tiny import BASE, merged
from tests.verl import NOT_ON_VERL, marked
from tests.waiting import HANG, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "configs/sweeps/verl-ci.yaml"
STEPS = [1, 2, 3, 4]
NOT_THE_SAME = {"tokens_per_second", "entropy", "time", "attempt"}
"""entropy: on verl a sample's own log-probabilities estimate it."""
SECONDS = 2 * HANG
"""For stages that take minutes on two idle cores."""


@pytest.fixture
def home(tmp_path):
    yield tmp_path
    for process in STARTED:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


STARTED: list[subprocess.Popen] = []


FUNCTION = """
def score(prompts, responses, answer):
    letters = [len(set(r)) / 10 for r in responses]
    return {"letters": letters, "asked": [float(len(p)) for p in prompts]}
"""
RUN = {
    "seed": 158,  # whose rollouts have groups with signal in all, in some and in none of the draws
    "model": {"warm_start": {"seed": 0}},
    "algorithm": {
        "name": "rpg-reinforce-urkl",
        "beta": 0.5,
        "reference": {"type": "every_k", "k": 4},
    },
    "training": {
        "steps": STEPS[-1],
        "prompts_per_step": 3,
        "mini_batch_prompts": 1,
        "checkpoint_every": 1,
        "token_records": {"every": 1, "groups": 2, "most_tokens": 10**6},
        "optimizer": {"type": "schedule_free", "learning_rate": 1e-3, "warmup_steps": 3},
    },
    "rollout": {"group_size": 4, "max_refills": 1, "staleness": 1},
    "reward": [{"type": "correctness"}, {"type": "python", "function": "mine:score", "weight": 0}],
    "evaluation": {"every": STEPS[-1]},
}
"""Samples a rollout old, dynamic sampling that finds all, some and no useful groups, a reference
that is renewed."""


def sweep(home, prefect, workers):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RPG_HOME": str(home), **prefect}
    local, verl = yaml.safe_load(SHIPPED.read_text())["axes"]["backend"]
    # The workers last: the name of the run's folder ends before them.
    verl |= {"gradient_checkpointing": False, "gpus_per_node": workers}
    file = home / "verl-ci.yaml"
    written = {"name": "verl-ci", "run": merged(BASE, RUN), "axes": {"backend": [local, verl]}}
    file.write_text(yaml.safe_dump(written, sort_keys=False))
    (home / "mine.py").write_text(FUNCTION)
    environment |= {
        "OMP_NUM_THREADS": "1",
        "RPG_SLOTS_FOLDER": str(home / "slots"),
    }  # waits for no others
    log = (home / "sweep.log").open("ab")
    command = [sys.executable, "-m", "rpg", "sweep", str(file)]
    STARTED.append(
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    )
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
    return {
        c.laddr.ip.removeprefix("::ffff:") for c in connections if c.status == psutil.CONN_LISTEN
    }


def worker_of(folder, name="ray::"):
    """A process of a run that is one of Ray's workers, of this name; None before there is one."""
    named = marked(folder, lambda process: process if name in process.name() else None)
    return next(filter(None, named), None)


def last_state(folder):
    [path] = (folder.checkpoint(folder.checkpoint_steps()[-1]) / "training").glob("global_step_*")
    return State.read(path)


def why(home):
    failures = [folder.read_failed() for folder in runs(home).values()]
    return (
        "the sweep ended: "
        f"{(home / 'sweep.log').read_text()[-2000:]}\n{[failed for failed in failures if failed]}"
    )


def wait_for(condition, process):
    home = Path(process.args[-1]).parent
    return until(
        condition, unless=lambda: process.poll() is not None and pytest.fail(why(home)), pause=0.1
    )


def test_a_sweep_on_both_back_ends_survives_kills(home, prefect):
    # 1. Its worker is killed in mid-step: that run fails, alone, and all of its processes end.
    process = sweep(home, prefect, workers=1)
    verl = wait_for(lambda: runs(home).get("verl"), process)
    wait_for(lambda: verl.checkpoint(1).exists(), process)
    assert set(marked(verl, psutil.Process.nice)) == {os.nice(0)}, (
        "Ray's workers would yield to evaluations"
    )
    assert listening(verl) == {"127.0.0.1"}, "Ray, verl and torch"
    worker_of(verl, "WorkerDict").kill()
    assert process.wait(SECONDS) == 1
    assert not marked(verl)
    failed = verl.read_failed()
    assert "a worker of verl died" in failed["error"] and "\n" not in failed["error"], failed[
        "error"
    ]
    assert Path(failed["log"]).is_file()
    assert failed["tail"]
    assert failed["step"] >= 1
    assert runs(home)["local"].state() == "done"
    assert last_state(verl).world_size == 1

    # 2. The same command goes on, on two workers. kill -9 of the whole sweep, once Ray has one:
    #    nothing of it lives on.
    process = sweep(home, prefect, workers=2)
    wait_for(lambda: worker_of(verl), process)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not marked(verl), "the end of its processes", pause=0.2)

    # 3. And once more: only what is missing.
    process = sweep(home, prefect, workers=2)
    assert process.wait(SECONDS) == 0, (home / "sweep.log").read_text()[-3000:]
    assert verl.log_path.read_text().count("continuing after step") == 2
    assert verl.attempts() == [
        1,
        3,
    ]
    for back_end, folder in runs(home).items():
        assert folder.state() == "done"
        assert pending_evaluations(folder) == []
        steps = [row["step"] for row in folder.read_metrics()]
        assert steps == ([0, *STEPS] if back_end == "verl" else STEPS), (
            "each once; validation at step 0"
        )
    local, verl = (runs(home)[back_end] for back_end in ("local", "verl"))
    every_number_is_the_embedded_trainers(verl, local)
    what_it_trained_on_is_what_the_embedded_trainer_did(verl, local)
    its_reference_is_in_its_checkpoint(verl)
    database_holds_both(home)


def every_number_is_the_embedded_trainers(verl, local):
    expected, rows = (
        {row["step"]: row for row in folder.read_metrics()} for folder in (local, verl)
    )
    shape = [
        (row["groups_sampled"], row["groups_kept"], row["reference_age"])
        for row in expected.values()
    ]
    assert shape == [(3, 3, 0), (5, 2, 3), (9, 3, 0), (9, 0, 3)]
    assert [expected[step]["sampler_age"] for step in (1, 2, 3)] == [0, 1, 1]
    assert 0 <= rows[0]["validation_accuracy"] <= 1
    assert {"reward_correctness", "reward_score_letters", "reward_score_asked"} <= set(rows[1])
    assert set(expected[1]) - set(rows[1]) - NOT_ON_VERL == {
        "seconds_reward"
    }  # overlaps the rollout
    assert set(rows[1]) <= {*expected[1], "validation_accuracy"}
    assert rows[1]["tokens"] == expected[1]["tokens"], "the same first rollout"
    for step, row in expected.items():
        for name in set(row) - NOT_ON_VERL - NOT_THE_SAME:
            if not name.startswith("seconds_"):
                assert rows[step][name] == pytest.approx(row[name], rel=2e-3, abs=1e-5), (
                    step,
                    name,
                )
    entropy = lambda of: sum(of[step]["entropy"] for step in STEPS) / len(STEPS)  # noqa: E731
    assert entropy(rows) == pytest.approx(entropy(expected), rel=0.25)
    assert "loss" not in rows[4]
    assert "loss" in rows[3]


def what_it_trained_on_is_what_the_embedded_trainer_did(verl, local):
    assert recorded_steps(verl) == recorded_steps(local) == [1, 2, 3], (
        "no group of the last step has signal"
    )
    for step in (1, 2, 3):
        for row, like in zip(read_records(verl, step), read_records(local, step), strict=True):
            for name in VALUES:
                assert row.pop(name) == pytest.approx(like.pop(name), rel=2e-3, abs=1e-5), (
                    step,
                    name,
                )
            assert row == like


def its_reference_is_in_its_checkpoint(verl):
    """Renewed at the third rollout, so its weights are neither the initial model's nor those of the
    policy."""
    state = last_state(verl)
    [final] = (verl.checkpoint(STEPS[-1]) / "training").glob("global_step_*")
    assert (state.step, state.world_size) == (STEPS[-1], 2)
    assert state.reference == {"renewed_at": 5, "average": 0.0, "kept": True}
    assert (final / "reference" / "world_size_2_rank_1.safetensors").is_file()
    spec = RunSpec.model_validate(verl.read_manifest()["spec"])
    assert sum(records_path(verl, step).stat().st_size for step in (1, 2, 3)) <= token_records(spec)
    foretold = disk(
        spec, 16
    )  # by `rpg show`; the exported model is linked into the checkpoint: once on disk
    assert size(verl.checkpoint(STEPS[-1])) == pytest.approx(foretold.newest, rel=0.1)


def database_holds_both(home):
    path = home / "analytics" / (home / "analytics" / "CURRENT").read_text().strip()
    with duckdb.connect(str(path), read_only=True) as db:
        rows = db.execute(
            "SELECT r.spec->>'$.backend.type', m.step, count(reward), "
            "count(kl_old_to_policy) FROM metrics m "
            "JOIN runs r USING (sweep, run) WHERE m.step > 0 GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert rows == [(of, step, 1, step < 4) for of in ("local", "verl") for step in STEPS]
        scores = db.execute(
            "SELECT accuracy FROM scores WHERE benchmark = 'mean' AND step = 0"
        ).fetchall()
        assert len(scores) == 2 and len(set(scores)) == 1, "one initial model"
    report = home / "reports" / "verl-ci"
    assert (report / "report.html").is_file()
    assert "verl" in (report / "table.md").read_text()
    assert json.loads(runs(home)["verl"].manifest_path.read_text())["versions"]["verl"]
