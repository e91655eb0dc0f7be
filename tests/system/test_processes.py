"""Children end with the sweep: on stop, with their whole group, and when the sweep itself is
killed."""

import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from flows.machine.children import Children, Stopped
from rpg.system.processes import PARENT, parent_mark
from tests.waiting import HANG, until


def gone(pid):
    dead = psutil.STATUS_ZOMBIE
    return until(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == dead, "its end"
    )


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that ignores SIGTERM and starts two grandchildren, one in a session of its own; it
    writes all ids."""
    (tmp_path / "stubborn.py").write_text(
        textwrap.dedent("""
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
        grandchild = subprocess.Popen(sleeps)
        away = subprocess.Popen(sleeps, start_new_session=True)
        with open(sys.argv[1] + ".part", "w") as f:
            f.write(f"{os.getpid()} {grandchild.pid} {away.pid}")
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(600)
    """)
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "stubborn"


def pids(path):
    until(path.exists, "the ids of the child")
    return [int(p) for p in path.read_text().split()]


def test_stop_ends_the_whole_group_even_if_it_ignores_sigterm(tmp_path, module, monkeypatch):
    monkeypatch.setattr("flows.machine.children.GRACE_SECONDS", 0.3)
    children = Children()
    child = children.start(module, tmp_path / "ids", log=tmp_path / "log")
    family = pids(tmp_path / "ids")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(children.wait, child)
        children.stop()
        with pytest.raises(Stopped):
            waiting.result(HANG)
    assert all(gone(pid) for pid in family)
    with pytest.raises(Stopped):
        children.start(module, tmp_path / "ids2", log=tmp_path / "log")


def test_grandchildren_of_a_child_that_crashed_end_too(tmp_path, module):
    children = Children()
    child = children.start(module, tmp_path / "ids", log=tmp_path / "log")
    parent, grandchild, away = pids(tmp_path / "ids")
    os.kill(parent, signal.SIGKILL)
    assert children.wait(child) == -9
    assert gone(grandchild)
    assert psutil.pid_exists(away)
    children.stop()
    assert gone(away)


def test_guarded_child_dies_when_its_parent_is_killed(tmp_path):
    child = (
        "from rpg.system.processes import die_with_parent as go; go(); "
        "import time; print('up', flush=True); time.sleep(600)"
    )
    parent_code = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', "
        f"{child!r}], start_new_session=True, "
        "stdout=subprocess.PIPE); p.stdout.readline(); print(p.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True
    )
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait()
    assert gone(pid)


def test_a_child_whose_parent_died_before_python_was_up_ends_at_once(tmp_path):
    """It is somebody else's child by then, so only what it was told says whose it was."""
    gone_parent = subprocess.Popen([sys.executable, "-c", ""])
    gone_parent.wait()
    code = "from rpg.system.processes import die_with_parent; die_with_parent(); print('lives')"
    child = [sys.executable, "-c", code]
    late = {**os.environ, PARENT: str(gone_parent.pid)}
    done = subprocess.run(child, env=late, capture_output=True, text=True)
    assert done.returncode == 143
    assert done.stdout == ""
    in_time = {**os.environ, **parent_mark()}
    assert subprocess.run(child, env=in_time, capture_output=True, text=True).stdout == "lives\n"
