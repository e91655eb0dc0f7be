"""Problems that `rpg serve` has found in itself, for other processes to read: serve/health.json in the data folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object

FRESH_SECONDS = 300.0
"""An older file is ignored: a server that has not renewed it has ended or hangs."""


def path_of(home: Path) -> Path:
    return home / "serve" / "health.json"


def write_problems(home: Path, problems: Sequence[str]) -> None:
    atomic_write_json(path_of(home), {"time": time.time(), "problems": list(problems)})


def read_problems(home: Path) -> list[str]:
    """The problems, a line each; [] if there are none or no server uses this data folder."""
    try:
        note = read_json_object(path_of(home))
        fresh = abs(time.time() - float(note["time"])) < FRESH_SECONDS
        return [str(line) for line in note["problems"]] if fresh else []
    except (StoreError, KeyError, TypeError, ValueError):
        return []
