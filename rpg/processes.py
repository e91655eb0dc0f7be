"""Processes of this machine: which one a process is, and children that end when their parent does, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OWNER = "RPG_OWNER"
PARENT = "RPG_PARENT"
"""In the environment of a child until it has called `die_with_parent`: the id of the process that started it."""


def python_module(module: str, *arguments: object) -> list[str]:
    """The command `python -m module arguments` for a child that imports what this process would import.

    `-m` alone also looks in the current folder, and first: somebody's own folder `flows` there would be taken for
    ours. `-P` leaves that folder out.
    """
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def birth(pid: int) -> str | None:
    """When a process began, by the machine's own count since its start; None when it is dead (or without /proc).

    With the process id this names a process for good: ids are reused, and the clock on the wall may jump.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else f"{_boot()}/{fields[19]}"
    except OSError:
        return None


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def die_with_parent() -> None:
    """Make this process end when the one that started it dies, `kill -9` included. Call first thing in a child.

    Linux delivers a signal (prctl PR_SET_PDEATHSIG); elsewhere a thread watches the parent's process id. The signal
    follows the parent's *thread* that started the child, so that thread must outlive the child. A parent that died
    before the call is noticed by `parent_mark` alone: until Python is up a child is long since somebody else's.
    """
    parent = int(os.environ.pop(PARENT, 0)) or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(143)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(143)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


def parent_mark() -> dict[str, str]:
    """For the environment of a child that calls `die_with_parent`."""
    return {PARENT: str(os.getpid())}


def owner_mark() -> dict[str, str]:
    """The same, and a mark on all its descendants that they are ours for as long as this process lives."""
    return {_OWNER: f"{os.getpid()} {birth(os.getpid())}", **parent_mark()}


def end_orphans() -> list[int]:
    """Kill this user's processes whose marked owner is gone; returns their ids.

    For grandchildren that outlive a `kill -9` because they do not call `die_with_parent`, such as Ray's. A process
    without the mark is never touched.
    """
    return [pid for pid, owner, born in _marked() if birth(owner) != born and _kill(pid)]


def end_descendants() -> list[int]:
    """Kill every process that carries this one's mark, also those that left their process group; returns their ids."""
    return [pid for pid, owner, _ in _marked() if owner == os.getpid() and _kill(pid)]


def _marked() -> Iterator[tuple[int, int, str]]:
    """(process, owner's id, owner's birth) of this user's processes that carry a mark, but this one."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            marks = [
                part for part in path.read_bytes().split(b"\0") if part.startswith(_OWNER.encode() + b"=")
            ]
        except OSError:  # another user's, or gone
            continue
        pid = int(path.parent.name)
        owner, _, born = (
            marks[-1].decode(errors="replace").partition("=")[2].partition(" ") if marks else ("", "", "")
        )
        if owner.isdigit() and pid != os.getpid():
            yield pid, int(owner), born


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
