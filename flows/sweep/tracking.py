"""The follower that sends a sweep's numbers to its trackers, as a child beside the trainings."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flows.machine import programs
from flows.machine.children import Children

TRACKING_LOG = "tracking.log"
LAST_SECONDS = 60.0
"""For what is still to be sent when a sweep is over. What is not sent then is sent with the next call."""


@contextmanager
def tracking(folder: Path, children: Children) -> Iterator[None]:
    """Send the numbers of a sweep's runs to their trackers while it goes on inside. Nothing of it can fail the sweep."""
    child = children.start(programs.TRACKING, folder, log=folder / TRACKING_LOG, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        with suppress(OSError):
            if child.stdin:
                child.stdin.close()
        deadline = time.monotonic() + LAST_SECONDS
        while child.poll() is None and time.monotonic() < deadline and not children.stopping.is_set():
            time.sleep(0.1)
        if child.poll() is None:
            children.kill(child)
        children.wait(child)
