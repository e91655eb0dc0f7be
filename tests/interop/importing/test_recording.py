"""rpg.record: any trainer's run in our own run folders, live; killed, refused, resumed,
compared."""

import importlib.util
import json
import math
import os
import runpy
import signal
import subprocess
import sys
import types
import warnings

import numpy
import pytest
import torch

import rpg
from benchmarks.synthetic import Shape, write_sweep
from rpg.errors import UserError
from rpg.interop.importing import read, take_over
from rpg.interop.integrations.plain_loop import steps
from rpg.report import diagnostics
from rpg.report.summary import summarise
from rpg.store import Layout, StoreError
from rpg.store.current import current_runs
from rpg.store.database import build, connect
from rpg.store.queries import problem_scores
from rpg.store.samples import read_eval
from tests.docs.pages import ROOT
from tests.waiting import until

LOOP = ROOT / "examples/record-a-loop/loop.py"


def loop(home, *arguments):
    environment = os.environ | {"RPG_HOME": str(home), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, LOOP, *arguments], env=environment)


def numbers(folder):
    clock = {"time", "attempt"}
    return [{name: row[name] for name in row.keys() - clock} for row in folder.read_metrics()]


@pytest.mark.system
def test_a_loop_of_forty_lines_killed_and_started_again_ends_with_the_same_bits_and_is_compared(
    tmp_path, monkeypatch
):
    """Nothing is lost but the step in flight, nothing counts twice, and it has paired tests beside
    the others."""
    killed = loop(tmp_path / "killed", "0.1", "0")
    layout = Layout.at(tmp_path / "killed")

    def logged():
        there = layout.run_folders("loops") if layout.sweeps() else []
        return [folder for folder in there if len(folder.read_metrics()) >= 25]

    [folder] = until(logged, "25 steps", lambda: killed.poll() is not None)
    assert folder.state() == "running" and folder.read_manifest()["spec"] == {"lr": 0.1}
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert folder.state() == "interrupted"
    before = numbers(folder)
    assert loop(tmp_path / "killed", "0.1", "0").wait() == 0
    assert folder.state() == "done" and folder.attempts() == [1, 2]
    after = numbers(folder)
    assert [row["step"] for row in after] == list(range(1, 61)) and after[: len(before)] == before
    assert set(after[0]) == {"step", "reward", "loss", "entropy", "learning_rate"}
    monkeypatch.setenv("RPG_HOME", str(tmp_path / "whole"))
    for rate, seed in [(rate, seed) for rate in ("0.1", "0.01") for seed in "012"]:
        monkeypatch.setattr(sys, "argv", ["loop.py", rate, seed])
        runpy.run_path(str(LOOP))
    whole = Layout.at(tmp_path / "whole")
    twin = whole.run("loops", folder.name)
    assert numbers(twin) == after
    assert read_eval(twin, "sums", 60).equals(read_eval(folder, "sums", 60))
    build(whole)
    with connect(whole) as db:
        summary = summarise(db, "loops")
    table = summary.table[summary.table["benchmark"] == "sums"].set_index("variant")
    assert summary.baseline == "lr 0.01" and table.loc["lr 0.1", "verdict"] == "better"
    notes = " ".join(summary.notes)
    assert "lr 0.1 (3 seeds) was trained elsewhere, recorded live: settings" in notes
    assert "no paired test" not in notes


def test_every_number_is_kept_under_a_name_with_a_meaning_and_what_is_no_number_is_said(tmp_path):
    with (
        warnings.catch_warnings(record=True) as said,
        rpg.record("s", variant="v", home=tmp_path) as run,
    ):
        warnings.simplefilter("always")
        for step in (1, 2):
            run.log(
                step,
                {
                    "kl": torch.tensor(0.5),
                    "loss": 7,
                    "rpg/loss": numpy.float32(0.25),
                    "rewards/right/mean": 1.0,
                    "completions/mean_length": 12,
                    "actor/ppo_kl": 0.125,
                    "reward": None,
                    "step": 5,
                    "Entropy": 1.0,
                    "entropy": 2.0,
                    "table": [1, 2],
                    "note": "text",
                    "mine/x": 3,
                },
            )
        run.log(2, late=1.0)  # is added to the step, as what TRL logs at its end
    [first, second] = run.folder.read_metrics()
    assert {name: first[name] for name in first if name not in ("time", "attempt", "reward")} == {
        "step": 1,
        "kl_policy_to_ref": 0.5,
        "loss": 0.25,
        "their_loss": 7,
        "reward_right": 1.0,
        "response_length": 12,
        "kl_old_to_policy": 0.125,
        "their_step": 5,
        "their_Entropy": 1.0,
        "entropy": 2.0,
        "mine/x": 3,
    }
    assert math.isnan(first["reward"]) and second["late"] == 1.0 and second["loss"] == 0.25
    others = {"table": "list", "note": "str"}
    lines = [
        f"not recorded: {name}, which is not a number ({kind})" for name, kind in others.items()
    ]
    assert run.folder.log_path.read_text().splitlines() == lines and len(said) == 2
    build(Layout.at(tmp_path))
    with connect(Layout.at(tmp_path)) as db:
        columns = db.execute('SELECT "their_Entropy", entropy, "mine/x" FROM metrics ORDER BY step')
        assert columns.fetchall() == [(1.0, 2.0, 3), (1.0, 2.0, 3)]
    assert any(
        "not a finite number" in str(finding)
        for finding in diagnostics.of_training([first, second])
    )


def test_it_stands_beside_ours_paired_by_the_text_of_problems(tmp_path):
    """A better run on the same problems, in another order and without their ids, is called
    better."""
    layout = write_sweep(tmp_path, "s", ["grpo", "dapo"], (0, 1, 2), Shape(steps=20))
    ours = current_runs(layout, "s")[0]
    [benchmark, *_] = ours.benchmarks()
    last = ours.eval_steps(benchmark)[-1]
    for seed in range(3):
        with rpg.record("s", variant="loop", seed=seed, home=tmp_path, updates=2) as run:
            for step in range(1, 2 * last + 1):
                more = {"eval_a_rewards/right/mean": 0.5, "select": 1}
                run.log(step, more, reward=step, optimizer_step=step, seconds_step=0.5)
            for name in ours.benchmarks():
                rows = read_eval(ours, name, last).to_pylist()[::-1]
                known = [{"problem": row["problem"], "response": row["response"]} for row in rows]
                run.evaluate(name, last, [row | {"correct": True} for row in known])
        rows = run.folder.read_metrics()
        assert (len(rows), rows[0]["reward"], rows[-1]["optimizer_step"]) == (last, 1.5, 2 * last)
        assert rows[0]["seconds_step"] == 1.0
        samples = (read_eval(folder, benchmark, last).to_pylist() for folder in (run.folder, ours))
        theirs, known = ({row["problem"]: row["problem_id"] for row in each} for each in samples)
        assert theirs == known
    build(layout)
    with connect(layout) as db:
        summary = summarise(db, "s")
    row = summary.table.set_index(["variant", "benchmark"]).loc["loop", benchmark]
    assert row["verdict"] == "better" and row["low"] > 0


def test_the_clusters_of_problems_reach_the_database(tmp_path):
    rows = [
        {"problem": "a", "response": "1", "correct": True, "cluster": "early"},
        {"problem": "b", "response": "1", "correct": False, "cluster": "late"},
        {"problem": "c", "response": "1", "correct": False},
    ]
    with rpg.record("s", variant="loop", seed=0, home=tmp_path) as run:
        run.log(1, reward=1.0)
        run.evaluate("own", 1, rows)
    build(Layout(tmp_path))

    with connect(Layout(tmp_path)) as db:
        scores = problem_scores(db, "s", [(run.folder.path.name, 1)])

    assert scores["cluster"].isna().sum() == 1
    assert set(scores["cluster"].dropna()) == {"early", "late"}


def ended_by(error, step, home):
    with rpg.record("s", variant="v", home=home) as run:
        run.log(step, reward=1)
        raise error


def test_states_are_those_of_our_runs(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        ended_by(KeyboardInterrupt(), 2, tmp_path)
    [folder] = Layout.at(tmp_path).run_folders("s")
    assert folder.state() == "interrupted"
    with pytest.raises(ZeroDivisionError):
        ended_by(ZeroDivisionError("by zero"), 3, tmp_path)
    failed = folder.read_failed()
    assert (folder.state(), failed["error"], failed["step"]) == (
        "failed",
        "ZeroDivisionError: by zero",
        3,
    )
    run = rpg.record("s", variant="v", home=tmp_path).__enter__()
    assert run.last_step == 3 and folder.state() == "running"
    run.log(2, reward=5)
    with pytest.warns(UserWarning, match="steps 3 to 3 are of an earlier attempt"):
        run.__exit__(None, None, None)
    assert folder.state() == "done" and [row["reward"] for row in folder.read_metrics()] == [5, 1]
    monkeypatch.setenv("RANK", "1")
    with rpg.record("s", variant="other process", home=tmp_path) as run:
        run.log(*steps(run, 1), reward=1)
    assert not run.folder.path.exists()
    assert rpg.record("s", variant="v", home=tmp_path).__enter__().last_step == 3, (
        "where RANK 0 goes on, too"
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda run: run.log("a"), "step 'a'; expected a whole number"),
        (lambda run: run.score("b", 1, 20), "20; expected an accuracy from 0 to 1"),
        (lambda run: run.evaluate("b", 1, [{"problem": "p"}]), "row 0 lacks correct, response"),
        (lambda run: run.score("b", 2.0, 0.5), "run.score: step 2.0; expected a whole number"),
        (lambda run: run.score("mean", 2, 0.5), "benchmark 'mean': the average over"),
        (lambda run: run.evaluate("b", -1, []), "run.evaluate: step -1; expected a whole number"),
        (lambda run: run.evaluate("b", 1, []), "no samples per problem"),
        (lambda run: rpg.record("s", variant=" "), "variant ' '"),
        (lambda run: rpg.record("../s", variant="a"), "expected a folder name"),
    ],
)
def test_wrong_calls_are_named(tmp_path, what, words):
    with rpg.record("s", variant="v", home=tmp_path) as run, pytest.raises(UserError, match=words):
        what(run)
    with pytest.raises(UserError, match="nothing is being recorded"):
        run.log(1, reward=1)


def test_one_run_has_one_recorder_and_one_way_to_come(tmp_path):
    code = (
        "import rpg, sys, time\nwith rpg.record('s', variant='v') as run: print('in', "
        "flush=True); time.sleep(600)"
    )
    environment = os.environ | {"RPG_HOME": str(tmp_path)}
    how = {"env": environment, "stdout": subprocess.PIPE, "cwd": ROOT}
    other = subprocess.Popen([sys.executable, "-c", code], **how)
    assert other.stdout.readline() == b"in\n"
    with pytest.raises(StoreError, match=f"in use by process {other.pid}"):
        rpg.record("s", variant="v", home=tmp_path).__enter__()
    other.kill()
    other.wait()
    log = tmp_path / "log.csv"
    log.write_text("step,reward\n1,0.5\n")
    about = {"kind": "csv", "source": log, "sweep": "s", "variant": "v", "seed": 0}
    words = "was trained elsewhere, recorded live and has variant 'v' and seed 0"
    with pytest.raises(UserError, match=words):
        take_over(Layout.at(tmp_path), read("csv", log, {"reward": "reward"}), **about)


@pytest.fixture
def callback(monkeypatch):
    if importlib.util.find_spec("trl") is None:
        monkeypatch.setitem(
            sys.modules, "trl", types.SimpleNamespace(GRPOTrainer=object, GRPOConfig=object)
        )
        monkeypatch.delitem(sys.modules, "rpg.interop.integrations.trl", raising=False)
    from rpg.interop.integrations.trl import RecordCallback

    return RecordCallback


@pytest.mark.component
def test_a_trainer_of_transformers_is_recorded_and_goes_on_from_its_checkpoint(tmp_path, callback):
    """transformers' own Trainer, which TRL's are made of; TRL itself is in an environment of its
    own (docs/other-trainers.md)."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    def train(steps, resume):
        args = TrainingArguments(
            output_dir=str(tmp_path / "out"),
            max_steps=steps,
            logging_steps=1,
            save_steps=2,
            report_to=[],
            use_cpu=True,
            per_device_train_batch_size=2,
            eval_strategy="steps",
            eval_steps=2,
            seed=1,
        )
        rows = [{"input_ids": [1, 2, i % 7], "labels": [1, 2, i % 7]} for i in range(16)]
        torch.manual_seed(1)
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=8, n_embd=8, n_layer=1, n_head=1, n_positions=4)
        )
        with rpg.record("s", variant="trainer", home=tmp_path) as run:
            trainer = Trainer(
                model,
                args,
                train_dataset=rows,
                eval_dataset={"a": rows[:4]},
                callbacks=[callback(run, {"held": "eval_a_share"})],
                compute_metrics=lambda _: {"share": 0.5},
            )
            trainer.train(resume_from_checkpoint=resume)
            assert run.folder.state() == "running"
        return run.folder, trainer.state.log_history

    folder, _ = train(3, False)
    folder, history = train(4, True)
    rows = folder.read_metrics()
    assert folder.state() == "done" and [row["step"] for row in rows] == [1, 2, 3, 4]
    logged = {row["step"]: row for row in history if "grad_norm" in row}
    for row in rows[2:]:
        theirs = logged[row["step"]]
        assert (row["loss"], row["grad_norm"]) == (theirs["loss"], theirs["grad_norm"])
        assert (row["optimizer_step"], row["learning_rate"]) == (
            row["step"],
            theirs["learning_rate"],
        )
    assert rows[3]["eval_a_share"] == 0.5 and "train_runtime" in rows[3]
    manifest = folder.read_manifest()
    assert (manifest["steps"], manifest["spec"]["seed"], manifest["benchmarks"]) == (4, 1, ["held"])
    scores = json.loads((folder.path / "imported.json").read_text())["scores"]
    assert scores == {"held": {"2": 0.5, "3": 0.5, "4": 0.5}}


def test_verls_own_tracking_records_with_one_word(tmp_path, monkeypatch):
    from verl.utils.tracking import Tracking

    import rpg.interop.integrations.verl  # noqa: F401 (it registers the tracker)

    monkeypatch.setenv("RPG_HOME", str(tmp_path))
    config = {"trainer": {"total_training_steps": None}, "data": {"seed": 3}}
    config["actor_rollout_ref"] = {"actor": {"optim": {"total_training_steps": 2}}}
    for last, state in ((1, "interrupted"), (2, "done")):
        tracking = Tracking("s", "verl GRPO", ["rpg"], config)
        for step in range(1, last + 1):
            found = {"val-core/gsm/8k/acc/mean@4": 0.75, "val-core/r/reward/mean@4": step - 1.5}
            tracking.log({"actor/entropy": 0.5, "perf/mfu": 0.1, **found}, step)
        tracking.finish()
        [folder] = Layout.at(tmp_path).run_folders("s")
        assert folder.state() == state
    manifest = folder.read_manifest()
    kept = tuple(manifest[name] for name in ("variant", "seed", "steps", "spec"))
    assert kept == ("verl GRPO", 3, 2, config)
    row = folder.read_metrics()[0]
    assert (row["entropy"], row["perf/mfu"]) == (0.5, 0.1) and manifest["benchmarks"] == ["gsm-8k"]
    assert (
        row["val-core/r/reward/mean@4"] == -0.5
        and folder.log_path.read_text().count("not an accuracy") == 2
    )
