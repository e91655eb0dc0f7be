"""No orphans: a child that ends when its parent does, however the parent ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Make this process end when the one that started it dies, `kill -9` included. Call first thing in a child.

    Linux delivers a signal (prctl PR_SET_PDEATHSIG); elsewhere a thread watches the parent's process id. The
    signal follows the parent's *thread* that started the child, so that thread must outlive the child.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(143)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(143)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()
