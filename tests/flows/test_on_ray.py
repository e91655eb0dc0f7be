"""Embedded trainings on a Ray cluster: the same files as here, whatever is lost; and what cannot
work is refused."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace

import pytest
import yaml

from flows.machine import ray_cluster as remote
from flows.machine.children import Children
from flows.machine.ray_cluster import Cluster, ClusterGone, Remote
from flows.machine.slots import Machine
from flows.sweep import training
from flows.sweep.context import Context, RunFailed
from flows.sweep.sharing import Claims
from rpg.backends import ray_task
from rpg.backends.ray_bridge import fits, too_much
from rpg.backends.ray_task import Order, train_here
from rpg.cli.execution import MOST_AT_ONCE, cores, default_workers
from rpg.config.backend import LocalBackend
from rpg.config.load import resolve
from rpg.errors import UserError
from rpg.store import Layout
from rpg.store.run_writer import write_waiting
from rpg.store.samples import read_eval
from rpg.system import provenance
from tests.evaluation.ray_head import node_command, ray_head
from tests.forked_commands import trained_here
from tests.places import ROOT, namespaces, on_host
from tests.real_sweep import start
from tests.tiny import BASE, make_run, make_spec, merged, numbers
from tests.waiting import HANG, until

MINE = {"pid": os.getpid()}


def order(folder, **changes):
    usual = {
        "asked": MINE,
        "threads": 1,
        "environment": {},
        "versions": {},
        "needs": {"num_cpus": 1},
    }
    place = {"module": "rpg.backends.local", "folder": str(folder.path)}
    return Order(**{**place, **usual, **changes})


@pytest.fixture
def folder(tmp_path):
    spec = make_spec(backend={"attempts": 5, "place": {"type": "ray", "address": "127.0.0.1:9"}})
    return make_run(tmp_path / "data", "one-s0-00000000", spec)


def test_a_device_and_a_place_that_do_not_fit_are_refused():
    for backend, why in (
        ({"device": "cuda", "place": {"type": "ray"}}, "device 'cuda' with place.gpus 0"),
        ({"place": {"type": "ray", "gpus": 1}}, "device 'cpu' with place.gpus 1"),
    ):
        with pytest.raises(UserError, match=why):
            resolve({"backend": backend}, "run")
    assert LocalBackend().workers_here() == 1
    assert LocalBackend(place={"type": "ray"}).workers_here() is None, (
        "it takes no slot of this machine"
    )


def test_a_sweep_asks_a_cluster_for_all_its_runs_and_this_machine_for_one_per_core():
    def workers(count, **backend):
        runs = [SimpleNamespace(spec=SimpleNamespace(backend=LocalBackend(**backend)))] * count
        return default_workers(SimpleNamespace(runs=runs))

    assert workers(54, place={"type": "ray"}) == 54
    assert workers(500, place={"type": "ray"}) == MOST_AT_ONCE
    assert workers(54) == cores()


def test_a_node_with_other_packages_is_refused(folder):
    write_waiting(folder, "a node")
    versions = provenance.embedded() | {"torch": "1.0", "sympy": "0.1"}
    other = r"cluster node .* other versions of packages.*: torch \S+ instead of 1\.0, sympy"
    with pytest.raises(UserError, match=other):
        train_here(order(folder, versions=versions))


def test_a_node_without_the_data_folder_is_refused_even_when_it_has_a_copy(folder, monkeypatch):
    elsewhere = r"data folder /nowhere .* is not the one on the cluster node .* share"
    with pytest.raises(UserError, match=elsewhere):
        train_here(order(Layout.at("/nowhere").run("sweep", "run")))
    monkeypatch.setattr(ray_task, "SEEN_SECONDS", 0.1)
    write_waiting(folder, "a node")
    with pytest.raises(
        UserError, match="is not the one"
    ):  # what this very process has written is not there
        train_here(order(folder, asked={**MINE, "birth": "another"}))


def test_what_no_node_is_large_enough_for_is_said_with_the_numbers():
    nodes = [
        {"CPU": 8.0, "GPU": 1.0, "memory": 64.0 * 2**30},
        {"CPU": 64.0, "memory": 16.0 * 2**30},
    ]
    assert fits(nodes, {"num_cpus": 8, "num_gpus": 1})
    assert fits(nodes, {"num_cpus": 64, "num_gpus": 0})
    needs = {"num_cpus": 16, "num_gpus": 1, "memory": 32 * 2**30}
    assert not fits(nodes, needs)
    assert not fits([], {"num_cpus": 1})
    assert too_much(nodes, needs).endswith(
        "cpus 16, gpus 1, memory_gib 32 on one node, and no node of the cluster has that "
        "(at most cpus 64, gpus 1, memory_gib 64)"
    )


@pytest.mark.parametrize(("end", "code"), [("sys.exit(75)", 75), ("os.kill(os.getpid(), 9)", -9)])
def test_the_exit_of_a_training_comes_through_its_guard(end, code):
    training = [sys.executable, "-c", f"import os, sys; {end}"]
    command = [sys.executable, "-m", "rpg.backends.ray_supervisor", *training]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode == code


TRAINER = """
import sys, time
from rpg.backends.training_process import run_training
def sleep(folder, home, say):
    say("up")
    time.sleep(600)
def main(arguments=None):
    return run_training("sleeper", None, sleep, arguments)
if __name__ == "__main__":
    sys.exit(main())
"""
WORKER = """
import json, sys
from rpg.backends.ray_task import Order, train_here
train_here(Order(**json.loads(sys.argv[1])))
"""


@pytest.mark.parametrize("killed", [signal.SIGTERM, signal.SIGKILL])
def test_a_training_whose_worker_is_killed_gives_its_lease_back(folder, tmp_path, killed):
    """Else other hosts would wait two minutes for it."""
    (tmp_path / "sleeper.py").write_text(TRAINER)
    write_waiting(folder, "a node")
    asked = order(folder, module="sleeper", environment={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, json.dumps(vars(asked))],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )
    try:
        until(lambda: folder.lease(), "the training", lambda: worker.poll() is not None)
        until(lambda: b"up" in folder.log_path.read_bytes(), "its first line")
        assert folder.waiting() is None
        assert folder.state() == "running"
        worker.send_signal(killed)
        worker.wait()
        until(lambda: folder.lease() is None, "the lease's end")
    finally:
        worker.kill()
        worker.wait()


def test_no_cluster_is_said_in_a_line(folder, tmp_path):
    cluster = Cluster("127.0.0.1:9", tmp_path / "ray.log")
    refused = r"backend\.place: no Ray cluster at '127\.0\.0\.1:9' .*refused.*`ray status`"
    with pytest.raises(ClusterGone, match=refused):
        cluster.start("rpg.backends.local", folder, 1, {"num_cpus": 1})
    cluster.close()


IN_TOUCH = """
import json, sys
print(json.dumps(json.loads(sys.argv[1])), flush=True)
sys.stdin.readline()
"""
"""Instead of rpg.backends.ray_bridge: says what it found, and is gone when the first order comes,
as Ray itself ends."""


def test_when_the_head_is_lost_its_trainings_are_and_the_next_one_asks_again(
    folder, tmp_path, monkeypatch
):
    """Nothing waits for a cluster that is gone: those runs are begun again, on the head that is
    there then, or refused."""
    found = [{"ready": True}, {"ready": True}, {"error": "no Ray cluster at '127.0.0.1:9'"}]

    def command(module, address):
        return [sys.executable, "-c", IN_TOUCH, json.dumps(found.pop(0))]

    monkeypatch.setattr(remote, "python_module", command)
    cluster = Cluster("127.0.0.1:9", tmp_path / "ray.log")
    arguments = ("rpg.backends.local", folder, 1, {"num_cpus": 1})
    try:
        for left in (2, 1):
            lost = cluster.start(*arguments)
            assert lost.wait() == remote.LOST
            assert lost.answer == {"lost": "the connection to the Ray cluster was lost"}
            assert len(found) == left
        resumed = r"no Ray cluster.*; run the same command again, and every run continues"
        with pytest.raises(ClusterGone, match=resumed):
            cluster.start(*arguments)
    finally:
        cluster.close()


QUICK = """
import sys
from rpg.backends import ray_bridge
ray_bridge.SAID_SECONDS, ray_bridge.NODES_SECONDS = 1.0, 0.2
sys.exit(ray_bridge.main(sys.argv[1]))
"""


@pytest.mark.system
def test_a_run_waits_for_a_node_that_is_promised_or_for_as_long_as_it_is_told(
    folder, tmp_path, monkeypatch
):
    raylet = pytest.importorskip("ray._raylet")
    (tmp_path / "quick.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr(
        remote, "python_module", lambda _, address: [sys.executable, "-c", QUICK, address]
    )
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(ray_head(cpus=0))
        cluster = Cluster(address, tmp_path / "ray.log")
        stack.callback(cluster.close)
        write_waiting(folder, "a node")

        def ask(minutes):
            return cluster.start("quick", folder, 1, {"num_cpus": 1}, minutes)

        def said(what):
            folder.log_path.write_text("")
            until(lambda: what in folder.log_path.read_text(), what)

        (refused := ask(0.05)).wait()
        assert refused.answer["refused"].endswith(
            "no node of the cluster has that (at most cpus 0)"
        )
        promise = {"autoscaler_report": {"pending_launches": {"worker": 2}, "pending_nodes": []}}
        status = partial(raylet.GcsClient(address).internal_kv_put, b"__autoscaling_status")
        status(json.dumps(promise).encode(), True, None)
        promised = ask(0.05)
        told = ask(10)
        for _ in range(4):  # seconds: longer than it was told
            said("no node of the cluster has that (at most cpus 0); the autoscaler promises 2")
        status(b"{}", True, None)
        promised.wait()
        assert "refused" in promised.answer
        said("; refused in 9.")
        assert folder.waiting().startswith("waits: backend.place: a run needs cpus 1 on one node")
        node = stack.enter_context(
            started_node(node_command(address, "127.0.0.11"), tmp_path / "node.log")
        )
        stack.callback(node.terminate)
        assert told.wait() == 0
        assert folder.waiting() is None


class Fake:
    """A cluster that answers as it is told to; before an answer it may save a checkpoint."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def start(self, module, folder, threads, needs, wait_minutes):
        assert folder.waiting() == "waits for a place on the Ray cluster at 127.0.0.1:9"
        answer = dict(self.answers.pop(0))
        step = answer.pop("saves", None)
        if step is not None:
            folder.checkpoint(step).mkdir(parents=True)
        remote = Remote(folder)
        remote.answered(answer)
        return remote


def trained(folder, tmp_path, monkeypatch, *answers):
    """The answers that are left when the run's training is over."""
    monkeypatch.setattr(training, "LEASE_SECONDS", 0.0)
    children = Children()
    fake = Fake(*answers)
    said = []
    children.cluster = lambda address, log: fake
    claims = Claims(Layout.at(folder.path.parents[2]))
    assert claims.take(folder)
    machine = Machine(tmp_path / "slots", 0, ())
    owner = SimpleNamespace(log=said.append)
    context = Context(Layout.at(tmp_path), folder.sweep, machine, children, claims, None, owner)
    try:
        training.train_in_process(folder, context)
    finally:
        claims.close()
    return fake.answers, said


def test_a_run_that_loses_its_node_is_started_again(folder, tmp_path, monkeypatch):
    gone = {"lost": "its node is gone"}
    steps = [
        {**gone, "saves": 0},
        gone,
        gone,
        {**gone, "saves": 1},
        gone,
        gone,
        {"code": 0, "newest": 1},
    ]
    left, said = trained(folder, tmp_path, monkeypatch, *steps)
    assert left == []
    assert len(said) == 6
    assert "its node is gone; it is restarted" in said[0]
    assert folder.waiting() is None
    assert not folder.failed_path.exists()


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (
            [{"lost": "its node was short of memory"}] * 9,
            "lost 5 times .* without a new checkpoint.* short of memory",
        ),
        ([{"refused": "backend.place: other packages"}], "backend.place: other packages"),
        (
            [{"code": 0, "newest": 3, "node": "a"}],
            "node a wrote checkpoint 3, which this machine does not see .* share",
        ),
        ([{"code": 2}], "ended with code 2"),
    ],
    ids=["kills every node", "refused", "not shared", "its own fault"],
)
def test_a_run_that_the_cluster_cannot_end_fails_with_the_reason(
    folder, tmp_path, monkeypatch, answers, why
):
    monkeypatch.setattr(training, "SHARED_SECONDS", 0.1)
    with pytest.raises(RunFailed, match=why):
        trained(folder, tmp_path, monkeypatch, *answers)
    assert re.search(why, folder.read_failed()["error"])


STEPS = 48
EVALUATED = {"every": STEPS, "samples_per_problem": 2}
WARM = {"model": {"warm_start": {"seed": 0, "behaviour_steps": 60}}, "evaluation": EVALUATED}
GATED = """
import socket
import time
from pathlib import Path

def length(responses):
    gate = Path({gates!r}) / socket.gethostname()
    while gate.exists():
        time.sleep(0.1)
    return [len(text) / 100 for text in responses]
"""
"""A reward that holds the trainings of a host for as long as there is a file of its name."""
REWARD = [
    {"type": "correctness"},
    {"type": "python", "function": "gated:length", "weight": 0.1, "seconds": 2 * HANG},
]
TRAINING = {"steps": STEPS, "checkpoint_every": 12}
RUN = merged(BASE, WARM | {"training": TRAINING, "reward": REWARD})
SWEEP = {"name": "cluster", "description": "Three runs.", "run": RUN, "axes": {"seed": [0, 1, 2]}}


class Hosts:
    """Ray nodes with one processor each, on what looks like a machine of its own each: host name,
    boot, process ids."""

    def __init__(self, address, folder):
        self.address = address
        self.folder = folder
        self.started = {}
        self.count = 10

    def start(self, *names):
        for name in names:
            self.count += 1
            node = node_command(self.address, f"127.0.0.{self.count}")
            command = on_host(name, self.folder / name, *node)
            self.started[name] = started_node(command, self.folder / f"{name}.log")

    def kill(self, *names):
        """A power cut: all processes of the host are gone at once."""
        for name in names or list(self.started):
            host = self.started.pop(name)
            host.kill()
            host.wait()


def started_node(command, log):
    """The process of a node that is up. Ray gives the start of a node 30 seconds, whatever else the
    machine does: what it gave up is started again."""
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        with log.open("wb") as output:
            node = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        until(lambda node=node: is_up(log) or is_over(node), "the start of a node")
        if is_up(log):
            return node
    raise AssertionError(f"no node started: {log.read_text()}")


def is_up(log):
    return b"Ray runtime started" in log.read_bytes()


def is_over(process):
    return process.poll() is not None


def hosts_of(folders):
    """Where trainings are, that of a host that was lost, whose lease stays until the run is begun
    again, left out."""
    return {lease["host"] for folder in folders if (lease := folder.lease())} - {"node-b"}


def moving(folders, host):
    """A run that is trained on this host, and neither at its beginning nor at its end."""
    for folder in folders:
        lease = folder.lease() or {}
        last = (folder.last_metrics() or [{}])[-1]
        if lease.get("host") == host and 2 <= last.get("step", 0) < STEPS / 2:
            return folder
    return None


@pytest.mark.system
@namespaces
def test_three_runs_on_two_nodes_survive_the_loss_of_a_node_and_the_conductor(
    tmp_path, monkeypatch, prefect
):
    """Bit for bit what this machine makes of them undisturbed; nothing is trained beyond the
    checkpoints twice."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(SWEEP))
    gates = tmp_path / "gates"
    gates.mkdir()
    (tmp_path / "gated.py").write_text(GATED.format(gates=str(gates)))
    names = ("node-a", "node-b")
    layout = Layout.at(tmp_path / "data")
    log = tmp_path / "data.log"
    with contextlib.ExitStack() as stack:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        address = stack.enter_context(ray_head(cpus=0))
        hosts = Hosts(address, tmp_path)
        stack.callback(hosts.kill)
        hosts.start(*names)

        place = ("--set", "backend.place.type=ray", "--set", f"backend.place.address={address}")

        def begin():
            one = start(tmp_path, "sweep", "cluster.yaml", *place, home=layout.home, **prefect)
            stack.callback(one.wait)
            stack.callback(one.kill)
            return one

        sweep = begin()
        started = partial(layout.run_folders, "cluster")
        victim = until(
            lambda: moving(started(), "node-b"), "a training on node-b", partial(is_over, sweep)
        )
        folders = layout.run_folders("cluster")
        assert len(folders) == 3
        # However long the new node takes to start, the one that is left does not do its work.
        (gates / "node-a").touch()
        hosts.kill("node-b")
        # Until its lease is old it may live on behind a broken network: an hour passes, by the
        # clock of the storage.
        os.utime(victim.lease_path, (0, time.time() - 3600))
        until(victim.waiting, "the lost run queued again", partial(is_over, sweep))
        hosts.start("node-c")
        until(
            lambda: moving(folders, "node-c"), "a training on the new node", partial(is_over, sweep)
        )

        sweep.kill()
        sweep.wait()
        (gates / "node-a").unlink()
        until(
            lambda: not hosts_of(folders), "the end of all trainings, with their leases given back"
        )
        assert not any(folder.failed_path.exists() for folder in folders), log.read_text()

        assert begin().wait(HANG) == 0, log.read_text()
    undisturbed = trained_here(tmp_path / "cluster.yaml", tmp_path / "here")
    for mine, theirs in zip(undisturbed, folders, strict=True):
        assert theirs.done_path.exists()
        assert mine.name == theirs.name
        assert numbers(mine) == numbers(theirs)
        assert len(numbers(mine)) == STEPS
        assert any((row.get("grad_norm") or 0) > 0 for row in numbers(mine)), "it learns something"
        weights = [folder.checkpoint(STEPS) / "model.safetensors" for folder in (mine, theirs)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
        assert read_eval(mine, "chain-two", STEPS).equals(read_eval(theirs, "chain-two", STEPS))
        records = theirs.path.glob("provenance-*.json")
        trained_on = {json.loads(p.read_text())["machine"]["host"] for p in records}
        assert trained_on <= {*names, "node-c"}
