"""Waiting for something that another process does."""

import subprocess
import time
from collections.abc import Callable


def until(
    condition: Callable[[], object],
    *,
    seconds: float,
    child: subprocess.Popen[bytes] | None = None,
) -> bool:
    """Wait until the condition holds; False if the time is over, or `child` ends before that."""
    deadline = time.monotonic() + seconds
    while not condition():
        child_ended = child is not None and child.poll() is not None
        if child_ended or time.monotonic() > deadline:
            return bool(condition())
        time.sleep(0.1)
    return True
