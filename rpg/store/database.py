"""The results database: derived from the run folders, from which it can be rebuilt at any time.

    analytics/results-000012.duckdb    one file per build, never changed after it got its name
              CURRENT                  name of the newest, replaced atomically

A reader opens the file that CURRENT names and keeps it: a build neither waits for readers nor
disturbs them. A lock file admits one builder at a time; it copies the previous version and reads
only the runs that have changed.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

import duckdb

from rpg.store import locks
from rpg.store.atomic_files import StoreError, atomic_write_text, readable
from rpg.store.file_records import FileRecord
from rpg.store.ingest import MadeOf, forget, ingest
from rpg.store.ingest_files import (
    NO_RUN,
    Source,
    by_hand,
    files_beside_runs,
    fingerprint,
    run_sources,
)
from rpg.store.layout import Layout
from rpg.store.schema import CREATE_TABLES, VERSION

KEEP = 3  # versions that stay on disk: a reader may just have read an older CURRENT
_NAME = re.compile(r"results-(\d+)\.duckdb")
STORAGE = "v1.4.0"
"""The oldest DuckDB that pyproject.toml allows: it can open the files that a newer one writes."""
_OFFLINE: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def current(layout: Layout) -> Path | None:
    """The newest database file, or None before the first build."""
    pointer = layout.analytics / "CURRENT"
    try:
        name = pointer.read_text().strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:  # it is damaged: as if there were none
        return None
    except OSError as error:
        raise StoreError(f"cannot read {pointer}: {error}") from error
    path = layout.analytics / name
    return path if _NAME.fullmatch(name) and path.is_file() else None


def usable(layout: Layout) -> Path | None:
    """The newest database file. It is built where there is none, or one that is damaged or of
    another version; None if there is nothing yet to build it from. Raises StoreError if it has to
    be built and cannot be."""
    path = current(layout)
    if path and _made_of(path):
        return path
    return build(layout) if path or layout.sweeps() or by_hand(layout) else None


def connect(layout: Layout, external: bool = False) -> duckdb.DuckDBPyConnection:
    """A read-only connection to the newest version; StoreError if there is none or it cannot be
    opened.

    `external` allows SQL that reads or writes other files (COPY, read_parquet).
    """
    path = usable(layout)
    if path is None:
        raise StoreError(f"no results database in {layout.analytics}: run a sweep first")
    return open_file(path, external)


def open_file(path: Path, external: bool = False) -> duckdb.DuckDBPyConnection:
    """A read-only connection to one version."""
    try:
        config = {**_OFFLINE, "enable_external_access": str(external).lower()}
        return duckdb.connect(path, read_only=True, config=config)
    except duckdb.Error as error:
        line = str(error).splitlines()[0]
        raise StoreError(
            f"cannot open {path}: {line}; delete {path.parent} to rebuild it"
        ) from error


def build(layout: Layout, damaged: Path | None = None) -> Path:
    """Update the database from the run folders, and return its newest version; if nothing has
    changed, that stays, unless a reader found it `damaged`. Raises StoreError if it cannot be
    written."""
    with readable("write", layout.analytics), locks.in_turn(layout.analytics / ".lock"):
        return _build(layout, damaged)


def _build(layout: Layout, damaged: Path | None) -> Path:
    previous = current(layout)
    made_of = _made_of(previous) if previous and previous != damaged else None
    seen = made_of or MadeOf({}, {})
    now, sources = _now(layout, seen)
    if previous and made_of == now:
        return previous
    changed = [
        source
        for source in sources
        if seen.fingerprints.get(source.key) != now.fingerprints[source.key]
    ]
    dropped = [key for key in seen.fingerprints if key not in now.fingerprints]
    if made_of is None or 3 * (len(changed) + len(dropped)) > len(sources):
        # Reading everything costs little more than reading most of it, and leaves no holes in the
        # file.
        changed = sources
        previous = None

    names = (_NAME.fullmatch(name) for name in os.listdir(layout.analytics))
    versions = {int(match[1]): match[0] for match in names if match}
    path = layout.analytics / f"results-{max(versions, default=0) + 1:06d}.duckdb"
    temporary = path.with_name(f".{path.name}.tmp")
    for stale in layout.analytics.glob(
        ".results-*.tmp*"
    ):  # of builders that were killed: we hold the lock
        stale.unlink()
    try:
        if previous:
            shutil.copyfile(previous, temporary)
        config = {**_OFFLINE, "storage_compatibility_version": STORAGE}
        with contextlib.closing(duckdb.connect(temporary, config=config)) as db:
            if not previous:
                db.execute(CREATE_TABLES)
            # No transaction: nobody sees this file yet, and a file that cannot be read would abort
            # all of it.
            forget(db, dropped)
            ingest(db, layout, changed, now)
            db.execute("CHECKPOINT")
        temporary.replace(path)
    except duckdb.Error as error:
        raise StoreError(f"cannot build {path}: {str(error).splitlines()[0]}") from error
    finally:
        temporary.unlink(missing_ok=True)
        temporary.with_name(f"{temporary.name}.wal").unlink(missing_ok=True)
    atomic_write_text(layout.analytics / "CURRENT", path.name + "\n")
    # A reader that has one of these open keeps it until it closes the file.
    for version in sorted(versions)[: 1 - KEEP]:
        (layout.analytics / versions[version]).unlink(missing_ok=True)
    return path


def _now(layout: Layout, seen: MadeOf) -> tuple[MadeOf, list[Source]]:
    """What a database would be made of now, and its runs; files are opened that are not as
    `seen`."""
    sources = run_sources(layout, seen.files)
    beside_runs = files_beside_runs(layout, seen.files.get(NO_RUN, {}))
    fingerprints = {source.key: source.fingerprint for source in sources}
    fingerprints[NO_RUN] = fingerprint(beside_runs, layout.closed_sweeps())
    files = {source.key: source.files for source in sources if source.files}
    if beside_runs:
        files[NO_RUN] = beside_runs
    return MadeOf(fingerprints, files), sources


def _made_of(path: Path) -> MadeOf | None:
    """What `path` was made of; None if it is damaged or of another schema version."""
    try:
        with contextlib.closing(open_file(path)) as db:
            [(version,)] = db.execute("SELECT schema_version FROM meta").fetchall()
            if version != VERSION:
                return None
            runs = db.execute("SELECT sweep, run, fingerprint FROM runs").fetchall()
            [(beside_runs,)] = db.execute("SELECT fingerprint FROM meta").fetchall()
            rows = db.execute("SELECT sweep, run, file, bytes, modified, sha256 FROM file_records")
            files: dict[tuple[str, str], dict[str, FileRecord]] = {}
            for sweep, run, name, *record in rows.fetchall():
                files.setdefault((sweep, run), {})[name] = FileRecord(*record)
    except (StoreError, duckdb.Error, ValueError):
        return None
    fingerprints = {(sweep, run): digest for sweep, run, digest in runs}
    return MadeOf({**fingerprints, NO_RUN: beside_runs}, files)
