"""What files hold, whatever harness wrote them: objects with their places, a JSON document, a
Parquet file, or a zip."""

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet

from rpg.errors import plural
from rpg.interop.compare.rows import CompareError
from rpg.json_text import read_json

EXPECTED = (
    "expected samples of lm-eval (--log_samples), a log of Inspect (.eval or .json), details of "
    "lighteval (.parquet), a validation dump of verl (.jsonl), samples of ours (.parquet), or CSV "
    "or JSON lines with the columns problem and score"
)
GZIP = b"\x1f\x8b"
ZSTANDARD = 93
"""The number of this compression in zip files, which Python's reader lacks before 3.14."""
LONGEST_CELL = 2**31 - 1


@dataclass(frozen=True)
class Record:
    """An object of a file, and where it stands: `line 3`, `row 2`."""

    where: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Parquet:
    """A Parquet file, and the columns it has."""

    columns: list[str]
    file: Any

    def rows(self, columns: list[str] | None = None) -> list[Record]:
        """The rows, with all columns or some."""
        rows = self.file.read(columns).to_pylist()
        return [Record(f"row {number}", row) for number, row in enumerate(rows, 1)]


Content = list[Record] | Mapping[str, Any] | Parquet | zipfile.ZipFile
"""A mapping is a whole JSON document."""


def content_of(path: Path) -> Content:
    """What a file has, told by its first bytes. Raises CompareError: it cannot be read."""
    try:
        data = path.read_bytes()
        if data.startswith(GZIP):
            data = gzip.decompress(data)
        if data.startswith(b"PK"):
            return zipfile.ZipFile(io.BytesIO(data))
        if data.startswith(b"PAR1"):
            file = pyarrow.parquet.ParquetFile(io.BytesIO(data))
            return Parquet(file.schema_arrow.names, file)
        return _text(path, data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise CompareError(f"{path}: neither text in UTF-8 nor Parquet; {EXPECTED}") from None
    except zipfile.BadZipFile as error:
        raise CompareError(f"{path}: a log of Inspect that cannot be read: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CompareError(f"{path}: compressed, and cut off or damaged: {error}") from None
    except pyarrow.ArrowException as error:
        raise CompareError(f"{path}: Parquet that cannot be read: {error}") from None
    except OSError as error:
        raise CompareError(f"{path}: cannot be read: {error.strerror or error}") from None


def _text(path: Path, text: str) -> Content:
    if not text.strip():
        raise CompareError(f"{path}: is empty; {EXPECTED}")
    if text.lstrip()[0] not in "{[":
        return _csv(path, text)
    try:
        whole = read_json(text)
    except ValueError as error:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) == 1:
            raise CompareError(f"{path}: is not JSON: {error}") from None
        return _json_lines(path, text)
    if isinstance(whole, list):
        return [_record(path, f"entry {at}", entry) for at, entry in enumerate(whole, 1)]
    return dict(whole)


def _json_lines(path: Path, text: str) -> list[Record]:
    records = []
    # Other ends of lines (U+2028 and the like) may stand in texts.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = read_json(line)
        except ValueError as error:
            raise CompareError(f"{path}: line {number} is not JSON: {error}") from None
        records.append(_record(path, f"line {number}", value))
    return records


def _record(path: Path, where: str, value: Any) -> Record:
    if not isinstance(value, dict):
        raise CompareError(f"{path}: {where} is not an object with keys and values; {EXPECTED}")
    return Record(where, value)


def _csv(path: Path, text: str) -> list[Record]:
    first = text.lstrip().partition("\n")[0]
    separator = max(",;\t", key=first.count)
    if first.count(separator) == 0:
        raise CompareError(f"{path}: begins with {first[:60]!r}; {EXPECTED}")
    csv.field_size_limit(LONGEST_CELL)
    # Strict: a quote that is never closed is an error, and no cell that swallows rows.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        lines = [line for line in reader if line]
    except csv.Error as error:
        raise CompareError(f"{path}: line {reader.line_num} is not CSV: {error}") from None
    columns = [name.strip() for name in lines[0]]
    doubled = sorted({name for name in columns if columns.count(name) > 1})
    if doubled:
        raise CompareError(f"{path}: several columns are called {doubled[0]!r}; expected one")
    records = []
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(columns):
            raise CompareError(
                f"{path}: row {number} has {plural(len(line), 'cell')}; expected {len(columns)}, "
                "as many as there are columns"
            )
        records.append(Record(f"row {number}", dict(zip(columns, line, strict=True))))
    return records


def entry_of(archive: zipfile.ZipFile, name: str) -> Any:
    """A JSON file of an archive. Raises ValueError: its compression is not known, or it is not
    JSON."""
    about = archive.getinfo(name)
    if about.compress_type == ZSTANDARD:
        return read_json(_unpacked(archive, about))
    try:
        return read_json(archive.read(name))
    except (NotImplementedError, zlib.error) as error:
        raise ValueError(str(error)) from None


def _unpacked(archive: zipfile.ZipFile, about: zipfile.ZipInfo) -> bytes:
    """An entry in Zstandard. It begins with 30 bytes, a name and an extra field, whose lengths are
    in those bytes."""
    assert archive.fp is not None
    archive.fp.seek(about.header_offset)
    start = archive.fp.read(30)
    archive.fp.seek(int.from_bytes(start[26:28], "little"), 1)
    archive.fp.seek(int.from_bytes(start[28:30], "little"), 1)
    packed = archive.fp.read(about.compress_size)
    return bytes(pyarrow.decompress(packed, about.file_size, codec="zstd", asbytes=True))
