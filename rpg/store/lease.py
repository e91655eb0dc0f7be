"""Which process works on a run, and whether it lives: `lease.json` {host, boot, pid_namespace, pid,
pgid, started, ...}.

If its process id can be looked up here (rpg.system.processes.is_here), a lease is valid as long as
its process lives. A lease of another host or container is valid as long as its heartbeat is recent;
it is never removed from here.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import StoreError, read_json_object
from rpg.store.locks import STALE_SECONDS, storage_now
from rpg.system.processes import birth, here, is_here


def new_lease() -> dict[str, Any]:
    """A new lease of this process."""
    now = time.time()
    pid = os.getpid()
    return {
        **here(),
        "pid": pid,
        "pgid": os.getpgrp(),
        "started": now,
        "heartbeat": now,
        "birth": birth(pid),
    }


def read_lease(path: Path) -> dict[str, Any] | None:
    """The lease; None if there is none or it is unreadable and so identifies no process."""
    try:
        return read_json_object(path)
    except StoreError:
        return None


def is_own(lease: Mapping[str, Any]) -> bool:
    """Whether it is the lease of this process."""
    same_place = all(lease.get(part, value) == value for part, value in here().items())
    return lease.get("pid") == os.getpid() and same_place


def holder(path: Path) -> dict[str, Any] | None:
    """The lease if its process lives; for a process about to write, since the clocks of two hosts
    may differ. The age of another host's lease is measured by the clock of the storage: its file
    against a file created now."""
    lease = read_lease(path)
    if lease is None:
        return None
    if is_here(lease):
        return lease if lease_alive(lease) else None
    try:
        return lease if storage_now(path.parent) - path.stat().st_mtime < STALE_SECONDS else None
    except FileNotFoundError:  # released in the meantime
        return None


def lease_alive(lease: Mapping[str, Any]) -> bool:
    """Whether the process of a lease still lives: here by its pid, elsewhere by its heartbeat. Pids
    are reused, so a process that began after the lease was written is another one; a zombie is
    dead."""
    try:
        pid = int(lease["pid"])
        started = float(lease["started"])
        heartbeat = float(lease["heartbeat"])
    except (KeyError, TypeError, ValueError):
        return False
    if not is_here(lease):
        return time.time() - heartbeat < STALE_SECONDS
    if isinstance(lease.get("birth"), str):
        return birth(pid) == str(lease["birth"])
    import psutil  # noqa: PLC0415 - slow to import, and needed only for leases without a birth time

    try:
        process = psutil.Process(pid)
        return bool(
            process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= started + 2.0
        )
    except psutil.Error:
        return False
