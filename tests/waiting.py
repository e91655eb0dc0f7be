"""Waiting for what other processes do, and a port for them. The deadline is for a hang: no test
depends on the machine."""

import socket
import time
from pathlib import Path

import psutil

HANG = 480.0
"""Seconds after which something will not happen any more, also on a machine with much else to do.
"""


def until(condition, what="it", unless=lambda: False, pause=0.05):
    """The first true value of `condition()`; not waited for any longer when `unless()` is true.

    `pause` between two looks, in seconds: longer where a look is work for a server that others need
    as well.
    """
    deadline = time.monotonic() + HANG
    while not (found := condition()):
        over = unless()
        if over and (found := condition()):
            break
        assert not over, f"{what} never happened, and what would do it is over"
        assert time.monotonic() < deadline, f"{what} did not happen in {HANG:g} s"
        time.sleep(pause)
    return found


def memory(name, pid="self"):
    """Bytes that Linux tells of a process under this name, such as `VmData` or `RssAnon`; 0 of one
    that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def alive(processes):
    """Those of psutil's `processes` that have not ended; one that nobody has waited for has."""
    found = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def ended(processes):
    """Wait until all of them have, without being told to."""
    until(lambda: not alive(processes), f"the end of {processes}")
