"""Why verl ended, in one line, from the last lines of its log."""

from __future__ import annotations

import re
from pathlib import Path

_TAIL_BYTES = 65_536
_TAIL_LINES = 30
_ERROR = "error: "
"""How the driver begins its last line."""

_ADVICE = (
    (
        re.compile(r"out of memory|OutOfMemory|low on memory|Cannot allocate memory", re.IGNORECASE),
        "too little memory: lower backend.max_tokens_per_gpu or rollout memory, set backend.offload, or use more GPUs",
    ),
    (
        re.compile(r"ActorDiedError|WorkerCrashedError|ActorUnavailableError|actor died", re.IGNORECASE),
        "a worker of verl died",
    ),
    (
        re.compile(r"\bGCS\b|Ray cluster|Ray Client|raylet"),
        "the Ray cluster is gone or cannot be reached",
    ),
)


def tail(log: Path) -> list[str]:
    """The last lines with text in a log; none where there is no log."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-_TAIL_LINES:]


def reason(ended: str, lines: list[str]) -> str:
    """One line: the driver's own error where it left one, else `ended`; what can be done about it in front.

    `ended` is how the process or job ended; empty where it has not.
    """
    own = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    last = own[-1] if own else ended
    if not last:
        last = f"the log's last line is: {lines[-1].strip()}" if lines else "its log is empty"
    for pattern, advice in _ADVICE:
        if pattern.search(last):
            return f"{advice} ({last})"
    return last
