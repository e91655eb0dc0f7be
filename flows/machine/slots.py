"""One training per GPU, or n per machine, across all sweeps and users of a machine.

A slot is a kernel lock on a file of a folder that everyone on the machine shares. The training
process inherits it, so that the slot is free the moment the process is gone, however it ends.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from flows.machine.children import Stopped
from rpg.config.backend import BackendSection, RayAddress
from rpg.errors import UserError
from rpg.store import StoreError, locks

FOLDER = "RPG_SLOTS_FOLDER"
SLOTS = "RPG_SLOTS"
MOST = 4096
POLL_SECONDS = 0.3
"""How often a slot that is waited for is asked for again."""


@dataclass(frozen=True)
class Need:
    """What a run needs of this machine while it trains: a number of GPUs, or one of the n CPU
    slots."""

    kind: str
    count: int


@dataclass
class Held:
    """Slots that are held. `environment` shows a process its GPUs and no others."""

    locks: list[locks.Lock] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def fds(self) -> list[int]:
        return [lock.fd for lock in self.locks]

    def close(self) -> None:
        for lock in self.locks:
            lock.close()


@dataclass(frozen=True)
class Machine:
    """The shared folder, how many trainings may use the CPU at a time, and the GPUs by the names
    CUDA knows them by."""

    folder: Path
    cpu: int
    gpus: tuple[str, ...]

    def names(self, kind: str) -> list[str]:
        return list(self.gpus) if kind == "gpu" else [str(i) for i in range(self.cpu)]

    def path(self, kind: str, name: str) -> Path:
        return self.folder / f"{kind}-{re.sub(r'[^A-Za-z0-9_-]', '_', name)}"

    def take(self, need: Need, who: str, gate: locks.Lock | None = None) -> Held | None:
        """All slots that are needed, or None; at a `gate`, only those that no earlier process
        waits for. Raises UserError if the machine has too few."""
        names = self.names(need.kind)
        if need.count > len(names):
            raise UserError(
                f"needs {need.count} GPUs and this machine has {len(names)}: "
                "set backend.gpus_per_node, or CUDA_VISIBLE_DEVICES, or use another machine"
            )
        taken: dict[str, locks.Lock] = {}
        awaited = {name for note in self._before(need.kind, gate) for name in note["shared"]}
        for name in (name for name in names if name not in awaited):
            if len(taken) == need.count:
                break
            lock = locks.take(self.path(need.kind, name), {"who": who}, locks.EVERYONE)
            if lock:
                taken[name] = lock
        shown = {"CUDA_VISIBLE_DEVICES": ",".join(taken)} if need.kind == "gpu" else {}
        held = Held(list(taken.values()), shown)
        if len(taken) == need.count:
            return held
        held.close()
        return None

    def wait(
        self,
        need: Need,
        who: str,
        note: Callable[[str], None],
        stopping: threading.Event,
        yield_to: threading.Event | None = None,
    ) -> Held:
        """All that is needed, waiting for it (Stopped: `stopping` was set); `note` gets the reason.
        While `yield_to` is set, others go first. A request that can never be met is a UserError.
        """
        gate = None
        try:
            while True:
                # Only who is at a gate may take: a request for several GPUs is not starved by those
                # for one.
                if yield_to is not None and yield_to.is_set():
                    if gate:
                        gate.close()
                    gate = None
                else:
                    gate = gate or self.gate(need, who)
                if gate and (held := self.take(need, who, gate)):
                    return held
                note(self.why(need, gate))
                if stopping.wait(POLL_SECONDS):
                    raise Stopped
        finally:
            if gate:
                gate.close()

    def gate(self, need: Need, who: str) -> locks.Lock | None:
        """The place at the head of the queue for these slots, or None when another run has it."""
        about = {"who": who, "cpu": self.cpu, "gpus": self.gpus}
        return locks.take(self._gate(need.kind), about, locks.EVERYONE)

    def _gate(self, kind: str) -> Path:
        """Those who may use other slots, by RPG_SLOTS or CUDA_VISIBLE_DEVICES, have a queue of
        their own."""
        return (
            self.folder
            / f"{kind}-{hashlib.sha256(repr(self.names(kind)).encode()).hexdigest()[:8]}.gate"
        )

    def _before(self, kind: str, gate: locks.Lock | None) -> Iterator[dict[str, Any]]:
        """The notes of those who have waited longer, at other gates, for slots that are
        `shared`."""
        ours = locks.note(gate.path) if gate else {}
        for path in self.folder.glob(f"{kind}-*.gate") if ours else ():
            note = locks.note(path)
            theirs = replace(self, cpu=note.get("cpu", 0), gpus=tuple(note.get("gpus", ()))).names(
                kind
            )
            shared = set(self.names(kind)).intersection(theirs)
            if shared and note["started"] < ours["started"] and locks.held(path):
                yield {**note, "shared": shared}

    def taken(self, kind: str) -> list[dict[str, Any]]:
        """The notes of those who hold a slot now."""
        paths = (self.path(kind, name) for name in self.names(kind))
        return [locks.note(path) for path in paths if locks.held(path)]

    def why(self, need: Need, gate: locks.Lock | None = None) -> str:
        """What a run that got nothing, at a `gate` or before it, waits for, in one line."""
        holders = [_described(note) for note in self.taken(need.kind)]
        shown = ", ".join(holders[:3])
        if len(holders) > 3:
            shown += f" and {len(holders) - 3} more"
        what = "a slot"
        if need.kind == "gpu":
            what = "a GPU" if need.count == 1 else f"{need.count} GPUs"
        have = len(self.names(need.kind))
        line = (
            f"waits for {what}: {len(holders)} of {have} on this machine "
            f"taken{' by ' if holders else ''}{shown}"
        )
        first = (
            next(self._before(need.kind, gate), None) if gate else locks.note(self._gate(need.kind))
        )
        if first and have - len(holders) >= need.count:
            line += f"; next in the queue is {_described(first)}"
        return line


def _described(note: Mapping[str, Any]) -> str:
    return f"{note.get('who', '?')} (process {note.get('pid', '?')}, user {note.get('user', '?')})"


def machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """This machine as the environment describes it; UserError if RPG_SLOTS is not a number or the
    folder cannot be shared."""
    text = environment.get(SLOTS, "")
    if text and not (text.isdigit() and 1 <= int(text) <= MOST):
        raise UserError(
            f"{SLOTS}={text!r}: expected the number of trainings that may use this machine "
            f"at a time, 1 to {MOST}"
        )
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = (
        _gpus()
        if visible is None
        else tuple(part.strip() for part in visible.split(",") if part.strip())
    )
    folder = Path(environment.get(FOLDER) or "/tmp/rpg-slots")
    _share(folder)
    return Machine(folder, int(text) if text else os.cpu_count() or 1, gpus)


def need_of(backend: BackendSection, here: Machine) -> Need | None:
    """What a run with this `backend` section needs here; None for a run whose workers are
    elsewhere. On a Ray cluster that this machine belongs to, they may be on as many of its GPUs as
    they need and it has."""
    workers = backend.workers_here()
    if (
        workers
        and backend.device == "cuda"
        and isinstance(getattr(backend, "ray", None), RayAddress)
    ):
        workers = min(workers, len(here.gpus)) or None
    if workers is None:
        return None
    if backend.device == "cuda" and here.gpus:
        return Need("gpu", workers)
    # Without any GPU the trainer says so itself, better than a queue could.
    return Need("cpu", min(workers, here.cpu))


def _share(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(os.lstat(folder).st_mode):
            raise UserError(f"{FOLDER}: {folder} is a symbolic link; expected a folder")
        if os.lstat(folder).st_uid == os.getuid() and folder.stat().st_mode & 0o7777 != 0o1777:
            folder.chmod(0o1777)  # sticky: everyone may add files, nobody may remove another's
    except OSError as error:
        why = f"cannot use {folder} for the slots of this machine: {error.strerror}; set {FOLDER}"
        raise StoreError(why) from None


@cache
def _gpus() -> tuple[str, ...]:
    try:
        text = subprocess.check_output(
            ["nvidia-smi", "-L"], text=True, timeout=30, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(str(i) for i in range(sum(line.startswith("GPU ") for line in text.splitlines())))
