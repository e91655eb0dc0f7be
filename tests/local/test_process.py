"""The training process and the evaluation process from outside: exit codes, locks, signals, kills,
failures."""

import fcntl
import json
import os
import platform
import random
import re
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pyarrow.compute
import pytest

from rpg.backends.local.trainer import Trainer
from rpg.config.run_spec import RunSpec
from rpg.store import Layout
from rpg.store.run_folder import pending_evaluations
from rpg.store.run_writer import write_manifest
from rpg.store.samples import read_eval
from rpg.system.processes import give_memory_back
from tests.forked_commands import Child
from tests.tiny import HUNGRY, make_run, make_spec, merged, numbers
from tests.waiting import HANG, memory, until

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "1",
}


def limit_files(most):
    """Let this process write no file of more bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def limit_data(more):
    """Limit this process to `more` bytes above what it has when its first step begins."""
    step = Trainer.step

    def limited(self, number):
        if resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY:
            most = more + memory("VmData")
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        return step(self, number)

    give_memory_back()  # or what the tests before have freed is there to be used
    Trainer.step = limited


FREED = """
import resource
from rpg.system.processes import give_memory_back, keep_memory

def pages_found():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * 2**26
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

for choose in (keep_memory, give_memory_back, keep_memory):
    choose()
    pages_found()
    print(pages_found() < 1000)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told")
def test_what_is_freed_is_there_for_the_next_step_or_goes_back():
    """64 MiB are 16,384 pages, which the system finds and clears once, or each time."""
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "True"]


def run(command, folder, *options, **kwargs):
    """(exit code, output)"""
    child = Child(command, folder, *options, **kwargs)
    return child.wait(), child.output()


LONG = {"training": {"steps": 5000}, "evaluation": {"every": 5000}}


@pytest.mark.system
def test_a_run_is_trained_and_evaluated(home):
    """The whole life of a run, and its step 0 shared with a run of the same seed."""
    first = make_run(home, "life-a", make_spec())
    second = make_run(home, "life-b", make_spec(algorithm="rpg-reinforce-urkl"))
    code, out = run("train", first)
    assert code == 0, out
    assert "trained: 3 of 3 steps" in out
    assert not first.lease_path.exists()
    assert not first.failed_path.exists()
    assert first.checkpoint_steps() == [0, 2, 3]
    assert [r["step"] for r in numbers(first)] == [
        1,
        2,
        3,
    ]
    assert run("train", second)[0] == 0
    promised = [(b, s) for s in (0, 2, 3) for b in ("chain-one", "chain-two")]
    assert pending_evaluations(first) == promised

    sweep = Layout(home).sweep_folder("sweep")
    broken = second.checkpoint(2) / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-1])
    worker = Child("evaluate", sweep)
    until(lambda: pending_evaluations(first) == [])
    assert worker.alive()  # its input is still open: more may come
    worker.close_stdin()
    assert worker.wait() == 0, worker.output()
    out = worker.output()
    assert pending_evaluations(second) == [("chain-one", 2), ("chain-two", 2)]
    assert out.count("warning:") == 2
    assert "step-000002 cannot be evaluated on chain-one" in out
    error = json.loads((second.path / "evals" / "chain-one" / "step-000002.error.json").read_text())
    assert "model.safetensors has" in error["error"]

    table = read_eval(first, "chain-two", 3)
    assert len(table) == 8 * 2
    assert table["sample"].to_pylist() == [0, 1] * 8
    assert read_eval(first, "chain-one", 0).equals(read_eval(second, "chain-one", 0))
    assert not read_eval(first, "chain-one", 3).equals(read_eval(second, "chain-one", 3))
    accuracy = pyarrow.compute.mean(table["correct"]).as_py()
    right = [row["extracted"] == row["answer"] for row in table.to_pylist()]
    assert accuracy == sum(right) / len(right)

    # Trained again, the damaged checkpoint comes back and is evaluated; and a rerun does nothing.
    code, out = run("train", second)
    assert code == 0
    assert "set aside as step-000002.corrupt" in out
    assert run("evaluate", sweep, "--drain")[0] == 0
    assert pending_evaluations(second) == []
    before = second.attempts()
    assert run("train", second)[0] == 0
    assert second.attempts() == before
    # The same samples again.
    samples = read_eval(first, "chain-two", 3)
    first.eval_path("chain-two", 3).unlink()
    assert run("evaluate", sweep, "--drain")[0] == 0
    assert read_eval(first, "chain-two", 3).equals(samples)


@pytest.mark.system
def test_kill_at_random_moments_and_go_on(home):
    """The same bits; the policies of four rollouts before have to come back too."""
    spec = make_spec(training={"steps": 24}, evaluation={"every": 9}, rollout={"staleness": 4})
    whole = make_run(home, "kill-whole", spec)
    parts = make_run(home, "kill-parts", spec)
    assert run("train", whole)[0] == 0
    rng = random.Random(4)
    kills = 0
    while kills < 3:
        child = Child("train", parts)
        goal = min((parts.checkpoint_steps() or [-1])[-1] + rng.randrange(1, 7), 23)
        until(lambda: (parts.checkpoint_steps() or [-1])[-1] >= goal)  # noqa: B023
        time.sleep(rng.random() * 0.05)
        child.send(signal.SIGKILL)
        if child.wait() == 0:  # it came to its end before
            break
        kills += 1
    code, out = run("train", parts)
    assert kills and code == 0, out
    assert numbers(parts) == numbers(whole)
    assert len(numbers(whole)) == 24
    end = "model.safetensors"
    assert (parts.checkpoint(24) / end).read_bytes() == (whole.checkpoint(24) / end).read_bytes()
    assert parts.checkpoint_steps() == whole.checkpoint_steps() == [0, 1, 2, 4, 9, 18, 23, 24]
    assert [row["sampler_age"] for row in numbers(parts)] == [min(step, 4) for step in range(24)]


def test_one_process_per_run_and_signals_end_it(home):
    folder = make_run(home, "busy", make_spec(**LONG))
    child = Child("train", folder)
    until(lambda: folder.attempts())
    lease = folder.lease()
    assert lease["pid"] == child.pid
    assert folder.state() == "running"
    code, out = run("train", folder)
    assert code == 75
    assert f"already running, by pid {child.pid}" in out
    child.send(signal.SIGTERM)
    assert child.wait() == 143
    assert folder.state() == "interrupted"
    assert not folder.failed_path.exists()
    child = Child("train", folder)
    until(lambda: len(folder.attempts()) == 2)
    child.send(signal.SIGINT)
    assert child.wait() == 130
    assert "continuing after step" in child.output()


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_it_dies_with_its_parent(home, command):
    folder = make_run(home, f"orphan-{command}", make_spec(**LONG))
    target = folder.path if command == "train" else folder.path.parent
    lock = target / (".lock" if command == "train" else ".evaluator")
    parent = os.fork()
    if not parent:
        Child(command, target)
        time.sleep(1000)
    until(lambda: held(lock))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    until(lambda: not held(lock))


def held(lock):
    """Whether a process holds the lock file."""
    if not lock.exists():
        return False
    with open(lock) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def test_a_run_trains_when_it_is_started_as_a_command(home):
    """Once as people and the flow start it, imports and all."""
    folder = make_run(home, "command", make_spec(training={"steps": 1}))
    command = [sys.executable, "-m", "rpg.backends.local", str(folder.path)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_errors_are_one_line_in_failed_json(home):
    folder = make_run(home, "broken", make_spec())
    manifest = folder.read_manifest()
    manifest["spec"]["training"]["stepz"] = 3
    write_manifest(folder, manifest)
    code, out = run("train", folder)
    failed = folder.read_failed()
    assert code == 1
    assert "training.stepz: unknown field; did you mean 'steps'?" in failed["error"]
    assert "\n" not in failed["error"]
    assert failed["step"] is None
    assert "Traceback" in out
    assert folder.state() == "failed"


def test_a_wrong_model_path_is_one_clear_line(home):
    value = make_spec().model_dump(mode="json")
    value["model"] = {"type": "pretrained", "path": str(home / "no-such-model")}
    folder = make_run(home, "no-model", RunSpec.model_validate(value))
    code, _ = run("train", folder)
    error = folder.read_failed()["error"]
    assert code == 1
    assert "no-such-model" in error
    assert "model.path" in error


def test_a_folder_that_is_none_is_said(tmp_path):
    code, out = run("train", tmp_path / "a" / "b" / "c")
    assert code == 2
    assert "expected a run's folder" in out
    (tmp_path / "runs" / "s" / "r").mkdir(parents=True)
    code, out = run("train", tmp_path / "runs" / "s" / "r")
    assert code == 1
    assert "manifest.json" in out


@pytest.mark.parametrize(("limit", "what"), [(2_000, "metrics|checkpoint"), (60_000, "checkpoint")])
def test_a_file_that_cannot_grow_fails_clearly_and_harms_nothing_older(home, limit, what):
    """RLIMIT_FSIZE stands in for a full disk: writes fail in the middle of a file."""
    spec = make_spec(training={"steps": 4})
    folder = make_run(home, f"full-{limit}", spec)
    whole = make_run(home, "full-whole", spec)
    assert run("train", whole)[0] == 0
    code, out = run("train", folder, first=partial(limit_files, limit))
    assert code == 1, out
    error = folder.read_failed()["error"]
    assert str(folder.path) in error and "File too large" in error, error
    assert run("train", folder)[0] == 0
    assert numbers(folder) == numbers(whole)


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="the memory limit is Linux's RLIMIT_DATA")
def test_a_training_that_gets_no_memory_says_what_to_do_and_goes_on_so_to_the_same_bits(home):
    """RLIMIT_DATA stands in for a machine that refuses memory; one that kills is in
    tests/flows/test_out_of_memory.py."""
    changes = merged(HUNGRY, {"training": {"prompts_per_step": 8, "mini_batch_prompts": 8}})
    spec = make_spec(**changes)
    limit = 150 * 2**20
    whole = make_run(home, "memory-whole", spec)
    parts = make_run(home, "memory-parts", spec)
    assert run("train", whole)[0] == 0
    code, out = run("train", parts, first=partial(limit_data, limit))
    error = parts.read_failed()["error"]
    assert code == 1 and parts.checkpoint_steps() == [0], out
    begin = "training step 1, update: not enough memory; run the same command again with --set"
    assert error.startswith(begin), error
    field, value = re.search(r"--set (\S+)=(\w+):", error).groups()
    assert "bit-identical results" in error
    assert "micro_batch_rows) also help, but results are then no longer" in error
    advised = {field.removeprefix("backend."): value == "true"}
    make_run(home, "memory-parts", make_spec(**changes, backend=advised))
    code, out = run("train", parts, first=partial(limit_data, limit))
    assert code == 0, out
    assert numbers(parts) == numbers(whole)
    end = "model.safetensors"
    assert (parts.checkpoint(2) / end).read_bytes() == (whole.checkpoint(2) / end).read_bytes()


def test_runs_of_a_sweep_share_data_and_warm_start_and_a_missing_file_is_named(home, tmp_path):
    make_run(tmp_path, "a", make_spec(model={"warm_start": None}))
    make_run(tmp_path, "b", make_spec(model={"warm_start": None}, seed=1))
    sweep = Layout(tmp_path).sweep_folder("sweep")
    assert run("prepare", sweep) == (0, "")
    assert len(list((tmp_path / "cache" / "data").glob("[!.]*"))) == 1
    assert len(list((tmp_path / "cache" / "warm").glob("[!.]*"))) == 1
    missing = str(tmp_path / "none.jsonl")
    task = {"type": "file", "train": missing, "benchmarks": {"b": missing}}
    spec = make_spec().model_dump(mode="json")
    make_run(tmp_path, "c", RunSpec.model_validate({**spec, "task": task}))
    code, out = run("prepare", sweep)
    assert code == 1
    assert "none.jsonl: no such file" in out.strip().splitlines()[-1]
