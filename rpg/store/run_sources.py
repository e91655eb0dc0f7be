"""The run folders that the database is built from, and fingerprints that tell which of them have changed."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rpg.store.layout import Layout
from rpg.store.notes import FILE as NOTES
from rpg.store.run_folder import RunFolder


class Source(NamedTuple):
    """A run and the state of its files: with an equal fingerprint nothing has to be read again."""

    folder: RunFolder
    state: str
    fingerprint: str


def run_sources(layout: Layout) -> list[Source]:
    """Every run with its state and fingerprint, without opening its files."""
    return [_source(folder) for sweep in layout.sweeps() for folder in layout.run_folders(sweep)]


def _source(folder: RunFolder) -> Source:
    # Files that a live process renews are left out: they change often and add nothing to the state.
    seen = []
    if folder.path.is_dir():
        for entry in os.scandir(folder.path):
            if entry.name.endswith((".json", ".jsonl")) and entry.name not in ("lease.json", "waiting.json"):
                seen.append(_signature(entry.name, entry))
        evals = folder.path / "evals"
        for benchmark in folder.benchmarks():
            for entry in os.scandir(evals / benchmark):
                if entry.name.endswith(".parquet") and not entry.name.startswith("."):
                    seen.append(_signature(f"{benchmark}/{entry.name}", entry))
    state = folder.state()
    return Source(folder, state, f"{state} {_digest(sorted(seen))}")


def _signature(name: str, entry: os.DirEntry[str] | Path) -> str:
    stat = entry.stat()
    return f"{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def fingerprint_beside_runs(layout: Layout) -> str:
    """A fingerprint of the files that belong to no run: sweep files and audits."""
    paths = [
        *layout.runs.glob("*/sweep.json"),
        *layout.runs.glob(f"*/{NOTES}"),
        *layout.audits.glob("*.json"),
    ]
    return _digest(sorted(_signature(str(path), path) for path in paths))
