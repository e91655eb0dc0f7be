"""The follower that sends a sweep's numbers to its trackers, as a child beside the trainings."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flows.machine import programs
from flows.machine.children import Children
from rpg.config.sweep_spec import Sweep
from rpg.store import Layout

TRACKING_LOG = "tracking.log"
LAST_SECONDS = 60.0
"""For what is still to be sent when a sweep is over. What is not sent then is sent with the next call."""


@contextmanager
def tracked(sweep: Sweep, layout: Layout, children: Children) -> Iterator[None]:
    """Follow the sweep's runs within, where any of them is tracked. Nothing of it can fail the sweep."""
    if not any(run.spec.track for run in sweep.runs):
        yield
        return
    folder = layout.sweep_folder(sweep.spec.name)
    child = children.start(programs.TRACKING, folder, log=folder / TRACKING_LOG, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        with suppress(OSError):
            child.stdin.close()
        deadline = time.monotonic() + LAST_SECONDS
        while child.poll() is None and time.monotonic() < deadline and not children.stopping.is_set():
            time.sleep(0.1)
        if child.poll() is None:
            child.kill()
        children.wait(child)
