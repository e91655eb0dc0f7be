"""Locks that cannot leak: `flock` on a file, which the kernel releases however its holder ends.

A lock belongs to an open file: a child that inherits the descriptor holds it too, until both are
gone. That suffices on one machine, containers included. On shared storage whose locks do not reach
other hosts, a lock taken with `beat=True` is seen there by the heartbeat in its note.
"""

import contextlib
import fcntl
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import StoreError, readable
from rpg.system.processes import here, is_here

PRIVATE = None
EVERYONE = 0o666
"""Permissions of a lock file: as umask and folder set them; or writable by every user of the
machine."""
BEAT_SECONDS = 5.0
STALE_SECONDS = 120.0
"""A process elsewhere counts as dead if its heartbeat is older than this."""


class Busy(StoreError):
    """Another process is working on these files."""


class Lock(contextlib.AbstractContextManager["Lock"]):
    """A lock, held until `close()` or the end of the process."""

    def __init__(self, path: Path, fd: int, note: Mapping[str, Any], beat: bool = False) -> None:
        self.path = path
        self.fd = fd
        self._note = note
        self._over = threading.Event()
        self._beat: threading.Thread | None = None
        self._write()
        if beat:
            self._beat = threading.Thread(
                target=self._keep, daemon=True, name=f"heartbeat of {path.name}"
            )
            self._beat.start()

    def close(self) -> None:
        self._over.set()
        if self._beat:
            self._beat.join()
            self._beat = None
            with contextlib.suppress(OSError):
                os.ftruncate(
                    self.fd, 0
                )  # so that no other host waits for the heartbeat to become stale
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _keep(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the lock works without its note
            data = json.dumps({**self._note, "heartbeat": time.time()}).encode()
            os.pwrite(self.fd, data, 0)
            os.ftruncate(self.fd, len(data))

    def __exit__(self, *_: object) -> None:
        self.close()


def take(
    path: Path,
    note: Mapping[str, Any] | None = None,
    mode: int | None = PRIVATE,
    beat: bool = False,
) -> Lock | None:
    """The lock, with a note about its holder in the file; None if another process holds it. Never
    waits.

    With `beat`, also None if the note of another machine has a heartbeat younger than
    STALE_SECONDS. Raises StoreError: the file cannot be made or opened.
    """
    try:
        fd = _locked(path, mode, fcntl.LOCK_NB)
    except Busy:
        return None
    if beat and _beats_elsewhere(path, fd):
        os.close(fd)
        return None
    about = {"user": user(), "pid": os.getpid(), **here(), "started": time.time()}
    return Lock(path, fd, {**about, **(note or {})}, beat)


def user() -> str:
    """The name of this user, or the number of one without a name."""
    return os.environ.get("USER") or str(os.getuid())


@contextlib.contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Hold the lock `path` for the block. Raises Busy: "`what` by process 123" already."""
    lock = take(path)
    if lock is None:
        raise Busy(f"{what} by {who(path)}")
    with lock:
        yield


@contextlib.contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Hold the lock `path` for the block, after those of this machine who have it. Raises
    StoreError: as `take`."""
    fd = _locked(path, PRIVATE)
    try:
        yield
    finally:
        os.close(fd)


def _locked(path: Path, mode: int | None, how: int = 0) -> int:
    """The open file, whose lock this process has. Raises Busy: another has it and `how` is LOCK_NB;
    else waits for it."""
    with readable("lock", path):
        fd = _open(path, mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | how)
        except OSError as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                raise Busy(str(path)) from None
            raise
        return fd


def _beats_elsewhere(path: Path, fd: int) -> bool:
    if not other_machine(note(path)):
        return False
    with readable("lock", path):
        return storage_now(path.parent) - os.fstat(fd).st_mtime < STALE_SECONDS


def other_machine(note: Mapping[str, Any]) -> bool:
    """Whether a holder is on a machine whose locks this machine's kernel may not see."""
    place = here()
    other_host = note.get("host", place["host"]) != place["host"]
    return bool(note) and other_host and note.get("boot") != place["boot"]


def who(path: Path) -> str:
    """`process 4711`, with host and time if it is on another host; for messages."""
    holder = note(path)
    process = f"process {holder.get('pid', '?')}"
    elsewhere = holder.get("host", here()["host"]) != here()["host"]
    return f"{process} {whereabouts(holder)}" if elsewhere else process


def held(path: Path) -> bool:
    """Whether a process holds the lock at this moment."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def alive(path: Path) -> bool:
    """Whether the holder of a lock taken with `beat=True` lives, even on a machine whose locks are
    not visible here."""
    try:
        young = storage_now(path.parent) - path.stat().st_mtime < STALE_SECONDS
    except OSError:  # never taken, or just removed
        return False
    return held(path) or (young and other_machine(note(path)))


def note(path: Path) -> dict[str, Any]:
    """What the last holder wrote about itself; {} if that cannot be read."""
    try:
        value = json.loads(path.read_bytes()[:4096])
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _open(path: Path, mode: int | None) -> int:
    """Open for writing, creating it if necessary; a symbolic link is refused. Without O_CREAT
    first: in a folder that everyone may write to, Linux forbids O_CREAT on a file of another user.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:  # made by another process in between
        return os.open(path, flags)
    if mode is not None:
        os.fchmod(fd, mode)
    return fd


def whereabouts(note: Mapping[str, Any]) -> str:
    """`on gpu-node-7 since 2026-03-01 14:03`."""
    place = f"on {note.get('host')}"
    if not is_here(note) and note.get("host") == here()["host"]:
        same_boot = note.get("boot") == here()["boot"]
        place = f"in another container {place}" if same_boot else f"{place} (another boot)"
    try:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(note["started"])))
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return place
    return f"{place} since {since}"


def storage_now(folder: Path) -> float:
    """The current time by the clock of the file system of `folder`."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        return os.fstat(probe.fileno()).st_mtime
