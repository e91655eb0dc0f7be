"""A training for which the disk has no room is held back and says so, in the live table and in `rpg
status`."""

import threading
from collections import namedtuple

import pytest
from rich.console import Console

from flows.machine import disk_space
from flows.machine.children import Stopped
from flows.machine.disk_space import DiskSpace, bytes_needed
from flows.monitor import Watch, table
from rpg.store import StoreError
from tests.tiny import make_run, make_spec
from tests.waiting import until

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def free(monkeypatch):
    """Bytes that are free, as the disk says."""
    now = {"free": 0.0}
    monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda path: Usage(0, 0, now["free"]))
    monkeypatch.setattr(disk_space, "POLL_SECONDS", 0.01)
    return now


def test_it_waits_says_why_and_goes_on_by_itself(tmp_path, free):
    disk = DiskSpace()
    folder = make_run(tmp_path, "one", make_spec())
    began = threading.Event()

    def training():
        with disk.reserve(folder, threading.Event()):
            began.set()

    free["free"] = bytes_needed(folder) / 2
    thread = threading.Thread(target=training, daemon=True)
    thread.start()
    until(folder.waiting, "the run says what it waits for")
    [view] = Watch([folder]).views()
    assert view.state == "queued"
    assert view.error.startswith("waits for disk space: 0 MB free, ")
    with (terminal := Console(width=80)).capture() as shown:
        terminal.print(table([view, view]))
    assert " queued " in shown.get() and " 0/3 " in shown.get(), (
        "beside a line longer than the terminal"
    )
    assert " ".join(shown.get().split()).endswith(f"one seed 0, one seed 0: {view.error}")
    assert "rpg gc" in view.error
    assert not began.is_set()
    free["free"] = 2 * bytes_needed(folder)
    thread.join()
    assert began.is_set()
    assert not disk.reserved


def test_it_waits_though_the_disk_has_no_room_to_say_so(tmp_path, free, monkeypatch):
    def full(folder, why):
        free["free"] = 9 * bytes_needed(folder)
        raise StoreError(f"cannot write {folder.path}: no space left on the device")

    monkeypatch.setattr(disk_space, "write_waiting", full)
    folder = make_run(tmp_path, "one", make_spec())
    with DiskSpace().reserve(folder, threading.Event()):
        assert free["free"], "it has waited"


def test_what_those_that_train_will_write_is_theirs_and_a_sweep_that_is_stopped_does_not_wait(
    tmp_path, free
):
    disk = DiskSpace()
    stopping = threading.Event()
    stopping.set()
    one, two = (make_run(tmp_path, name, make_spec()) for name in ("one", "two"))
    free["free"] = 1.5 * bytes_needed(one)
    with disk.reserve(one, threading.Event()):
        why = disk.take(two, bytes_needed(two))
        assert "MB of it reserved for running trainings" in why
        with pytest.raises(Stopped), disk.reserve(two, stopping):
            raise AssertionError("there is no room")
    with disk.reserve(two, threading.Event()):
        assert list(disk.reserved) == [two]
