"""What other containers and other hosts work on is seen, waited for, and never ended nor
removed."""

import contextlib
import json
import os
import subprocess
import time

import pytest

from flows.monitor import Watch
from flows.prefect.reconcile import reconcile
from flows.sweep.conductor import sweep_lock
from flows.sweep.sharing import Claims
from rpg.config.sweep_spec import load_sweep
from rpg.store import Layout, StoreError, locks
from rpg.store.run_writer import claim_run, release_run, write_manifest
from rpg.system.processes import end_descendants, end_orphans
from rpg.tasks.preparation import data_digest
from tests.operations.serving import ROOT, SMALL
from tests.places import in_container, namespaces, on_host, python, without_flock
from tests.real_sweep import TRIVIAL, start
from tests.waiting import HANG, until

pytestmark = namespaces

OWNER = """
import os, subprocess, sys, time
from rpg.system.processes import owner_mark
sleep = "import time; print('up', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", sleep],
                         env={**os.environ, **owner_mark()})
child.wait()
"""
WORKER = """
import pathlib, sys, time
from rpg.store import Layout
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import claim_run, release_run, renew_lease
run, go = RunFolder(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])
claim_run(run)
print("up", flush=True)
while not go.exists():
    renew_lease(run)
    time.sleep(0.2)
release_run(run)
"""
LOCKED = """
import sys, time
from flows.sweep.conductor import sweep_lock
from rpg.store import Layout, locks
locks.BEAT_SECONDS = 0.2
with sweep_lock(Layout.at(sys.argv[1]), "small"):
    print("up", flush=True)
    time.sleep(600)
"""
RACE = """
import pathlib, sys, time
from rpg.store import StoreError
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import claim_run, renew_lease
run = RunFolder(pathlib.Path(sys.argv[1]))
print("up", flush=True)
sys.stdin.readline()
try:
    claim_run(run)
except StoreError:
    print("refused", flush=True)
    sys.exit()
time.sleep(0.5)
print("kept" if renew_lease(run) else "given up", flush=True)
"""


@contextlib.contextmanager
def started(command, path=str(ROOT), **options):
    environment = {**os.environ, "PYTHONPATH": path}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, **options)
    try:
        assert child.stdout.readline() == "up\n"
        yield child
    finally:
        child.kill()
        child.wait()


def test_processes_of_another_container_are_nobodys_orphans():
    with started(in_container(*python(OWNER))) as container:
        assert end_orphans() == []
        assert end_descendants() == []
        assert container.poll() is None
        seen = subprocess.run(
            in_container(
                *python("from rpg.system.processes import end_orphans; print(end_orphans())")
            ),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert seen.stdout == "[]\n", seen
        without_proc = [part for part in in_container(*python(OWNER)) if part != "--mount-proc"]
        with started(without_proc) as other:  # there /proc shows this test's processes, not its own
            assert end_orphans() == []
            assert other.poll() is None
            assert container.poll() is None


@pytest.mark.parametrize("place", ["container", "host"])
def test_a_run_of_another_place_survives_and_is_shown(tmp_path, place):
    layout = Layout.at(tmp_path / "data")
    folder = layout.run("s", "r-s0-01234567")
    write_manifest(
        folder,
        {
            "run_id": "0123456789",
            "variant": "v",
            "algorithm": "grpo",
            "seed": 0,
            "spec": {},
            "created": 0,
            "steps": 3,
        },
    )
    command = python(WORKER, folder.path, tmp_path / "go")
    elsewhere = on_host("gpu-node-7", tmp_path / "boot", *command)
    command = in_container(*command) if place == "container" else elsewhere
    with started(command):
        lease = folder.lease()
        assert lease["pid"] == 1, "and /proc/1 of this test is somebody else"
        assert reconcile(layout) == []
        assert end_orphans() == []
        release_run(folder)
        with pytest.raises(StoreError, match=r"is in use by process 1 .* since "):
            claim_run(folder)
        claims = Claims(layout)
        assert not claims.take(folder)
        where = "on gpu-node-7 since" if place == "host" else "in another container on"
        assert Watch([folder]).views()[0].error.startswith(f"running {where}")
        assert folder.state() == "running"
        assert folder.lease()["birth"] == lease["birth"]
        (tmp_path / "go").touch()
        until(lambda: folder.lease() is None, what="the end of the other run")
        assert claims.take(folder)
        claims.close()


def test_a_host_whose_clock_is_wrong_is_not_taken_for_dead(tmp_path):
    folder = Layout.at(tmp_path).run("s", "r")
    claim_run(folder)
    lease = folder.lease() | {"host": "gpu-node-7", "boot": "its", "heartbeat": time.time() - 86400}
    folder.lease_path.write_text(json.dumps(lease))
    with pytest.raises(StoreError, match="on gpu-node-7"):
        claim_run(folder)
    os.utime(folder.lease_path, (0, time.time() - 3600))  # an hour by the clock of the storage
    claim_run(folder)
    assert folder.lease()["host"] != "gpu-node-7"


@pytest.mark.parametrize("flock", [True, False])
def test_one_host_conducts_a_sweep_with_and_without_locks_that_reach_the_other(tmp_path, flock):
    layout = Layout.at(tmp_path / "data")
    layout.sweep_folder("small").mkdir(parents=True)
    path = str(ROOT) if flock else without_flock(tmp_path / "site")
    lock = layout.sweep_folder("small") / ".conductor"
    assert not locks.alive(lock)
    with started(on_host("gpu-node-7", tmp_path / "boot", *python(LOCKED, layout.home)), path):
        assert locks.alive(lock)
        busy = pytest.raises(locks.Busy, match="by process 1 on gpu-node-7 since ")
        with busy, sweep_lock(layout, "small"):
            pass
    until(lambda: not locks.held(lock), what="the end of the other host's process")
    with pytest.raises(locks.Busy), sweep_lock(layout, "small"):
        pass  # it was killed, and its heartbeat is young
    assert locks.alive(lock)
    os.utime(lock, (0, time.time() - 3600))
    assert not locks.alive(lock)
    with sweep_lock(layout, "small"):
        assert locks.note(lock)["pid"] == os.getpid()
    with sweep_lock(layout, "small"):
        pass


def test_of_two_hosts_without_locks_one_keeps_a_run(tmp_path):
    path = without_flock(tmp_path / "site")
    for number in range(2):
        folder = Layout.at(tmp_path).run("s", f"r{number}")
        folder.path.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            race = python(RACE, folder.path)
            commands = [on_host(name, tmp_path / name, *race) for name in ("one", "two")]
            hosts = [
                stack.enter_context(started(one, path, stdin=subprocess.PIPE)) for one in commands
            ]
            for host in hosts:
                host.stdin.write("\n")
                host.stdin.flush()
            said = [host.stdout.readline().strip() for host in hosts]
        assert said.count("kept") == 1, said


@pytest.mark.component
def test_a_sweep_waits_for_the_run_of_another_host_and_then_does_it(tmp_path, prefect):
    (tmp_path / "small.yaml").write_text(SMALL)
    [run, _] = load_sweep(tmp_path / "small.yaml", {}, data_digest).runs
    layout = Layout.at(tmp_path / "data")
    folder = layout.run("small", run.folder)
    folder.path.mkdir(parents=True)
    log = tmp_path / "data.log"
    worker = python(WORKER, folder.path, tmp_path / "go")
    with started(on_host("gpu-node-7", tmp_path / "boot", *worker)):
        lease = folder.lease()
        sweep = start(
            tmp_path, "sweep", "small.yaml", "-w", "1", home=layout.home, module=TRIVIAL, **prefect
        )
        try:
            other = until(
                lambda: [
                    r for r in layout.run_folders("small") if r.name != folder.name and r.attempts()
                ],
                "the run that is free",
                lambda: sweep.poll() is not None,
            )[0]
            until(lambda: other.state() != "running" or sweep.poll() is not None, "its end")
            assert sweep.poll() is None, log.read_text()
            assert "running on gpu-node-7 since" in log.read_text()
            assert not folder.failed_path.exists()
            assert folder.lease()["birth"] == lease["birth"]
            (tmp_path / "go").touch()
            assert sweep.wait(HANG) == 0, log.read_text()
        finally:
            sweep.kill()
            sweep.wait()
    assert folder.done_path.exists()
    assert not folder.failed_path.exists()
