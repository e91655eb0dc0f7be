"""Trainings are held back while the disk has no room for what they will write: paused and said, instead of failing."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from flows.machine.children import Stopped
from flows.machine.waiting_note import WaitingNote
from rpg.config.run_spec import RunSpec
from rpg.planning.disk import disk
from rpg.planning.gpu_estimate import Assumptions, problems_of
from rpg.store import RunFolder
from rpg.store.gc import size

POLL_SECONDS = 2.0
"""How often a run that waits for space looks again."""


class DiskSpace:
    """What the trainings of one sweep will still write, so that none begins in the space of another."""

    def __init__(self) -> None:
        self.reserved: dict[RunFolder, float] = {}
        """Runs that train now, and the bytes that each will take at most."""
        self._lock = threading.Lock()

    @contextmanager
    def reserve(self, folder: RunFolder, stopping: threading.Event) -> Iterator[None]:
        """Wait until the disk has room for a training beside those that have begun; its share stays reserved inside.

        Raises:
            Stopped: `stopping` was set meanwhile.
        """
        needed, note = bytes_needed(folder), WaitingNote(folder)
        while (why := self.take(folder, needed)) is not None:
            note.write(why)
            if stopping.wait(POLL_SECONDS):
                raise Stopped
        try:
            note.clear()
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
                beside = f", {others / 1e6:,.0f} MB of it for runs that train now" if others else ""
                return (
                    f"waits for disk space: {free / 1e6:,.0f} MB free{beside}, {missing / 1e6:,.0f} MB needed; "
                    "free some (rpg gc), and it goes on by itself"
                )
            self.reserved[folder] = needed
            return None


def bytes_needed(folder: RunFolder) -> float:
    """Bytes that a run takes at most while it trains, by arithmetic; 0 where that is not known."""
    try:
        spec = RunSpec.model_validate(folder.read_manifest()["spec"])
    except ValidationError:  # its trainer says what is wrong
        return 0.0
    estimate = disk(spec, problems_of(spec, Assumptions()))
    return estimate.most if estimate else 0.0
