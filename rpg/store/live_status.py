"""Small files about what goes on now, which living processes renew, for people to read.

    <run>/progress.json             by the training: {time, step, steps, phase, done, of, what,
    tokens, ...} <run>/progress-evaluation.json  by the evaluator, about one checkpoint
    serve/health.json               by `rpg serve`: {time, problems}, what it has found wrong with
    itself

Nothing is derived from them, and losing one costs nothing.
"""

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object

TRAINING = "progress.json"
EVALUATION = "progress-evaluation.json"
WRITE_SECONDS = 1.0
"""Minimum time between two writes of a file."""
PROGRESS_SECONDS = 60.0
"""An older file does not describe the current state: its process ended, or has not begun the next
step."""


def write_progress(path: Path, record: dict[str, Any]) -> None:
    """Renew the file; a full disk or a removed folder is reported elsewhere."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps({**record, "time": time.time()}), encoding="utf-8")
        os.replace(temporary, path)  # no flush to the disk: it is worthless after a power failure
    except OSError:
        temporary.unlink(missing_ok=True)


def read_progress(path: Path, any_age: bool = False) -> dict[str, Any] | None:
    """The record in the file; None if there is none, it is stale (unless `any_age`), or it is not a
    progress record."""
    try:
        record = json.loads(path.read_bytes())
        is_stale = time.time() - float(record["time"]) > PROGRESS_SECONDS and not any_age
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if is_stale or not isinstance(record.get("phase"), str):
        return None
    return dict(record)


def moving(path: Path) -> tuple[Any, ...] | None:
    """The parts of the file that change while its process makes progress, without the time, which a
    thread renews anyway."""
    try:
        record = json.loads(path.read_bytes())
        return tuple(record.get(name) for name in ("step", "phase", "done", "tokens", "note"))
    except (OSError, ValueError, AttributeError):
        return None


def clear_progress(path: Path) -> None:
    """Remove the file."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def progress_line(record: dict[str, Any]) -> str:
    """`step 3: rollout, 12 of 64 responses, 143 tokens/s, 0:21, at most 0:14 left; refill 1 of 8:
    ...`."""
    parts = [str(record["phase"])]
    if record.get("of"):
        parts.append(f"{record.get('done', 0)} of {record['of']} {record.get('what', '')}".rstrip())
    if record.get("tokens_per_second"):
        parts.append(f"{record['tokens_per_second']:,.0f} tokens/s")
    if record.get("seconds") is not None:
        parts.append(clock(record["seconds"]))
    if record.get("left") is not None:
        parts.append(f"about {clock(record['left'])} left")
    line = ", ".join(parts)
    if record.get("note"):
        line += f"; {record['note']}"
    return f"step {record['step']}: {line}" if record.get("step") is not None else line


def clock(seconds: float) -> str:
    """`75` -> `1:15`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


HEALTH = "serve/health.json"
HEALTH_SECONDS = 300.0
"""An older file is ignored: a server that has not renewed it has ended or hangs."""


def write_problems(home: Path, problems: Sequence[str]) -> None:
    atomic_write_json(home / HEALTH, {"time": time.time(), "problems": list(problems)})


def read_problems(home: Path) -> list[str]:
    """The problems, a line each; [] if there are none or no server uses this data folder."""
    try:
        note = read_json_object(home / HEALTH)
        fresh = abs(time.time() - float(note["time"])) < HEALTH_SECONDS
        return [str(line) for line in note["problems"]] if fresh else []
    except (StoreError, KeyError, TypeError, ValueError):
        return []
