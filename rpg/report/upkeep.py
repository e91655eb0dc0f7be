"""Database and report of a sweep, brought to what its files say now.

A report is a product: beside it stands what it was made of, and how its own files were written. It
is written again if the results have changed, or if one of its files is missing or damaged. What
calls `refresh` and then prints, prints what the files say.
"""

import contextlib
from importlib.metadata import version
from pathlib import Path

from rpg.report.summary import Summary
from rpg.report.sweep_report import summary_of, write_report
from rpg.store import Layout, StoreError, atomic_write_json
from rpg.store.atomic_files import read_json_object
from rpg.store.database import build, connect
from rpg.store.file_records import changed, read_records, records_of
from rpg.store.ingest_files import fingerprint
from rpg.store.notes import FILE as NOTES

RECORD = "made-of.json"
"""In the folder of a report: the fingerprint of the results, and the records of the report's
files."""
_BESIDE_RUNS = ("sweep.json", "looks.jsonl", "data.json", NOTES)


def refresh(layout: Layout, sweep: str, reported: bool = True) -> Summary:
    """Build the database if it is not of these files, and write the report if it is not of these
    results. Returns what the database says now, to be shown. Raises StoreError: one of them cannot
    be written."""
    build(layout)
    summary = summary_of(layout, sweep)
    if reported and not is_current(layout, sweep):
        write(layout, sweep, summary)
    return summary


def write(layout: Layout, sweep: str, summary: Summary | None = None) -> list[Path]:
    """Write the report of the results in the database, and what it was made of; its files.
    `summary`: what the caller has just read of the sweep."""
    written = write_report(layout, sweep, summary)
    folder = layout.reports(sweep)
    files = records_of(folder, [path.name for path in written])
    value = {
        "results": _results(layout, sweep),
        "files": {name: each.as_json() for name, each in files.items()},
    }
    atomic_write_json(folder / RECORD, value)
    return written


def is_current(layout: Layout, sweep: str) -> bool:
    """Whether the report is of the results in the database, and whole."""
    folder = layout.reports(sweep)
    with contextlib.suppress(StoreError):
        value = read_json_object(folder / RECORD)
        files = read_records(value.get("files"))
        whole = files and not any(changed(each, folder / name) for name, each in files.items())
        return bool(whole) and value.get("results") == _results(layout, sweep)
    return False


def _results(layout: Layout, sweep: str) -> str:
    """A fingerprint of what a report shows: the runs of the sweep, and what is said of it."""
    with connect(layout) as db:
        query = "SELECT run, fingerprint FROM runs WHERE sweep = ? ORDER BY run"
        runs = db.execute(query, [sweep]).fetchall()
    beside_runs = records_of(layout.sweep_folder(sweep), _BESIDE_RUNS)
    return fingerprint(
        beside_runs, [version("rpg-lab"), *(f"{run} {digest}" for run, digest in runs)]
    )
