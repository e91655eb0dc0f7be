"""A group works in one folder: two real users, one setgid folder, umask 002; and umask 077 keeps
files to their owner."""

import grp
import os
import struct
import traceback

import pyarrow.parquet  # noqa: F401 - before the user changes: another one may not be able to read this environment
import pytest

import rpg.answers  # noqa: F401 - for the same reason: the database counts votes with it
from flows.monitor import Watch
from flows.sweep.conductor import sweep_lock
from flows.sweep.sharing import Claims, take_over
from rpg.store import Layout, atomic_write_json, locks
from rpg.store.database import build, connect
from rpg.store.gc import garbage
from rpg.store.locks import only_one
from rpg.store.run_writer import (
    append_metrics,
    claim_run,
    clear_waiting,
    renew_lease,
    write_done,
    write_failed,
    write_manifest,
    write_waiting,
)
from rpg.store.samples import write_eval
from rpg.tasks.preparation import once

ANNA = 60001
BORIS = 60002
GROUP = 60100
ROW = {
    "problem_id": "p",
    "sample": 0,
    "problem": "1+1",
    "answer": "2",
    "response": "2",
    "extracted": "2",
    "correct": True,
    "reason": "",
    "tokens": 1,
    "truncated": False,
}
NOBODY = 0xFFFFFFFF  # in an entry of an ACL that is about no named user
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")


def as_user(user, umask, work, *arguments):
    """Run `work` in a process of that user; its traceback, or ''."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        said = ""
        try:
            os.setgroups([GROUP])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.umask(umask)
            work(*arguments)
        except BaseException:  # noqa: BLE001 (whatever it is goes to the parent)
            said = traceback.format_exc()
        os.write(write, said.encode()[-4000:])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def work(home, sweep, attempt):
    """What a sweep does to a data folder, from lock to evaluation."""
    layout = Layout(home)
    folder = layout.run(sweep, "r-s0-01234567")
    with sweep_lock(layout, sweep), only_one(layout.sweep_folder(sweep) / ".evaluator", "x"):
        write_manifest(
            folder,
            {
                "run_id": "0123456789",
                "variant": "v",
                "algorithm": "grpo",
                "seed": 0,
                "spec": {},
                "created": 0,
                "steps": 1,
                "eval_steps": [1],
                "benchmarks": ["b"],
            },
        )
        claims = Claims(layout)
        assert claims.take(folder)
        claim_run(folder)
        append_metrics(folder, 1, {"step": attempt})  # the same file, whoever began it
        renew_lease(folder)
        write_waiting(folder, "x")
        clear_waiting(folder)
        folder.checkpoint(attempt).mkdir(parents=True)
        atomic_write_json(folder.checkpoint(attempt) / "checkpoint.json", {})
        write_eval(folder, "b", attempt, [ROW])
        write_failed(folder, "on purpose")
        claim_run(folder)
        write_done(folder, seconds=1, attempts=1)
        claims.close()
    with once(home / "cache" / f"{sweep}-{attempt}") as build:
        (build / "file").write_text("x")
    lock = locks.take(home / "serve.lock", beat=True)
    lock.close()


def share(home):
    """Take a run over that somebody else of the group has computed."""
    source, folder = (Layout(home).run(sweep, "r-s0-01234567") for sweep in ("both", "other"))
    write_manifest(folder, {**source.read_manifest(), "sweep": "other"})
    take_over(folder, source)


def look(home):
    """What a user sees of a sweep that is closed to him, beside one that is open."""
    layout = Layout(home)
    build(layout)
    with connect(layout) as db:
        assert db.execute("SELECT sweep FROM runs").fetchall() == [("open",)]
        [[why]] = db.execute("SELECT message FROM warnings WHERE sweep = 'mine'").fetchall()
    assert why.endswith("permission denied")
    assert not garbage(layout)


def look_at_closed_run(home):
    """What a user sees of a run that is closed to him, in a sweep that is open, beside another."""
    layout = Layout(home)
    build(layout)
    with connect(layout) as db:
        states = db.execute("SELECT sweep, state FROM runs ORDER BY sweep").fetchall()
        named = db.execute(
            "SELECT sweep FROM warnings WHERE message LIKE '%permission denied'"
        ).fetchall()
    assert states == [("half", "unreadable"), ("open", "done")]
    assert named == [("half",)]
    assert not garbage(layout)


def watch_closed_run(home):
    [view] = Watch(Layout(home).run_folders("half")).views()
    assert view.state == "unreadable"
    assert "permission denied" in view.error


def find_run_beside_closed_one(home):
    """Another sweep plans the run that `open` has computed, and `half`, too, where none may
    look."""
    layout = Layout(home)
    planned = layout.run("copy", "r-s0-01234567")
    write_manifest(planned, layout.run("open", "r-s0-01234567").read_manifest())
    assert Claims(layout).duplicate(planned).sweep == "open"


@pytest.fixture
def closed_run(shared):
    """Anna has computed two runs and closed the folder of one of them."""
    assert as_user(ANNA, 0o002, work, shared, "open", 1) == ""
    assert as_user(ANNA, 0o002, work, shared, "half", 1) == ""
    (shared / "runs" / "half" / "r-s0-01234567").chmod(0o700)
    return shared


@root_only
@pytest.mark.parametrize(
    "look_by_boris", [look_at_closed_run, watch_closed_run, find_run_beside_closed_one]
)
def test_a_closed_run_is_named_and_stops_nothing(closed_run, look_by_boris):
    assert as_user(BORIS, 0o002, look_by_boris, closed_run) == ""


@pytest.fixture
def shared(tmp_path):
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        if os.stat(folder).st_mode & 0o011 != 0o011:
            folder.chmod(0o755)
    home = tmp_path / "data"
    home.mkdir()
    os.chown(home, ANNA, GROUP)
    home.chmod(0o2775)
    return home


@root_only
def test_two_users_of_a_group_work_in_one_folder(shared):
    assert GROUP not in {g.gr_gid for g in grp.getgrall()}
    assert as_user(ANNA, 0o002, work, shared, "both", 1) == ""
    assert as_user(BORIS, 0o002, work, shared, "both", 2) == ""
    assert as_user(ANNA, 0o002, work, shared, "both", 3) == ""
    assert as_user(BORIS, 0o002, share, shared) == ""
    paths = list(shared.rglob("*"))
    assert {p.stat().st_uid for p in paths} == {ANNA, BORIS}
    assert {p.stat().st_gid for p in paths} == {GROUP}
    closed = [p for p in paths if p.stat().st_mode & 0o060 != 0o060]
    assert not closed, "the group reads and writes all of it"
    assert not [p for p in paths if p.is_dir() and not p.stat().st_mode & 0o2000], (
        "and of what comes into it"
    )
    stranger = as_user(60003, 0o002, lambda: os.setgroups([]))
    assert "PermissionError" in stranger


@root_only
def test_umask_077_keeps_a_sweep_to_its_owner_and_stops_nobody_and_022_shows_files(shared):
    assert as_user(ANNA, 0o022, atomic_write_json, shared / "x.json", {}) == ""
    assert (shared / "x.json").stat().st_mode & 0o777 == 0o644
    assert as_user(ANNA, 0o002, work, shared, "open", 1) == ""
    before = {*shared.rglob("*")}
    assert as_user(ANNA, 0o077, work, shared, "mine", 1) == ""
    assert not [p for p in {*shared.rglob("*")} - before if p.stat().st_mode & 0o077]
    refused = as_user(BORIS, 0o002, work, shared, "mine", 2)
    assert "StoreError" in refused
    assert "permission denied" in refused
    assert as_user(BORIS, 0o002, look, shared) == ""


@root_only
def test_an_acl_opens_a_folder_to_one_more_user_whatever_the_umask(shared):
    """As `setfacl -m u:boris:rwx -d -m u:boris:rwx data` leaves it: nobody's group, and a umask of
    077."""
    os.chown(shared, ANNA, ANNA)
    shared.chmod(0o700)
    entries = [(1, 7, NOBODY), (2, 7, BORIS), (4, 0, NOBODY), (16, 7, NOBODY), (32, 0, NOBODY)]
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *entry) for entry in entries
    )  # linux/posix_acl_xattr.h
    try:
        for kind in ("access", "default"):
            os.setxattr(shared, f"system.posix_acl_{kind}", acl)
    except OSError as error:
        pytest.skip(f"no ACLs on this file system: {error.strerror}")
    assert as_user(ANNA, 0o077, work, shared, "both", 1) == ""
    assert as_user(BORIS, 0o077, work, shared, "both", 2) == ""
    assert as_user(ANNA, 0o077, work, shared, "both", 3) == ""
    assert as_user(BORIS, 0o077, share, shared) == ""
    assert "PermissionError" in as_user(60003, 0o002, os.listdir, shared), "and to nobody else"
