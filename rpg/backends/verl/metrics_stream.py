"""verl's metrics as they are written: from its JSON-lines file into the run's, by the project's names.

Our code inside verl logs its metrics as `rpg/<name>`, with the project's units and directions; verl's own stay in its file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import append_metrics

_OURS = "rpg/"


def translate(line: bytes) -> dict[str, Any] | None:
    """One line of verl's file logger as a record of the run's metrics; None if it holds no metric of this project."""
    try:
        value = json.loads(line)
        step, data = value["step"], value["data"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(data, dict) or not isinstance(step, int):
        return None
    record = {
        name.removeprefix(_OURS): number
        for name, number in data.items()
        if name.startswith(_OURS) and isinstance(number, (int, float)) and not isinstance(number, bool)
    }
    return {"step": step, **record} if record else None


class Stream:
    """Copies the metrics of one attempt, each step once, however often a launcher is killed and restarted."""

    def __init__(self, folder: RunFolder, attempt: int, source: Path):
        self.folder, self.attempt, self.source = folder, attempt, source
        self._offset = 0
        self._last = -1
        if attempt in folder.attempts():
            rows = folder.read_metrics().rows
            self._last = max((row["step"] for row in rows if row["attempt"] == attempt), default=-1)

    def pump(self) -> list[dict[str, Any]]:
        """Append what verl has written since the last call; returns the new records. An incomplete line waits for its end.

        Raises:
            StoreError: the run's metrics cannot be written.
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
