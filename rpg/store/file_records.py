"""How a file was when something was made of it: what decides whether a product is still of its
files.

A record has the size and the time of a file, which cost one look at the folder, and the digest of
its content. Where size or time differ, the digest decides: a copy is the same file.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

APPENDED = ".jsonl"
"""Files of this kind may grow: their record holds for their beginning."""
UNREADABLE = "unreadable"
CHANGED = "has changed (its digest differs)"
DIGEST = "sha256"
"""Field of a JSON object: the digest of all its other fields."""
_PARQUET = b"PAR1"
"""The first and the last bytes of a Parquet file."""
_FOOTER = 8
"""Bytes at its end: the length of what describes the file, and the mark."""


class FileRecord(NamedTuple):
    """A file at one moment. `modified` is in nanoseconds since 1970."""

    bytes: int
    modified: int
    sha256: str

    @classmethod
    def of(cls, path: str | Path, known: "FileRecord | None" = None) -> "FileRecord":
        """The record of a file as it is now; it is read unless it has size and time of the `known`
        one. Raises OSError: it cannot be read."""
        status = os.stat(path)
        if known and (known.bytes, known.modified) == (status.st_size, status.st_mtime_ns):
            return known
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(status.st_size, status.st_mtime_ns, sha256)

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


Records = Mapping[str, FileRecord]
"""Name of a file -> its record."""


def records_of(
    folder: Path, names: Iterable[str], known: Mapping[str, FileRecord] = {}
) -> dict[str, FileRecord]:
    """The records of these files in a folder, without those that are gone meanwhile; one that
    cannot be read has UNREADABLE for its digest."""
    records = {}
    place = str(folder)  # of tens of thousands of files, joining paths takes longer than looking
    for name in names:
        try:
            records[name] = FileRecord.of(f"{place}/{name}", known.get(name))
        except FileNotFoundError:
            continue
        except OSError:
            records[name] = FileRecord(0, 0, UNREADABLE)
    return records


def read_records(value: Any) -> dict[str, FileRecord]:
    """Records from JSON; what is not a record there is left out."""
    records = {}
    for name, fields in value.items() if isinstance(value, dict) else ():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            size = int(fields["bytes"])
            modified = int(fields["modified"])
            records[str(name)] = FileRecord(size, modified, str(fields["sha256"]))
    return records


def contents(records: Records) -> dict[str, str]:
    return {name: record.sha256 for name, record in records.items()}


def changed(record: FileRecord, path: Path) -> str | None:
    """How a file differs from its record, in a few words; None if it does not."""
    try:
        now = FileRecord.of(path, record)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if now.sha256 == record.sha256:
        return None
    if path.suffix == APPENDED and _begins_as(path, record):
        return None
    if now.bytes != record.bytes:
        return f"has {now.bytes:,} bytes instead of {record.bytes:,}"
    return CHANGED


def _begins_as(path: Path, record: FileRecord) -> bool:
    with open(path, "rb") as file:
        beginning = file.read(record.bytes)
    return hashlib.sha256(beginning).hexdigest() == record.sha256


def digest_of(value: Mapping[str, Any]) -> str:
    """The digest of the fields of a JSON object, whatever their order, but for DIGEST."""
    fields = {name: field for name, field in value.items() if name != DIGEST}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_as_written(value: Mapping[str, Any]) -> bool:
    """Whether a JSON object has the digest that was written into it, or none."""
    return DIGEST not in value or value[DIGEST] == digest_of(value)


def is_cut_off(path: Path) -> bool:
    """Whether a Parquet file lacks its beginning or its end, which is written last."""
    try:
        status = path.stat()
        return _is_cut_off(path, status.st_size, status.st_mtime_ns)
    except OSError:  # gone, or not ours to read: said by who reads it
        return False


@lru_cache(maxsize=65_536)
def _is_cut_off(path: Path, size: int, _modified: int) -> bool:
    with open(path, "rb") as file:
        begins = file.read(len(_PARQUET)) == _PARQUET
        file.seek(max(0, size - _FOOTER))
        footer = file.read()
    length = int.from_bytes(footer[:4], "little")
    return not begins or footer[4:] != _PARQUET or length + _FOOTER + len(_PARQUET) > size
