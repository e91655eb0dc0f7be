"""The evaluator beside trainings: what it may take, and that a kill in the middle loses nothing."""

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from flows.machine.children import Children
from flows.machine.programs import EVALUATOR, FORKED
from flows.sweep.evaluation import run_beside
from rpg.config.evaluation import OnRay, ThisMachine
from rpg.evaluation import resource_limits
from rpg.evaluation.resource_limits import explained, strictest
from rpg.store.layout import Layout
from rpg.system.fork_server import ForkServer
from rpg.system.processes import owner_mark
from tests.evaluation.runs import register, rows, sample_lines
from tests.forked_commands import Child
from tests.waiting import HANG, until

LONG = {"engine": {"type": "local", "rows": 16}, "samples_per_problem": 12}
slow = pytest.mark.component


def stored(layout):
    """The stored samples of step 0, as lines."""
    files = {path: sample_lines(path) for path in layout.samples.glob("*/*.jsonl.gz")}
    return [line for lines in files.values() for line in lines]


def evaluator(layout):
    return Child("evaluate", layout.sweep_folder("sweep"), "--drain")


def wait_for_samples(layout, count, child=None):
    until(
        lambda: len(stored(layout)) > count,
        "that many samples",
        lambda: child is not None and not child.alive(),
        pause=0.002,
    )


def test_of_several_runs_the_strictest_limits_hold():
    ours = [
        ThisMachine(threads=4, niceness=2),
        ThisMachine(threads=2, memory_gib=8),
        ThisMachine(niceness=9, memory_gib=3),
    ]
    assert strictest([*ours, OnRay(type="ray")]) == ThisMachine(threads=1, niceness=9, memory_gib=3)
    assert strictest([ThisMachine(threads=4, niceness=0)]) == ThisMachine(threads=4, niceness=0)
    assert strictest([OnRay(type="ray")]) is None
    assert strictest([]) is None


def test_a_failure_for_want_of_memory_names_the_field():
    said = (
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"
    )
    torchs = RuntimeError(said)
    tight = ThisMachine(memory_gib=2)
    for error in (torchs, MemoryError()):
        assert explained(error, tight).startswith("evaluation.place.memory_gib: 2 is not enough")
        assert "memory_gib" not in explained(error, ThisMachine())
    assert explained(RuntimeError("first\nsecond"), tight) == "first"


def test_a_share_of_the_gpu_is_asked_for(monkeypatch):
    import torch

    asked = []
    monkeypatch.setattr(resource_limits.os, "nice", lambda n: asked.append(("nice", n)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda f: asked.append(("gpu", f))
    )
    monkeypatch.setattr(torch, "set_num_threads", lambda n: asked.append(("threads", n)))
    resource_limits.confine(ThisMachine(gpu_memory=0.25, threads=3))
    assert asked == [("nice", 5), ("threads", 3), ("gpu", 0.25)]


@slow
@pytest.mark.skipif(sys.platform != "linux", reason="the memory limit is Linux's RLIMIT_DATA")
def test_the_process_is_under_its_limits_and_a_second_one_is_told(checkpoints, tmp_path):
    layout = Layout.at(tmp_path)
    place = {"niceness": 7, "memory_gib": 60, "threads": 1}
    folder = register(layout, "one", checkpoints, **LONG, place=place)
    first = evaluator(layout)
    wait_for_samples(layout, 0, first)
    first.send(signal.SIGSTOP)  # it is still there when the second comes
    process = psutil.Process(first.pid)
    assert process.nice() == min(19, os.nice(0) + 7)
    assert process.rlimit(psutil.RLIMIT_DATA)[0] == 60 * 2**30
    second = evaluator(layout)
    assert second.wait() == 75
    told = f"{layout.sweep_folder('sweep')} is already being evaluated by process {first.pid}"
    assert second.output().strip() == told
    first.send(signal.SIGCONT)
    assert first.wait() == 0, first.output()
    assert len(rows(folder, 1)) == 64 * 12


@slow
@pytest.mark.skipif(sys.platform != "linux", reason="the memory limit is Linux's RLIMIT_DATA")
def test_too_little_memory_is_said_with_its_field(checkpoints, tmp_path):
    layout = Layout.at(tmp_path)
    register(layout, "one", checkpoints, place={"memory_gib": 0.01})
    child = evaluator(layout)
    code = child.wait()
    said = child.output()
    assert code == 1
    assert said.startswith("evaluation.place.memory_gib: 0.01, but the process uses")
    assert "Traceback" not in said


BEYOND = """
import torch
from rpg.config.evaluation import ThisMachine
from rpg.evaluation.resource_limits import _data_bytes, confine, explained
limits = ThisMachine(memory_gib=_data_bytes() / 2**30 + 0.25)
confine(limits)
torch.zeros(2**24)  # 64 MiB fit
try:
    torch.zeros(2**28)  # 1 GiB does not
except Exception as error:
    print(explained(error, limits))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory limit is Linux's RLIMIT_DATA")
def test_the_kernel_refuses_memory_beyond_the_limit():
    done = subprocess.run(
        [sys.executable, "-c", BEYOND], capture_output=True, text=True, timeout=HANG
    )
    assert (
        done.stdout.startswith("evaluation.place.memory_gib: ") and "is not enough" in done.stdout
    ), done


@slow
def test_the_sweep_starts_a_killed_evaluation_again(checkpoints, tmp_path):
    """As a sweep runs it: trainings go on, one of two evaluation processes is killed, their
    successors finish."""
    layout = Layout.at(tmp_path)
    folder = register(layout, "one", checkpoints, **LONG)
    fork_server = ForkServer(
        tmp_path / "fork-server.log", {EVALUATOR: FORKED[EVALUATOR]}, owner_mark()
    )
    over = threading.Event()
    children = Children(fork_server)
    arguments = (layout.sweep_folder("sweep"), children, over, lambda _: None, 2)
    task = threading.Thread(target=run_beside, args=arguments)
    task.start()
    try:
        wait_for_samples(layout, 1)
        assert len(children._running) == 2
        victim = min(children._running, key=lambda child: child.pid)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        until(lambda: len(folder.eval_steps("chain-easy")) == 2, "the end of both")
    finally:
        over.set()
        task.join(HANG)
        fork_server.close()
    assert not task.is_alive()
    assert len(rows(folder, 0)) == 64 * 12
