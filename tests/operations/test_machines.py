"""A second machine that works for `rpg serve` with `rpg worker`; its host is simulated with
namespaces, its disk shared."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from flows.prefect.flow_runs import ALIVE
from flows.prefect.reconcile import WORKERS
from rpg.store import locks
from tests.operations.serving import FINAL, with_these_tests
from tests.places import namespaces, on_host
from tests.waiting import HANG, until

HOST = "gpu-node-7"
pytestmark = [pytest.mark.component, namespaces]


def command(served, home):
    ports = ["--port", str(served.port), "--dashboard-port", str(served.dashboard_port)]
    return with_these_tests("rpg", "worker", "--home", str(home), *ports)


@contextlib.contextmanager
def machine(served, tmp_path):
    """`rpg worker` on another host, and the worker of `rpg serve` standing still: what is started
    goes to the other."""
    log = tmp_path / "worker.log"
    own = served.part("serve.flow_runner")
    with log.open("wb") as output:
        host = subprocess.Popen(
            on_host(HOST, tmp_path / "boot", *command(served, served.home)),
            stdout=output,
            stderr=output,
            env=served.environment,
            cwd=served.root,
            start_new_session=True,
        )
    try:
        until(lambda: b"Ctrl-C" in log.read_bytes(), "the worker", lambda: host.poll() is not None)
        own.send_signal(signal.SIGSTOP)
        yield host
    finally:
        own.send_signal(signal.SIGCONT)
        host.kill()
        host.wait()


def hosts(served, name):
    """Where the trainings of a sweep are, or were."""
    found = {
        lease["host"] for folder in served.layout.run_folders(name) if (lease := folder.lease())
    }
    for folder in served.layout.run_folders(name):
        found |= {
            json.loads(p.read_text())["machine"]["host"]
            for p in folder.path.glob("provenance-*.json")
        }
    return found


def attempts(served, run):
    return list((served.home / ALIVE).glob(f"{run}.*"))


@pytest.mark.system
def test_flow_runs_of_another_machine_are_cancelled_and_retried_like_those_of_this_one(
    served, tmp_path
):
    with machine(served, tmp_path) as host:
        assert locks.alive(served.home / WORKERS / HOST)
        run = served.run_id("sweep", config="own/trivial", name="there", workers=2)
        assert served.finished(run)[0] == "COMPLETED", served.log_of(run)
        assert hosts(served, "there") == {HOST}

        run = served.run_id("sweep", config="own/trivial", name="cancelled", steps=600, workers=2)
        until(lambda: hosts(served, "cancelled") == {HOST}, "its trainings", pause=0.3)
        served.api.post(f"/flow_runs/{run}/set_state", json={"state": {"type": "CANCELLING"}})
        assert served.finished(run)[0] == "CANCELLED"
        cancelled = served.layout.run_folders
        until(lambda: not any(f.state() == "running" for f in cancelled("cancelled")), "their end")

        run = served.run_id("sweep", config="own/trivial", name="lost", steps=600, workers=2)
        until(lambda: hosts(served, "lost") == {HOST}, "its trainings", pause=0.3)
        host.kill()  # a power cut
        host.wait()
        [left] = until(lambda: attempts(served, run), "the heartbeat of the flow run")
        assert served.state(run)[0] not in FINAL
        time.sleep(0.1)
        leases = [f.lease_path for f in served.layout.run_folders("lost")]
        for path in (left, served.home / WORKERS / HOST, *leases):
            if path.exists():  # no heartbeat for an hour by the clock of the storage
                os.utime(path, (0, time.time() - 3600))
        repair = [sys.executable, "-m", "rpg", "reconcile", "--home", str(served.home)]
        done = subprocess.run(
            repair, env=served.environment, capture_output=True, text=True, timeout=HANG
        )
        assert served.state(run)[0] == "CRASHED", done


@pytest.mark.system
def test_a_machine_that_has_another_data_folder_is_refused(served, tmp_path):
    """Neither one elsewhere, nor, at the same place, one that is not the same storage."""
    elsewhere = subprocess.run(
        command(served, tmp_path),
        env=served.environment,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert elsewhere.returncode == 2 and f"works in {served.home}" in elsewhere.stderr, elsewhere
    (tmp_path / "copy").mkdir()
    mount = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    mounted = ["bash", "-c", mount, "bash", tmp_path / "copy", served.home]
    other = on_host(HOST, tmp_path / "boot", *map(str, mounted), *command(served, served.home))
    copy = subprocess.run(
        other, env=served.environment, capture_output=True, text=True, timeout=HANG
    )
    assert copy.returncode == 2 and "the storage is not the same" in copy.stderr, copy
