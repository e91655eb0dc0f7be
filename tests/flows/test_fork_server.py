"""Forked children are like other children: output, exit codes, locks and ends; and without a fork
server all goes on."""

import fcntl
import os
import signal
import subprocess
import warnings

import pytest

from flows.machine import programs
from flows.machine.children import Children, Stopped
from rpg.system.fork_server import ForkServer
from rpg.system.processes import birth, owner_mark
from tests.tiny import make_run, make_spec
from tests.waiting import until


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory):
    """Takes as long to begin as torch to import: one for all tests that do not end it."""
    one = ForkServer(
        tmp_path_factory.mktemp("fork_server") / "log.txt", programs.FORKED, owner_mark()
    )
    yield one
    one.close()


@pytest.fixture
def busy(tmp_path):
    """The sweep of a run that somebody works on: an evaluator waits there until its input is
    closed."""
    return make_run(tmp_path, "one", make_spec()).path.parent


def test_a_child_has_its_log_its_exit_code_and_its_environment(fork_server, tmp_path):
    children = Children(fork_server)
    log = tmp_path / "log.txt"
    child = children.start(
        programs.TRAINER.format("local"), tmp_path / "none", log=log, extra={"RPG_X": "1"}
    )
    assert children.wait(child) == 2
    assert "expected a run's folder" in log.read_text()
    assert birth(child.pid) is None
    assert child.pid != os.getpid()


def test_a_child_waits_for_its_input_leads_a_session_and_holds_what_it_keeps(
    fork_server, busy, tmp_path
):
    children = Children(fork_server)
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    child = children.start(
        programs.EVALUATOR, busy, log=tmp_path / "log", stdin=subprocess.PIPE, keep=[lock]
    )
    os.close(lock)
    assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid
    assert child.poll() is None
    other = os.open(tmp_path / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    child.stdin.close()
    assert children.wait(child) == 0
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody else has kept it open
    os.close(other)


def test_a_fork_server_that_dies_takes_its_children_along_and_others_begin_without_it(
    busy, tmp_path
):
    own = ForkServer(tmp_path / "fork-server.txt", programs.FORKED, owner_mark())
    children = Children(own)
    child = children.start(programs.EVALUATOR, busy, log=tmp_path / "log", stdin=subprocess.PIPE)
    until(
        lambda: (busy / ".evaluator").exists()
    )  # it has begun: it dies with its parent from here on
    own.close()
    assert children.wait(child) == -signal.SIGKILL
    until(lambda: birth(child.pid) is None)
    without = children.start(
        programs.TRAINER.format("local"), tmp_path / "none", log=tmp_path / "log"
    )
    assert isinstance(without, subprocess.Popen)
    assert children.wait(without) == 2
    children.stop()
    with pytest.raises(Stopped):
        children.start(programs.EVALUATOR, busy, log=tmp_path / "log")
    with warnings.catch_warnings(
        action="error"
    ):  # the next sweep of this process finds nothing missing
        ForkServer(tmp_path / "fork-server.txt", {}, owner_mark()).close()
