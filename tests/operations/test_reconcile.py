"""What a crash leaves behind is repaired; what lives is left alone."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from flows.prefect import reconcile as module
from flows.prefect.flow_runs import alive_path, folder_tag
from flows.prefect.reconcile import reconcile
from rpg.store import Layout, locks
from rpg.store.run_writer import claim_run, write_waiting
from rpg.system.processes import end_orphans, owner_mark
from tests.waiting import HANG, until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def gone():
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_process_whose_owner_is_gone_is_ended_and_no_other(gone):
    here = os.readlink("/proc/self/ns/pid")
    lost = {**os.environ, "RPG_OWNED_BY": f"{gone} another/1 {here}"}
    orphan = subprocess.Popen(SLEEP, env=lost, start_new_session=True)
    reused = subprocess.Popen(
        SLEEP, env={**os.environ, "RPG_OWNED_BY": f"{os.getpid()} another/1 {here}"}
    )
    owned = subprocess.Popen(SLEEP, env={**os.environ, **owner_mark()})
    plain = subprocess.Popen(
        SLEEP, env={k: v for k, v in os.environ.items() if k != "RPG_OWNED_BY"}
    )
    try:
        for process in (orphan, reused, owned, plain):  # each has the environment it was given
            until(lambda process=process: SLEEP[-1] in psutil.Process(process.pid).cmdline())
        assert not {owned.pid, plain.pid} & set(end_orphans())
        # Not who ended them: every sweep that begins on this machine does the same.
        assert orphan.wait(HANG)
        assert reused.wait(HANG)
        assert owned.poll() is None
        assert plain.poll() is None
    finally:
        for process in (orphan, reused, owned, plain):
            process.kill()
            process.wait()


def test_stale_leases_and_waiting_notes_go_and_live_ones_stay(tmp_path, gone):
    layout = Layout.at(tmp_path)
    dead = layout.run("s", "dead")
    live = layout.run("s", "live")
    for folder in (dead, live):
        claim_run(folder)
        write_waiting(folder, "waits for a slot")
    for name in ("lease.json", "waiting.json"):
        path = dead.path / name
        path.write_text(path.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {gone}'))
    said = reconcile(layout)
    assert len(said) == 2
    assert all("s/dead" in line for line in said)
    assert dead.lease() is None
    assert not (dead.path / "waiting.json").exists()
    assert live.state() == "running"
    assert live.waiting() == "waits for a slot"
    assert reconcile(layout) == []


@pytest.mark.component
@pytest.mark.parametrize("obeys", [True, False])
def test_a_cancellation_that_the_process_never_heard_of_reaches_it(served, monkeypatch, obeys):
    """As after Prefect's web socket was closed: the state says Cancelling, and the process works
    on."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.5)
    flow = served.api.get("/deployments/name/sweep/sweep").json()["flow_id"]
    body = {"flow_id": flow, "state": {"type": "CANCELLING"}, "tags": [folder_tag(served.home)]}
    run = served.api.post("/flow_runs/", json=body).json()["id"]
    deaf = "" if obeys else "signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    code = f"""if True:
        import pathlib, signal, sys, time
        from flows.prefect.flow_runs import alive
        {deaf}
        with alive(pathlib.Path(sys.argv[1]), sys.argv[2], 0):
            time.sleep(600)"""
    process = subprocess.Popen([sys.executable, "-c", code, str(served.home), run])
    try:
        until(lambda: locks.held(alive_path(served.home, run, 0)), "its lock", unless=process.poll)
        reconcile(served.layout, f"{served.ui}/api")
        assert process.poll() is None and served.state(run)[0] == "CANCELLING", (
            "it may still hear of it"
        )
        monkeypatch.setattr(module, "UNHEARD_SECONDS", 0.0)
        said = reconcile(served.layout, f"{served.ui}/api")
        assert served.state(run)[0] == "CANCELLED"
        assert len(said) == 1
        assert "had not heard" in said[0]
        assert process.wait(HANG)
        assert not alive_path(served.home, run, 0).exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.component
def test_flow_runs_killed_before_they_held_a_lock_are_closed_those_of_other_folders_not(
    served, monkeypatch
):
    monkeypatch.setattr(module, "NO_PROCESS_SECONDS", 0.0)
    flow = served.api.get("/deployments/name/sweep/sweep").json()["flow_id"]

    def flow_run(state, tag):
        body = {"flow_id": flow, "state": {"type": state}, "tags": [tag]}
        return served.api.post("/flow_runs/", json=body).json()["id"]

    ours = flow_run("RUNNING", folder_tag(served.home))
    others = flow_run("RUNNING", folder_tag("/elsewhere"))
    said = reconcile(served.layout, f"{served.ui}/api")
    assert served.state(ours)[0] == "CRASHED"
    assert served.state(others)[0] == "RUNNING"
    assert len([line for line in said if "its worker was lost before it started" in line]) == 1

    body = {"parameters": {"config": "own/small"}, "state": {"type": "PENDING"}}
    deployment = served.api.get("/deployments/name/sweep/sweep").json()["id"]
    handed = served.api.post(f"/deployments/{deployment}/create_flow_run", json=body).json()["id"]
    reconcile(served.layout, f"{served.ui}/api", worker_since=time.time() - 3600)
    assert served.state(handed)[0] == "PENDING", "that worker may still begin it"
    reconcile(served.layout, f"{served.ui}/api", worker_since=time.time() + 1)
    assert served.state(handed)[0] == "CRASHED"
