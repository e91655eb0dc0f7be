"""What people add to sweeps and runs: `notes.json` in their folder. No number depends on it."""

import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object
from rpg.store.layout import Layout
from rpg.store.locks import in_turn

FILE = "notes.json"
LABEL = 80
NOTE = 5_000
"""Characters of a label, and of a note."""
HIDDEN = "hidden"
"""The tag of what the dashboard leaves out of its lists."""
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
            + (
                f"; did you mean {near[0]!r}?"
                if near
                else f". There are: {', '.join(names[:20]) or 'none'}"
            )
        )
    return folder


def read_marks(folder: Path) -> dict[str, Any]:
    """{"label": text, "tags": [...], "notes": [{"time", "text"}]}, all possibly empty. Raises
    StoreError if unreadable."""
    path = folder / FILE
    # os.path, as pathlib raises for a file in a folder that this user may not read.
    record = read_json_object(path) if os.path.exists(path) else {}
    return {
        "label": str(record.get("label") or ""),
        "tags": [str(tag) for tag in record.get("tags") or []],
        "notes": [note for note in record.get("notes") or [] if isinstance(note, dict)],
    }


def marked(folder: Path) -> tuple[str, bool]:
    """The label of a sweep or run, and whether it is hidden; neither if its notes cannot be
    read."""
    with suppress(StoreError):
        record = read_marks(folder)
        return record["label"], HIDDEN in record["tags"]
    return "", False


def titled(name: str, label: str) -> str:
    """`LABEL (NAME)`, or the name alone."""
    return f"{label} ({name})" if label else name


def dated(note: dict[str, Any]) -> str:
    """`2026-03-01 14:03  text`."""
    return (
        f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(note.get('time', 0)))}  "
        f"{note.get('text', '')}"
    )


def change(
    folder: Path,
    note: str | None = None,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    label: str | None = None,
) -> dict[str, Any]:
    """Add a note with the current time, add and remove tags, set the label ("": none; a note keeps
    the former one): all or nothing, after others who do the same. Returns what is there now.

    Raises StoreError: an empty or long note, a word that is not a tag, a label that is long or not
    one line; or the file cannot be written.
    """
    for tag in add:
        if not _TAG.fullmatch(tag):
            raise StoreError(
                f"tag {tag!r}: expected up to 50 letters, digits and . : / - _, without blanks"
            )
    if note is not None and not 0 < len(note.strip()) <= NOTE:
        raise StoreError(f"the note is empty or too long: expected up to {NOTE:,} characters")
    if label and (len(label) > LABEL or not label.isprintable()):
        raise StoreError(f"label {label[:LABEL]!r}: expected one line of up to {LABEL} characters")
    with in_turn(folder / ".notes.lock"):
        record = read_marks(folder)
        label = record["label"] if label is None else label.strip()
        texts = []
        if note:
            texts.append(note.strip())
        if record["label"] not in ("", label):
            texts.append(f"was called {record['label']}")
        record["notes"] += [{"time": time.time(), "text": text} for text in texts]
        record["label"] = label
        record["tags"] = sorted((set(record["tags"]) | set(add)) - set(remove))
        atomic_write_json(folder / FILE, record)
    return record
