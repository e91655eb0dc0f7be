"""What `rpg serve` has found wrong with itself, for those who look from elsewhere: serve/health.json in the data folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object

FRESH_SECONDS = 300.0
"""A note is believed for so long: who served is gone or hangs when it has not been renewed."""


def path_of(home: Path) -> Path:
    return home / "serve" / "health.json"


def write_problems(home: Path, problems: Sequence[str]) -> None:
    atomic_write_json(path_of(home), {"time": time.time(), "problems": list(problems)})


def read_problems(home: Path) -> list[str]:
    """A line each; [] when nothing is wrong, or nobody serves this data folder."""
    try:
        note = read_json_object(path_of(home))
        fresh = abs(time.time() - float(note["time"])) < FRESH_SECONDS
        return [str(line) for line in note["problems"]] if fresh else []
    except (StoreError, KeyError, TypeError, ValueError):
        return []
