"""Ray jobs on a real cluster of one node, with the stand-in for verl's driver: found again, cancelled, and gone."""

import contextlib
import signal
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from rpg.backends.training_process import TrainingFailed
from rpg.backends.verl import jobs
from rpg.backends.verl.launch import Launcher
from rpg.backends.verl.readiness import of_cluster
from rpg.store.run_writer import write_manifest
from tests.evaluation.ray_head import free_port, ray_head
from tests.tiny import make_run, make_spec
from tests.verl import start_launcher
from tests.waiting import HANG, until

HERE = Path(__file__).parent

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """(address of the dashboard, what ends the cluster)"""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(jobs, "MAIN", "stand_in")
        patch.setenv("PYTHONPATH", f"{HERE.parents[1]}:{HERE}")
        patch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        port = free_port()
        stack.enter_context(ray_head(dashboard=port))
        address = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{address}/api/version"), "the dashboard")
        yield address, stack.close


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=5)
    except OSError:  # also urllib's own
        return None


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def a_run(home, name, address, steps=3):
    ray = {"type": "job", "address": address}
    return make_run(home, name, make_spec(training={"steps": steps}, backend={"type": "verl", "ray": ray}))


def job_of(folder, address):
    client = jobs._client(address)
    (job,) = [one for one in client.list_jobs() if str(folder.path) in one.entrypoint]
    return job


def doctor(address):
    """What `rpg doctor` finds of the cluster, for a run that needs a GPU."""
    return of_cluster(
        make_spec(backend={"type": "verl", "device": "cuda", "rollout": {"type": "vllm"}}).backend, address
    )


def test_the_doctor_looks_at_a_cluster_that_is_named(cluster):
    """By its dashboard, as jobs are handed in; it has the CPUs of this machine and no GPU."""
    address, _ = cluster
    until(lambda: ": 1 nodes (" in doctor(address)[0].text, "the dashboard and its node")
    there, why = doctor(address)
    assert there.good and there.text.startswith(f"Ray cluster at {address}: 1 nodes (")
    assert why.good is False and "the Ray cluster has 0 nodes with 1 free GPUs" in why.text


def test_a_job_is_found_again_after_kill_9(home, cluster):
    address, _ = cluster
    folder = a_run(home, "found", address)
    gate = home / "gate"
    process = start_with(folder, f"wait:1:{gate}")
    until(lambda: folder.checkpoint(1).exists(), "the first checkpoint", lambda: process.poll() is not None)
    process.kill()
    process.wait()
    assert job_of(folder, address).status == "RUNNING"
    again = start_launcher(folder)
    until(lambda: folder.state() == "running")
    gate.touch()
    assert again.wait(HANG) == 0
    rows = [(row["step"], row["attempt"]) for row in folder.read_metrics().rows]
    assert rows == [(1, 1), (2, 1), (3, 1)], "one attempt: the job went on"
    assert job_of(folder, address).status == "SUCCEEDED"


def test_cancel_stops_the_job(home, cluster):
    address, _ = cluster
    folder = a_run(home, "cancelled", address)
    process = start_with(folder, f"wait:1:{home / 'never'}")
    until(lambda: folder.checkpoint(1).exists(), "the first checkpoint", lambda: process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG) == 143
    assert job_of(folder, address).status == "STOPPED" and folder.state() == "interrupted"


def test_a_cluster_that_goes_is_said_and_another_goes_on(home, cluster, monkeypatch):
    """The last test of this file: it ends the cluster."""
    address, end = cluster
    folder = a_run(home, "gone", address)
    monkeypatch.setattr(jobs, "GONE_SECONDS", 3.0)
    failures = []

    def train():
        try:
            Launcher().train(folder, home, lambda line: None)
        except TrainingFailed as error:
            failures.append(str(error))

    set_stand_in(folder, f"wait:2:{home / 'never'}")
    thread = threading.Thread(target=train)
    thread.start()
    until(lambda: folder.checkpoint(2).exists())
    end()
    thread.join(HANG)
    assert len(failures) == 1 and f"the Ray cluster at {address} is gone" in failures[0], failures
    [gone] = doctor(address)
    assert gone.good is False and gone.text.startswith(f"no Ray cluster answers at {address}")
    with pytest.raises(TrainingFailed, match=f"no Ray cluster answers at {address}"):
        Launcher().train(folder, home, lambda line: None)
    local = make_spec(training={"steps": 3}, backend={"type": "verl"})  # the run's folder, moved elsewhere
    write_manifest(folder, {**folder.read_manifest(), "spec": local.model_dump(mode="json")})
    said = []
    set_stand_in(folder, "")
    Launcher().train(folder, home, said.append)
    assert said[0].startswith("continuing after step 2 of 3") and said[-1] == "trained: 3 of 3 steps"


def set_stand_in(folder, what):
    """A job does not inherit our environment: the stand-in looks into the run's folder."""
    folder.path.mkdir(parents=True, exist_ok=True)
    (folder.path / "stand-in").write_text(what)


def start_with(folder, what):
    set_stand_in(folder, what)
    return start_launcher(folder)
