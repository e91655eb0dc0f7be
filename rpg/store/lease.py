"""Who works on a run: `lease.json` {host, boot, pid_namespace, pid, pgid, started, heartbeat, birth}, and whether it lives.

Where process ids can be looked up (rpg.processes.is_here) a lease lives as long as its process. A lease of another
host, or of another container, lives as long as its heartbeat; such a lease is never removed from here.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpg.processes import birth, here, is_here
from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object, readable

STALE_SECONDS = 120.0
"""What works elsewhere and has not shown a heartbeat for so long is taken for dead."""


def claim(path: Path, pid: int | None = None, pgid: int | None = None) -> None:
    """Write the lease for this process (or for the child `pid`), unless another live process holds it.

    The check and the write are under one lock file, so that of two claims at once one gets a StoreError. Where file
    locks do not reach the other host, who wrote last has the lease, and the other ends at its next `beat`.
    """
    pid = pid or os.getpid()
    with readable("claim", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.parent / ".lease.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = holder(path)
            if held and not (is_here(held) and held.get("pid") in (pid, os.getpid())):
                raise StoreError(
                    f"{path.parent} is being worked on by process {held.get('pid')} {whereabouts(held)}: "
                    "stop it or wait for it"
                )
            atomic_write_json(path, lease_of(pid, pgid))


def beat(path: Path) -> bool:
    """Refresh the heartbeat of this process's lease; False when the lease is somebody else's by now."""
    lease = read_lease(path)
    if lease is None:
        return True
    if not is_own(lease):
        return False
    atomic_write_json(path, {**lease, "heartbeat": time.time()})
    return True


def release(path: Path) -> None:
    """Remove the lease, unless it is that of another process which lives, or which cannot be looked up from here."""
    lease = read_lease(path)
    if lease is None or is_own(lease) or (is_here(lease) and not lease_alive(lease)):
        with readable("remove", path):
            path.unlink(missing_ok=True)


def lease_of(pid: int, pgid: int | None = None) -> dict[str, Any]:
    """A lease of a process of this place, from this moment on."""
    now = time.time()
    return {
        **here(),
        "pid": pid,
        "pgid": os.getpgid(pid) if pgid is None else pgid,
        "started": now,
        "heartbeat": now,
        "birth": birth(pid),
    }


def read_lease(path: Path) -> dict[str, Any] | None:
    """The lease, or None when there is none (or it is unreadable: nobody can be traced by it)."""
    try:
        return read_json_object(path)
    except StoreError:
        return None


def is_own(lease: Mapping[str, Any]) -> bool:
    """Whether it is this very process's."""
    place = here()
    return lease.get("pid") == os.getpid() and all(
        lease.get(part, value) == value for part, value in place.items()
    )


def holder(path: Path) -> dict[str, Any] | None:
    """The lease when its process lives; for who is about to write: two hosts' clocks need not agree.

    The age of another host's lease is taken by the clock of the storage: its file against a file made now.
    """
    lease = read_lease(path)
    if lease is None:
        return None
    if is_here(lease):
        return lease if lease_alive(lease) else None
    try:
        return lease if storage_now(path.parent) - path.stat().st_mtime < STALE_SECONDS else None
    except FileNotFoundError:  # released meanwhile
        return None


def lease_alive(lease: Mapping[str, Any], now: float | None = None) -> bool:
    """Whether the process of a lease still lives: here by its pid, elsewhere by its heartbeat.

    Pids are reused, so a process that began after the lease was written is somebody else; a zombie is dead.
    """
    try:
        pid, started, heartbeat = int(lease["pid"]), float(lease["started"]), float(lease["heartbeat"])
    except (KeyError, TypeError, ValueError):
        return False
    if not is_here(lease):
        return (time.time() if now is None else now) - heartbeat < STALE_SECONDS
    if isinstance(lease.get("birth"), str):
        return birth(pid) == str(lease["birth"])
    import psutil  # only who asks about other processes needs it

    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= started + 2.0)
    except psutil.Error:
        return False


def whereabouts(lease: Mapping[str, Any]) -> str:
    """`on gpu-node-7 since 2026-03-01 14:03`."""
    place = f"on {lease.get('host')}"
    if not is_here(lease) and lease.get("host") == here()["host"]:
        place = (
            f"in another container {place}"
            if lease.get("boot") == here()["boot"]
            else f"{place} (another boot)"
        )
    try:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(lease["started"])))
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return place
    return f"{place} since {since}"


def storage_now(folder: Path) -> float:
    """What time it is for the file system that holds `folder`."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        return os.fstat(probe.fileno()).st_mtime
