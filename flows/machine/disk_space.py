"""Trainings wait while the disk has no room for what they will write; a note in a run's folder says
what it waits for."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flows.machine.children import Stopped
from rpg.config.errors import ConfigError
from rpg.config.load import spec_of
from rpg.planning.gpu_estimate import Assumptions, problems_of
from rpg.planning.space import disk
from rpg.store import RunFolder, StoreError
from rpg.store.gc import size
from rpg.store.run_writer import write_waiting

POLL_SECONDS = 2.0
"""How often a run that waits for space looks again."""
REPEAT_SECONDS = 60.0
"""How often a waiting note is written again: other hosts believe it while it is young."""


class WaitingNote:
    """What a run waits for, in its folder: `rpg status` shows it, on other machines too. Its
    training removes it."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._text = ""
        self._written = 0.0

    def write(self, why: str) -> None:
        """Written when the text has changed or become old."""
        if self._text != why or time.monotonic() - self._written > REPEAT_SECONDS:
            with suppress(StoreError):  # what it waits for may be space on this disk
                write_waiting(self._folder, why)
            self._text, self._written = why, time.monotonic()


class DiskSpace:
    """What the trainings of one sweep will still write, so that none begins in the space of
    another."""

    def __init__(self) -> None:
        self.reserved: dict[RunFolder, float] = {}
        """Runs that train now, and the bytes that each will take at most."""
        self._lock = threading.Lock()

    @contextmanager
    def reserve(self, folder: RunFolder, stopping: threading.Event) -> Iterator[None]:
        """Wait (Stopped: `stopping` is set) until the disk has room beside the trainings that have
        begun, and keep it."""
        needed = bytes_needed(folder)
        note = WaitingNote(folder)
        while (why := self.take(folder, needed)) is not None:
            note.write(why)
            if stopping.wait(POLL_SECONDS):
                raise Stopped
        try:
            yield
        finally:
            with self._lock:  # other threads may be adding up the reservations
                self.reserved.pop(folder, None)

    def take(self, folder: RunFolder, needed: float) -> str | None:
        """Reserve the space; or, where there is no room, a line about what the run waits for."""
        with self._lock:
            free = shutil.disk_usage(folder.path).free
            missing = max(0.0, needed - size(folder.path))
            others = sum(max(0.0, most - size(other.path)) for other, most in self.reserved.items())
            if missing + others > free and needed:
                beside = (
                    f", {others / 1e6:,.0f} MB of it reserved for running trainings"
                    if others
                    else ""
                )
                return (
                    f"waits for disk space: {free / 1e6:,.0f} MB free{beside}, "
                    f"{missing / 1e6:,.0f} MB needed; "
                    "free some (rpg gc), and it continues by itself"
                )
            self.reserved[folder] = needed
            return None


def bytes_needed(folder: RunFolder) -> float:
    """Bytes that a run takes at most while it trains, by arithmetic; 0 where that is not known."""
    try:
        spec = spec_of(folder)
    except ConfigError:  # its trainer says what is wrong
        return 0.0
    estimate = disk(spec, sum(problems_of(spec, Assumptions())))
    return estimate.most if estimate else 0.0
