"""Writing the files of a run's folder, each whole or not at all; metrics alone are appended.
RunFolder reads them."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rpg.store import lease as leases
from rpg.store.atomic_files import StoreError, atomic_write_json, readable, write_all
from rpg.store.file_records import DIGEST, digest_of, records_of
from rpg.store.locks import in_turn, whereabouts
from rpg.store.run_folder import FORMAT, MANIFEST_FIELDS, RunFolder, is_step
from rpg.system.processes import is_here


def write_manifest(folder: RunFolder, manifest: Mapping[str, Any]) -> None:
    value = {"format": FORMAT, "sweep": folder.sweep, "run": folder.name, **manifest}
    missing = [field for field in MANIFEST_FIELDS if field not in value]
    if missing:
        raise StoreError(f"cannot write {folder.manifest_path}: missing {', '.join(missing)}")
    # As JSON has it: names of fields are texts there, and tuples are lists.
    fields = json.loads(json.dumps(value, default=str))
    atomic_write_json(folder.manifest_path, {**fields, DIGEST: digest_of(fields)})


def append_metrics(folder: RunFolder, attempt: int, record: Mapping[str, Any]) -> None:
    """Append one step as one line in one write; `attempt` and `time` are added to the record.

    What a kill or a full disk left unfinished stays as it is: the next append starts on a fresh
    line. NaN and infinities are kept (as the tokens NaN and Infinity), so that a diverged run shows
    as one.
    """
    if not is_step(record.get("step")):
        raise StoreError(f"metrics need an integer step >= 0, got {record.get('step')!r}")
    line = json.dumps({**record, "attempt": attempt, "time": record.get("time", time.time())})
    path = folder.metrics_path(attempt)
    with readable("append to", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            write_all(fd, (b"\n" if torn else b"") + line.encode() + b"\n")
            os.fdatasync(fd)
        finally:
            os.close(fd)


def note_removed(folder: RunFolder, steps: Iterable[int]) -> None:
    """Record that checkpoints are about to be removed for good."""
    removed = folder.removed_steps()
    if not removed.issuperset(steps := set(steps)):
        atomic_write_json(folder.checkpoints / "removed.json", {"steps": sorted(removed | steps)})


def claim_run(folder: RunFolder) -> None:
    """Take the run for this process, unless another live process holds it, and remove the record of
    an earlier failure.

    A lock file protects check and write, so that one of two simultaneous claims gets a StoreError.
    If file locks do not reach the other host, the last writer has the lease, and the other process
    stops when it renews its own.
    """
    with readable("claim", folder.lease_path):
        folder.path.mkdir(parents=True, exist_ok=True)
        with in_turn(folder.path / ".lease.lock"):
            held = folder.holder()
            if held and not (is_here(held) and held.get("pid") == os.getpid()):
                raise StoreError(
                    f"{folder.path} is in use by process {held.get('pid')} {whereabouts(held)}: "
                    "stop that process or wait for it"
                )
            atomic_write_json(folder.lease_path, leases.new_lease())
    _remove(folder.failed_path)


def renew_lease(folder: RunFolder) -> bool:
    """Refresh the heartbeat of the lease, to be called every few seconds; False if another process
    holds it now."""
    lease = folder.lease()
    if lease and leases.is_own(lease):
        atomic_write_json(folder.lease_path, {**lease, "heartbeat": time.time()})
    return lease is None or leases.is_own(lease)


def release_run(folder: RunFolder) -> None:
    """Remove the lease (a clean stop before the end: the state becomes `interrupted`), unless it
    belongs to another process that lives or cannot be looked up from here."""
    lease = folder.lease()
    if lease is None or leases.is_own(lease) or (is_here(lease) and not leases.lease_alive(lease)):
        _remove(folder.lease_path)


def _remove(path: Path) -> None:
    with readable("remove", path):
        path.unlink(missing_ok=True)


def write_waiting(folder: RunFolder, why: str) -> None:
    """Record in one line what this run waits for; it is valid as long as this process lives."""
    atomic_write_json(folder.path / "waiting.json", {**leases.new_lease(), "why": why})


def clear_waiting(folder: RunFolder) -> None:
    _remove(folder.path / "waiting.json")


def write_done(folder: RunFolder, *, seconds: float, attempts: int) -> None:
    """Write DONE.json once all steps and evaluations are there, with the records of their files,
    then remove an old failure and the lease."""
    records = records_of(folder.path, folder.result_files())
    if not folder.done_path.exists():
        # What this attempt has not renewed keeps its record: damage stays damage.
        records.update(folder.recorded())
    files = {name: record.as_json() for name, record in sorted(records.items())}
    record = {"finished": time.time(), "seconds": seconds, "attempts": attempts, "files": files}
    atomic_write_json(folder.done_path, record)
    _remove(folder.reopened_path)
    _remove(folder.failed_path)
    release_run(folder)


def reopen(folder: RunFolder) -> None:
    """Remove DONE.json of a run to which something is to be added. What is known of the files that
    are not renewed is kept, until the run is done again."""
    kept = {name: record.as_json() for name, record in folder.recorded().items() if "/" not in name}
    atomic_write_json(folder.reopened_path, {"files": kept})
    _remove(folder.done_path)


def write_failed(
    folder: RunFolder,
    error: str,
    *,
    step: int | None = None,
    log: str | None = None,
    tail: list[str] | None = None,
) -> None:
    """Write FAILED.json; `error` is cut to its first line, `tail` are the last lines of the log if
    they help."""
    line = next((line.strip() for line in error.splitlines() if line.strip()), "unknown error")
    if folder.done_path.exists():
        reopen(folder)
    record = {"error": line, "log": log or str(folder.log_path), "step": step, "time": time.time()}
    atomic_write_json(folder.failed_path, {**record, "tail": tail} if tail else record)
    release_run(folder)
