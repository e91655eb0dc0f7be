"""Graded samples of an unfinished evaluation, kept so that a kill loses none of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import readable
from rpg.store.samples import EVAL_COLUMNS, REWARD_COLUMNS

Key = tuple[str, int]
"""(problem id, sample)."""


class Partial:
    """A file of JSON lines: the evaluation's `identity`, then a row per graded sample, flushed to disk.

    Rows of another identity (other weights, problems or settings) are discarded; a torn last line is ignored.
    """

    def __init__(self, path: Path, identity: str):
        self.path = path
        self.rows: dict[Key, dict[str, Any]] = {}
        with readable("read", path):
            keep = self._read(identity)
        with readable("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not keep:
                path.write_text(json.dumps({"identity": identity}) + "\n", encoding="ascii")

    def _read(self, identity: str) -> bool:
        """Read the existing rows; False if the file must start anew."""
        if not self.path.exists():
            return False
        lines = self.path.read_bytes().split(b"\n")
        if _object(lines[0]) != {"identity": identity}:
            return False
        for line in lines[1:]:
            row = _object(line)
            if row is not None and set(row) - set(REWARD_COLUMNS) == set(EVAL_COLUMNS):
                self.rows[row["problem_id"], row["sample"]] = row
        if lines[-1]:  # torn: the next row must start on a new line
            with open(self.path, "ab") as handle:
                handle.write(b"\n")
        return True

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append graded samples; when this returns they are on disk."""
        rows = list(rows)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        with readable("write", self.path), open(self.path, "ab") as handle:
            handle.write(text.encode("ascii"))
            handle.flush()
            os.fsync(handle.fileno())
        self.rows.update({(row["problem_id"], row["sample"]): row for row in rows})

    def know(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add samples that are stored elsewhere and need not be drawn again."""
        for row in rows:
            self.rows.setdefault((row["problem_id"], row["sample"]), row)

    def remove(self) -> None:
        """Delete the file, when the evaluation is finished and its samples are stored."""
        self.path.unlink(missing_ok=True)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
