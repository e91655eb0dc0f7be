"""Locks that cannot leak: `flock` on a file, which the kernel frees however its holder ends.

A lock belongs to an open file: a child that inherits the descriptor holds it too, until both are gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpg.store.files import StoreError, reason

PRIVATE, EVERYONE = 0o644, 0o666


class Lock:
    """A lock that is held until `close()` or the end of the process."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self.fd = path, fd

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def take(path: Path, note: Mapping[str, Any] | None = None, mode: int = PRIVATE) -> Lock | None:
    """The lock, with a note about its holder in the file; None when somebody else holds it. Never waits.

    Raises:
        StoreError: the file cannot be made or opened.
    """
    try:
        fd = _open(path, mode)
    except OSError as error:
        raise StoreError(f"cannot lock {path}: {reason(error)}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            return None
        raise StoreError(f"cannot lock {path}: {reason(error)}") from error
    with contextlib.suppress(OSError):  # a full disk: the lock counts, the note is for people
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), **(note or {})}).encode(), 0)
    return Lock(path, fd)


def held(path: Path) -> bool:
    """Whether somebody holds the lock at this moment."""
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


def note(path: Path) -> dict[str, Any]:
    """What the last holder wrote about itself; {} when that cannot be read."""
    try:
        value = json.loads(path.read_bytes()[:4096])
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _open(path: Path, mode: int) -> int:
    """Open for writing, creating it if need be; a symbolic link is refused.

    Without O_CREAT first: in a folder that everyone may write to, Linux forbids O_CREAT on a file of another user.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:  # made by another process in between
        return os.open(path, flags)
    os.fchmod(fd, mode)
    return fd
