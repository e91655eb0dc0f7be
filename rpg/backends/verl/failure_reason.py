"""Why verl ended, in one line, from the last lines of its log."""

from __future__ import annotations

import re
from pathlib import Path

_TAIL_BYTES = 65_536
_TAIL_LINES = 30
_ERROR = "error: "
"""How the driver's last line begins."""

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


_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*(?:\x07|$)|[@-Z\\-_])|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)
_WHO = re.compile(r"^\([\w.:]+ pid=\d+(?:, ip=[^)\s]+)?\)(?: \[repeated [^]]*\])?\s?")
"""How Ray's lines from another process begin."""
_ERROR_LINE = re.compile(r"^\s*(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt): \S")
_DUMPED = re.compile(r"^\s*['\"{}\[\]]")
"""Lines of a printed configuration, which explain nothing."""


def clean(text: str) -> str:
    """The text without colours, other control codes and what a progress bar has overwritten."""
    return "\n".join(
        _WHO.sub("", _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2])) for line in text.split("\n")
    )


def tail(log: Path) -> list[str]:
    """The last lines with text in a log; none if there is no log."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in clean(text).splitlines() if line.strip()][-_TAIL_LINES:]


def reason(ended: str, lines: list[str]) -> str:
    """One line: the driver's own error if it left one, else `ended`; with advice in front, if there is any.

    `ended` is how the process or job ended; empty if it has not.
    """
    reported = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    last = reported[-1] if reported else ended
    logged = next((line.strip() for line in reversed(lines) if _ERROR_LINE.match(line)), "")
    if not reported and logged:  # the driver had no time to report it, or another process ended first
        last = f"{logged} ({ended})" if ended else f"the last error in its log is: {logged}"
    if not last:
        texts = [line for line in lines if not _DUMPED.match(line)] or lines
        last = f"the log's last line is: {texts[-1].strip()}" if lines else "its log is empty"
    for pattern, advice in _ADVICE:
        if pattern.search(last):
            return f"{advice} ({last})"
    return last
