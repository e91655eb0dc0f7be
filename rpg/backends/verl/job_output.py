"""What a job writes: metrics, copied from verl's JSON-lines file into the run's, and the reason why
it ended, from its log.

Our code inside verl logs its metrics as `rpg/<name>`, with the project's units and directions;
verl's own stay in its file.
"""

import json
import re
from pathlib import Path
from typing import Any

from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import append_metrics

_OURS = "rpg/"


def translate(line: bytes) -> dict[str, Any] | None:
    """One line of verl's file logger as a record of the run's metrics; None if it holds no metric
    of this project."""
    try:
        match json.loads(line):
            case {"step": int(step), "data": dict(data)}:
                ours = {
                    name.removeprefix(_OURS): x
                    for name, x in data.items()
                    if name.startswith(_OURS)
                }
                record = {name: x for name, x in ours.items() if type(x) in (int, float)}
                return {"step": step, **record} if record else None
    except ValueError:
        pass
    return None


class Stream:
    """Copies the metrics of one attempt, each step once, however often a launcher is killed and
    restarted."""

    def __init__(self, folder: RunFolder, attempt: int, source: Path):
        self.folder = folder
        self.attempt = attempt
        self.source = source
        self._offset = 0
        self._last = -1
        if attempt in folder.attempts():
            rows = folder.read_metrics()
            self._last = max((row["step"] for row in rows if row["attempt"] == attempt), default=-1)

    def pump(self) -> list[dict[str, Any]]:
        """Append what verl has written since the last call; returns the new records. An incomplete
        line waits for its end. Raises StoreError: the run's metrics cannot be written.
        """
        try:
            with self.source.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        records = [record for line in whole.splitlines() if (record := translate(line))]
        fresh = [record for record in records if record["step"] > self._last]
        for record in fresh:
            append_metrics(self.folder, self.attempt, record)
            self._last = record["step"]
        return fresh


_TAIL_BYTES = 65_536
_ERROR = "error: "
"""How the driver's last line begins."""

_ADVICE = {
    r"(?i)out of memory|OutOfMemory|low on memory|Cannot allocate memory": (
        "too little memory: lower backend.max_tokens_per_gpu or rollout memory, "
        "set backend.offload, or use more GPUs"
    ),
    r"(?i)ActorDiedError|WorkerCrashedError|ActorUnavailableError|actor died": (
        "a worker of verl died"
    ),
    r"\bGCS\b|Ray cluster|Ray Client|raylet": "the Ray cluster is gone or cannot be reached",
}

_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*(?:\x07|$)|[@-Z\\-_])|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)
_WHO = re.compile(r"^\([\w.:]+ pid=\d+(?:, ip=[^)\s]+)?\)(?: \[repeated [^]]*\])?\s?")
"""How Ray's lines from another process begin."""
_ERROR_LINE = re.compile(
    r"^\s*(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt): \S"
)
_DUMPED = re.compile(r"^\s*['\"{}\[\]]")
"""Lines of a printed configuration, which explain nothing."""


def clean(text: str) -> str:
    """The text without colours, other control codes and what a progress bar has overwritten."""
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(_WHO.sub("", _CONTROL.sub("", line)) for line in lines)


def tail(log: Path) -> list[str]:
    """The last lines with text in a log; none if there is no log."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in clean(text).splitlines() if line.strip()][-30:]


def reason(ended: str, lines: list[str]) -> str:
    """One line: the driver's own error if it left one, else `ended`; with advice in front, if there
    is any.

    `ended` is how the process or job ended; empty if it has not.
    """
    reported = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    logged = next((line.strip() for line in reversed(lines) if _ERROR_LINE.match(line)), "")
    if reported:
        last = reported[-1]
    elif logged:
        # The driver had no time to report it, or another process ended first.
        last = f"{logged} ({ended})" if ended else f"the last error in its log is: {logged}"
    else:
        last = ended
    if not last and lines:
        texts = [line for line in lines if not _DUMPED.match(line)] or lines
        last = f"the log's last line is: {texts[-1].strip()}"
    elif not last:
        last = "its log is empty"
    advice = next((text for pattern, text in _ADVICE.items() if re.search(pattern, last)), None)
    return f"{advice} ({last})" if advice else last
