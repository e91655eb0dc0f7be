"""Who works on a run: `lease.json` {host, pid, pgid, started, heartbeat, birth}, and whether that process lives."""

import fcntl
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpg.processes import birth
from rpg.store.files import StoreError, atomic_write_json, read_json_object, readable

STALE_SECONDS = 120.0  # a lease of another host whose heartbeat is older than this is taken for dead


def claim(path: Path, pid: int | None = None, pgid: int | None = None) -> None:
    """Write the lease for this process (or for the child `pid`), unless another live process holds it.

    The check and the write are under one lock file, so that of two claims at once one gets a StoreError.
    """
    pid = pid or os.getpid()
    with readable("claim", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.parent / ".lease.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = read_lease(path)
            if held and held.get("pid") not in (pid, os.getpid()) and lease_alive(held):
                raise StoreError(
                    f"{path.parent} is being worked on by process {held.get('pid')} on {held.get('host')}: "
                    "stop it or wait for it"
                )
            atomic_write_json(path, lease_of(pid, pgid))


def lease_of(pid: int, pgid: int | None = None) -> dict[str, Any]:
    """A lease of a process of this host, from this moment on."""
    now = time.time()
    return {
        "host": socket.gethostname(),
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


def lease_alive(lease: Mapping[str, Any], now: float | None = None) -> bool:
    """Whether the process of a lease still lives: on this host by its pid, elsewhere by its heartbeat.

    Pids are reused, so a process that began after the lease was written is somebody else; a zombie is dead.
    """
    try:
        pid, started, heartbeat = int(lease["pid"]), float(lease["started"]), float(lease["heartbeat"])
    except (KeyError, TypeError, ValueError):
        return False
    if lease.get("host") != socket.gethostname():
        return (time.time() if now is None else now) - heartbeat < STALE_SECONDS
    if isinstance(lease.get("birth"), str):
        return birth(pid) == str(lease["birth"])
    import psutil  # only who asks about other processes needs it

    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= started + 2.0)
    except psutil.Error:
        return False
