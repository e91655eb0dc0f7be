"""Results of a benchmark that takes hours, kept as they come: after an interruption it goes on.

A file has one line of JSON for each case. A result counts only for the source that it was measured
with: those of other sources stay in the file, and their cases are tried again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("rpg", "flows", "configs", "benchmarks")


class KeptResults:
    """What a file holds of this source. Without a file, nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._source = digest_of_source() if path else ""
        self._of_case: dict[str, Any] = {}
        if path and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        text = path.read_text("utf-8")
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # the benchmark was killed while it wrote this line
                continue
            if entry["source"] == self._source:
                self._of_case[entry["case"]] = entry["result"]
        if text and not text.endswith("\n"):
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")

    def of(self, case: str, measure: Callable[[], Any]) -> Any:
        """The result of a case, measured and appended unless the file holds it."""
        if case not in self._of_case:
            self._add(case, measure())
        return self._of_case[case]

    def _add(self, case: str, result: Any) -> None:
        self._of_case[case] = result
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            line = json.dumps({"case": case, "result": result, "source": self._source})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")


def digest_of_source() -> str:
    """Of the names and contents of all files that a benchmark of the pipeline runs."""
    digest = hashlib.sha256()
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(ROOT)} {content}\n".encode())
    return digest.hexdigest()[:16]
