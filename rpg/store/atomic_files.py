"""Files that are complete or absent: everything is written to a temporary file, flushed to disk and
renamed into place.

A reader never sees half a file, and a kill at any moment leaves the previous one. Only an append
(metrics) can be torn, and its reader expects that.
"""

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rpg.errors import UserError

_REASONS = {
    errno.ENOSPC: "no space left on the device; free some and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "no such file or directory",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder",
}


class StoreError(UserError):
    """One line that says which file of the store has a problem, and which."""


def reason(error: OSError) -> str:
    return _REASONS.get(error.errno or 0, error.strerror or str(error))


@contextlib.contextmanager
def readable(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError in the block into a StoreError: "cannot write PATH: no space left ..."."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {action} {path}: {reason(error)}") from error


def write_all(fd: int, data: bytes) -> None:
    """os.write until all of it is written; a full disk surfaces as OSError(ENOSPC) on the next
    call."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success fsync it and rename it to `path`, else
    remove it. The temporary name starts with a dot, so that patterns such as `step-*.parquet` never
    match it."""
    path = Path(path)
    with readable("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = aside(path)
        # Mode 0666 less the umask, or what the folder's default ACL says: tempfile would make it
        # the owner's alone.
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        try:
            yield temporary
            with open(temporary, "rb") as handle:
                os.fsync(handle.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_folder(path.parent)


def link(source: Path, target: Path) -> None:
    """A hard link to a file that never changes, or a copy if the file system has no hard links;
    nothing if the target is already there. Raises FileNotFoundError: the source has been removed.
    """
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except FileExistsError:
        return
    except OSError:
        with atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)


def aside(path: Path) -> Path:
    """An unused name beside `path` that no pattern matches."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`, with the permissions that umask, setgid and ACL give there;
    on success flush it and rename it to `path`, where nothing or an empty folder may be, else
    remove it."""
    with readable("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        build = aside(path)
        build.mkdir()
        try:
            yield build
            fsync_tree(build)
            build.replace(path)
        finally:
            shutil.rmtree(build, ignore_errors=True)
        fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power failure (some network file systems cannot: not an
    error)."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def fsync_tree(folder: Path) -> None:
    """Flush every file and folder below `folder` to disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(root, name), "rb") as handle:
                os.fsync(handle.fileno())
        fsync_folder(Path(root))


def atomic_write_bytes(path: Path, data: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def atomic_write_text(path: Path, text: str) -> None:
    atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_json(path: Path, value: Any) -> None:
    atomic_write_text(path, json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n")


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; StoreError names the file when it is missing, torn or not an
    object."""
    with readable("read", path):
        data = Path(path).read_bytes()
    try:
        value = json.loads(data)
    except ValueError as error:  # also a UnicodeDecodeError
        raise StoreError(f"cannot read {path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise StoreError(
            f"cannot read {path}: expected a JSON object, found a {type(value).__name__}"
        )
    return value
