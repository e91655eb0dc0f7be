"""Trainings are held back while the disk has no room for what they will write: paused and said, instead of failing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from pydantic import ValidationError

from flows.context import Context
from flows.processes import Stopped
from rpg.config.run_spec import RunSpec
from rpg.planning.disk import disk
from rpg.planning.gpu_estimate import Assumptions, problems_of
from rpg.store import RunFolder
from rpg.store.gc import size
from rpg.store.run_writer import clear_waiting, write_waiting

LOOK_SECONDS = 2.0
"""A run that waits for space looks this often."""
SAID_SECONDS = 60.0
"""What it waits for is written again after so long: other hosts believe a note while it is young."""
_LOCK = Lock()


@contextmanager
def room(folder: RunFolder, context: Context) -> Iterator[None]:
    """Wait until the disk has room for a training beside those that this sweep has begun; their share stays theirs.

    Raises:
        Stopped: the sweep is being stopped.
    """
    most = needed(folder)
    said_at = 0.0
    while (why := _begin(folder, most, context)) is not None:
        if time.monotonic() - said_at > SAID_SECONDS or said_at == 0:
            write_waiting(folder, why)
            said_at = time.monotonic()
        if context.children.stopping.wait(LOOK_SECONDS):
            raise Stopped
    try:
        if said_at:
            clear_waiting(folder)
        yield
    finally:
        with _LOCK:  # others may be adding up right now
            context.writing.pop(folder, None)


def needed(folder: RunFolder) -> float:
    """Bytes that a run takes at most while it trains, by arithmetic; 0 where that is not known."""
    try:
        spec = RunSpec.model_validate(folder.read_manifest()["spec"])
    except ValidationError:  # its trainer says what is wrong
        return 0.0
    found = disk(spec, problems_of(spec, Assumptions()))
    return found.most if found else 0.0


def _begin(folder: RunFolder, most: float, context: Context) -> str | None:
    """Take the run among those that write; or, where there is no room, what it waits for."""
    with _LOCK:
        free = shutil.disk_usage(folder.path).free
        own = max(0.0, most - size(folder.path))
        others = sum(max(0.0, wants - size(one.path)) for one, wants in context.writing.items())
        if own + others > free and most:
            beside = f", {others / 1e6:,.0f} MB of it for runs that train now" if others else ""
            return (
                f"waits for disk space: {free / 1e6:,.0f} MB free{beside}, {own / 1e6:,.0f} MB needed; "
                "free some (rpg gc), and it goes on by itself"
            )
        context.writing[folder] = most
        return None
