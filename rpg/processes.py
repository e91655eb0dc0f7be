"""Processes of this machine: which one a process is, and children that end when their parent does, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OWNER = "RPG_OWNED_BY"  # not RPG_OWNER, by which older versions end what they cannot read
BUSY = 75
"""Exit code of a process that finds another one at the same work."""
PARENT = "RPG_PARENT"
"""In the environment of a child until it has called `die_with_parent`: the id of the process that started it."""


def python_module(module: str, *arguments: object) -> list[str]:
    """The command `python -m module arguments` for a child that imports what this process would import.

    `-m` alone also looks in the current folder, and first: somebody's own folder `flows` there would be taken for
    ours. `-P` leaves that folder out.
    """
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """For imports of large packages: no garbage is collected meanwhile.

    Imports make hundreds of thousands of objects that stay; looking through them was a seventh of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def collect_seldom() -> None:
    """For a process that imports large packages and lives on: garbage is looked for a hundred times less often."""
    gc.set_threshold(100_000, 50, 10)


def birth(pid: int) -> str | None:
    """When a process began, by the machine's own count since its start; None when it is dead (or without /proc).

    With the process id this names a process of this place for good: ids are reused, and the clock on the wall may
    jump. Of other places (`is_here`) it says nothing.
    """
    name = (
        "self" if pid == os.getpid() else pid
    )  # /proc may show another namespace, where our id is somebody else's
    try:
        fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else f"{_boot()}/{fields[19]}"
    except OSError:
        return None


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""


def here() -> dict[str, str]:
    """Where this process runs, as it is written beside every process id: {"host", "boot", "pid_namespace"}.

    A process id means something only within its PID namespace (a container has one of its own) of one boot of one
    machine; a container's host name may be that of its machine, and two machines may bear the same name.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return {"host": socket.gethostname(), "boot": _boot(), "pid_namespace": namespace}


def is_here(note: Mapping[str, object]) -> bool:
    """Whether the process ids in this note can be looked up from here.

    A note of an older version, which knows its host only, is taken at its word.
    """
    place = here()
    return (
        note.get("host") == place["host"]
        and _proc_is_ours()
        and all(note.get(part, value) == value for part, value in place.items())
    )


def _proc_is_ours() -> bool:
    """False in a PID namespace that still sees its parent's /proc: there an id in /proc is not ours to use."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return not Path("/proc/1").exists()  # a system without /proc has no PID namespaces either


def die_with_parent(how: int = signal.SIGKILL) -> None:
    """Make this process end when the one that started it dies, `kill -9` included. Call first thing in a child.

    Linux delivers a signal (prctl PR_SET_PDEATHSIG); elsewhere a thread watches the parent's process id. The signal
    follows the parent's *thread* that started the child, so that thread must outlive the child. A parent that died
    before the call is noticed by `parent_mark` alone: until Python is up a child is long since somebody else's.
    """
    parent = int(os.environ.pop(PARENT, 0)) or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
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


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_GIVEN_BACK = 2**20
"""Bytes of an allocation that is returned to the system as soon as it is freed."""


def give_memory_back() -> None:
    """Make this process return what it frees to the system at once, where the C library is glibc.

    By itself glibc keeps pieces of up to 32 MiB for later: as much again as a training needs may lie there in fragments.
    """
    _mallopt({_M_MMAP_MAX: 2**16, _M_MMAP_THRESHOLD: _GIVEN_BACK, _M_TRIM_THRESHOLD: _GIVEN_BACK})


def keep_memory() -> None:
    """Make this process keep what it frees for what it asks for next, where the C library is glibc.

    By itself glibc returns pieces of more than 32 MiB, and a training step asks for the same gigabytes again: the system
    has to find and clear every page of them anew.
    """
    _mallopt({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1})


def _mallopt(settings: Mapping[int, int]) -> None:
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in settings.items():
            mallopt(name, value)


def stdin_closed() -> bool:
    """Whether the other end of standard input was closed; what it may send is thrown away."""
    while select.select([0], [], [], 0)[0]:
        if not os.read(0, 4096):
            return True
    return False


def owner_mark() -> dict[str, str]:
    """The same, and a mark on all its descendants that they are ours for as long as this process lives."""
    return {_OWNER: _own_mark(), **parent_mark()}


def _own_mark() -> str:
    return f"{os.getpid()} {birth(os.getpid())} {here()['pid_namespace']}"


def end_orphans() -> list[int]:
    """Kill this user's processes whose marked owner is gone; returns their ids.

    For grandchildren that outlive a `kill -9` because they do not call `die_with_parent`, such as Ray's. A process
    without the mark is never touched, nor one whose owner lived in another PID namespace: whether that owner is gone
    cannot be seen from here, and it ends with its container.
    """
    namespace = here()["pid_namespace"]
    found = []
    for pid, mark in _marked():
        owner, _, rest = mark.partition(" ")
        born, _, theirs = rest.partition(" ")
        if owner.isdigit() and theirs == namespace and birth(int(owner)) != born and _kill(pid):
            found.append(pid)
    return found


def end_descendants() -> list[int]:
    """Kill every process that carries this one's mark, also those that left their process group; returns their ids."""
    ours = _own_mark()
    return [pid for pid, mark in _marked() if mark == ours and _kill(pid)]


def _marked() -> Iterator[tuple[int, str]]:
    """(process, mark of its owner) of this user's processes that carry a mark, but this one."""
    if not _proc_is_ours():
        return
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            marks = [
                part for part in path.read_bytes().split(b"\0") if part.startswith(_OWNER.encode() + b"=")
            ]
        except OSError:  # another user's, or gone
            continue
        pid = int(path.parent.name)
        if marks and pid != os.getpid():
            yield pid, marks[-1].decode(errors="replace").partition("=")[2]


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
