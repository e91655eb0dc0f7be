"""A training for which the disk has no room is held back and says so, in the live table and in `rpg status`."""

import threading
from collections import namedtuple

import pytest

from flows import space
from flows.context import Context
from flows.live import Watch
from flows.processes import Children, Stopped
from flows.sharing import Claims
from flows.slots import machine
from rpg.store import Layout
from tests.tiny import make_run, make_spec
from tests.waiting import until

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def context(tmp_path):
    return Context(Children(), None, machine(), Claims(Layout.at(tmp_path)))


@pytest.fixture
def free(monkeypatch):
    """Bytes that are free, as the disk says."""
    now = {"free": 0.0}
    monkeypatch.setattr(space.shutil, "disk_usage", lambda path: Usage(0, 0, now["free"]))
    monkeypatch.setattr(space, "LOOK_SECONDS", 0.01)
    return now


def test_it_waits_says_why_and_goes_on_by_itself(tmp_path, context, free):
    folder = make_run(tmp_path, "one", make_spec())
    began = threading.Event()

    def training():
        with space.room(folder, context):
            began.set()

    free["free"] = space.needed(folder) / 2
    thread = threading.Thread(target=training, daemon=True)
    thread.start()
    until(folder.waiting, "the run says what it waits for")
    [view] = Watch([folder]).views()
    assert view.state == "queued" and view.error.startswith("waits for disk space: 0 MB free, ")
    assert "rpg gc" in view.error and not began.is_set()
    free["free"] = 2 * space.needed(folder)
    thread.join()
    assert began.is_set() and folder.waiting() is None and not context.writing


def test_what_those_that_train_will_write_is_theirs(tmp_path, context, free):
    one, two = (make_run(tmp_path, name, make_spec()) for name in ("one", "two"))
    free["free"] = 1.5 * space.needed(one)
    with space.room(one, context):
        why = space._begin(two, space.needed(two), context)
        assert "MB of it for runs that train now" in why
    with space.room(two, context):
        assert list(context.writing) == [two]


def test_a_sweep_that_is_stopped_does_not_wait_on(tmp_path, context, free):
    folder = make_run(tmp_path, "one", make_spec())
    context.children.stopping.set()
    with pytest.raises(Stopped), space.room(folder, context):
        raise AssertionError("there is no room")


def test_a_training_may_end_while_another_one_adds_up(tmp_path, context, free, monkeypatch):
    one, two, three = (make_run(tmp_path, name, make_spec()) for name in ("one", "two", "three"))
    free["free"] = 9 * space.needed(one)
    over, looked = threading.Event(), threading.Event()

    def training(folder):
        with space.room(folder, context):
            over.wait()

    threads = [threading.Thread(target=training, args=(folder,), daemon=True) for folder in (one, two)]
    for thread in threads:
        thread.start()
    until(lambda: len(context.writing) == 2, "both train")

    def slow(path):
        if path != three.path:
            looked.set()
            over.set()
            for thread in threads:
                thread.join(0.2)  # as far as it comes
        return 0

    monkeypatch.setattr(space, "size", slow)
    assert space._begin(three, space.needed(three), context) is None and looked.is_set()
    for thread in threads:
        thread.join()
    assert list(context.writing) == [three]
