"""Tags and notes that people add to sweeps and runs: `notes.json` in their folder. No number depends on them."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object
from rpg.store.layout import Layout

FILE = "notes.json"
_TAG = re.compile(r"[\w.:/-]{1,50}")


def place(layout: Layout, name: str) -> Path:
    """The folder of `SWEEP` or `SWEEP/RUN`. Raises StoreError: there is no such folder."""
    sweep, slash, run = name.partition("/")
    folder = layout.run(sweep, run).path if slash else layout.sweep_folder(sweep)
    if not folder.is_dir():
        names = layout.sweeps()
        if slash and sweep in names:
            names = [member.name for member in layout.run_folders(sweep)]
        near = get_close_matches(run if slash else sweep, names, n=1)
        raise StoreError(
            f"{name}: no such {'run' if slash else 'sweep'} in {layout.home}"
            + (f"; did you mean {near[0]!r}?" if near else f". There are: {', '.join(names[:20]) or 'none'}")
        )
    return folder


def notes_and_tags(folder: Path) -> dict[str, Any]:
    """{"tags": [...], "notes": [{"time", "text"}]}, both possibly empty. Raises StoreError if unreadable."""
    path = folder / FILE
    record = read_json_object(path) if path.exists() else {}
    return {
        "tags": [str(tag) for tag in record.get("tags") or []],
        "notes": [note for note in record.get("notes") or [] if isinstance(note, dict)],
    }


def add_note(folder: Path, text: str) -> None:
    """Add a note with the current time. Raises StoreError if it is empty or cannot be written."""
    if not text.strip():
        raise StoreError("the note is empty")
    record = notes_and_tags(folder)
    record["notes"].append({"time": time.time(), "text": text.strip()})
    atomic_write_json(folder / FILE, record)


def change_tags(folder: Path, add: Collection[str], remove: Collection[str]) -> list[str]:
    """Add and remove tags; returns the resulting tags. Raises StoreError for a word that is not a valid tag."""
    for tag in add:
        if not _TAG.fullmatch(tag):
            raise StoreError(f"tag {tag!r}: expected up to 50 letters, digits and . : / - _, without blanks")
    record = notes_and_tags(folder)
    record["tags"] = sorted(({*record["tags"], *add}) - set(remove))
    atomic_write_json(folder / FILE, record)
    return list(record["tags"])
