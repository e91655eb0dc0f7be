"""Rows of JSON-lines, Parquet and CSV files and of data sets on the hub, with the place of each row
for messages; and their values, by the name of a column or by a form such as `boxed(column)`
(rpg.config.data_source).
"""

import contextlib
import csv
import itertools
import math
import reprlib
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from threading import Event, Thread
from typing import Any

from rpg.config.data_source import parsed_column
from rpg.config.errors import nearest
from rpg.config.task import RECIPE_TEMPLATE
from rpg.errors import first_line, install_command
from rpg.json_text import read_json
from rpg.system import patterns
from rpg.tasks.problems import DataError

MAX_LINE_MIB = 16
"""A row of JSON: longer ones are files that are not JSON lines, and would be taken into memory
whole."""
HUB_SECONDS = 2.0
"""How long the hub may take to answer at all."""
_parsed = lru_cache(maxsize=256)(parsed_column)
_BEFORE, _AFTER = RECIPE_TEMPLATE.split("{prompt}")


def read_rows(
    path: Path, bad: list[DataError] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, row) for each row of a JSON-lines, Parquet or CSV file (by its ending); `where` is
    `file: line 3` for people.

    With a list `bad`, a line that is not a row is added to it instead of ending the reading. Raises
    DataError: the file cannot be read or parsed.
    """
    try:
        with open(path, "rb") as handle:
            magic = handle.read(4)
        if magic == b"PAR1":
            yield from _parquet_rows(path)
            return
        read = _csv_rows if path.suffix.lower() in (".csv", ".tsv") else _json_rows
        for where, row in read(path):
            if isinstance(row, dict):
                yield where, row
            elif bad is None:
                raise row
            else:
                bad.append(row)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any] | DataError]]:
    with open(path, "rb") as handle:
        if (
            path.suffix.lower() == ".json"
            and handle.read(512).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["
        ):
            yield from _json_items(path)
            return
        handle.seek(0)
        read = iter(lambda: handle.readline(MAX_LINE_MIB * 2**20 + 1), b"")
        # A carriage return ends a line, too: within a text, JSON escapes it.
        lines = (part for line in read for part in line.rstrip(b"\r\n").split(b"\r"))
        for number, raw in enumerate(lines, 1):
            where = f"{path}: line {number}"
            if len(raw) > MAX_LINE_MIB * 2**20:
                raise DataError(
                    f"{where}: longer than {MAX_LINE_MIB} MiB; expected one JSON object per line"
                )
            if raw.strip():
                yield where, _json_row(raw, where, "utf-8-sig" if number == 1 else "utf-8")


def _json_items(path: Path) -> Iterator[tuple[str, dict[str, Any] | DataError]]:
    """The rows of a file that is one list."""
    try:
        items = read_json(path.read_text("utf-8-sig"))
    except ValueError as error:
        raise DataError(f"{path}: begins as a list, and is not JSON ({error})") from error
    for number, row in enumerate(items, 1):
        where = f"{path}: item {number}"
        kind = type(row).__name__
        yield (
            where,
            row
            if isinstance(row, dict)
            else DataError(f"{where}: expected a JSON object, found a {kind}"),
        )


def _json_row(raw: bytes, where: str, encoding: str) -> dict[str, Any] | DataError:
    try:
        row = read_json(raw.decode(encoding))
    except UnicodeDecodeError as error:
        return DataError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})")
    except ValueError as error:
        return DataError(
            f'{where}: not JSON ({error}); expected one object per line, e.g. {{"prompt": '
            f'"1+1", "answer": "2"}}'
        )
    kind = type(row).__name__
    return (
        row
        if isinstance(row, dict)
        else DataError(f"{where}: expected a JSON object, found a {kind}")
    )


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any] | DataError]]:
    """All values are text; the first line names the columns."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            csv.field_size_limit(MAX_LINE_MIB * 2**20)
            reader = csv.DictReader(handle, delimiter=separator, strict=True)
            names = reader.fieldnames or ()
            twice = [name for name in names if name and names.count(name) > 1]
            if twice:
                raise DataError(f"{path}: line 1: column {twice[0]} is named twice")
            for row in reader:
                where = f"{path}: line {reader.line_num}"
                count = len(names)
                torn = None in row or None in row.values()
                why = f"{where}: {count} columns are named, but the row has a different number"
                yield where, DataError(why) if torn else row
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num}: not CSV ({error})") from error


def hub_answers() -> bool:
    """Whether the hub can be reached; any answer counts. False where HF_HUB_OFFLINE says not to
    ask."""
    from huggingface_hub import constants  # noqa: PLC0415 - only where something is not on this machine

    answered = Event()

    def ask() -> None:
        try:
            request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
            urllib.request.urlopen(request, timeout=HUB_SECONDS)
        except urllib.error.HTTPError:
            pass
        except (OSError, ValueError):
            return
        answered.set()

    if not constants.HF_HUB_OFFLINE:
        Thread(target=ask, daemon=True).start()  # looking up a name has no time limit of its own
    return answered.wait(0.0 if constants.HF_HUB_OFFLINE else HUB_SECONDS)


@contextlib.contextmanager
def hub_client() -> Iterator[bool]:
    """Whether the hub answers; where it does not, its clients only look at what they have kept,
    without retries."""
    answers = hub_answers()
    modules: list[Any] = [
        sys.modules.get("huggingface_hub.constants"),
        sys.modules.get("datasets.config"),
    ]
    before = [(module, module.HF_HUB_OFFLINE) for module in modules if module]
    try:
        for module, _ in before:
            module.HF_HUB_OFFLINE = not answers
        yield answers
    finally:
        for module, value in before:
            module.HF_HUB_OFFLINE = value


def hub_rows(
    name: str,
    hub: str,
    configs: Sequence[str | None],
    split: str,
    revision: str | None,
    searched: str = "",
    otherwise: str = "",
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, row) of a data set on the Hugging Face hub, its `configs` one after another. A
    message begins with `name`; `searched` and `otherwise` say where else was searched and what else
    could be done.

    Raises DataError: the package is missing, or the data set cannot be had.
    """
    try:
        import datasets
    except ImportError as error:
        why = (
            f"{name}: reading {hub} from the hub needs the package datasets "
            f"({install_command('math')})"
        )
        raise DataError(why) from error
    try:
        with hub_client() as answers:
            parts = [
                datasets.load_dataset(hub, config, split=split, revision=revision)
                for config in configs
            ]
    # The library raises a dozen kinds: no network, no such data set, no such split.
    except Exception as error:
        why = f"the hub cannot be reached{searched}, and {hub} is not in its cache here"
        if answers:
            why = f"cannot read {hub}{searched}: {first_line(error)}"
        raise DataError(f"{name}: {why}. Check the network{otherwise}") from error
    # As Arrow, because row by row the library is several times slower.
    batches = (batch for part in parts for batch in part.with_format("arrow").iter(10_000))
    for number, row in enumerate(itertools.chain.from_iterable(b.to_pylist() for b in batches), 1):
        yield f"{hub}: row {number}", row


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow.parquet  # noqa: PLC0415 - a fifth of a second, which planning a run does not need

    try:
        batches = (batch.to_pylist() for batch in pyarrow.parquet.ParquetFile(path).iter_batches())
        for number, row in enumerate(itertools.chain.from_iterable(batches), 1):
            yield f"{path}: row {number}", row
    except (pyarrow.ArrowException, OverflowError) as error:  # a date beyond Python's
        raise DataError(f"{path}: not a readable Parquet file ({first_line(error)})") from error


def missing(field: str, present: Iterable[object]) -> str:
    """A sentence about a column that is not among those `present`, or has no value in this row."""
    names = [str(name) for name in present]
    if field in names:
        return f"field {field} is null; expected text or a number"
    how = ""
    if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
        how = " (the columns of a CSV file are separated by commas)"
    elif names and field in ("prompt", "answer"):
        how = f"; say which column it is, e.g. task.columns: {{{field}: {names[0]}}}"
    listed = ", ".join(names) or "nothing"
    return f"field {field} is missing{nearest(field, names) or '.'} Found: {listed}{how}"


def value_at(row: Any, path: str) -> Any:
    """Field b of column a for `a.b`, unless a column has that very name; None where the row has
    neither."""
    if isinstance(row, Mapping) and path in row:
        return row[path]
    for part in path.split("."):
        if not isinstance(row, Mapping) or part not in row:
            return None
        row = row[part]
    return row


def text_of(row: Mapping[str, Any], column: str, where: str) -> str | None:
    """The text that a column holds; None where the row has none. Raises DataError: it is no text,
    empty, or not of the form that is asked for. The message names row and column.
    """
    form, argument, name = _parsed(column)
    value = value_at(row, name)
    if value is None:
        return None
    at = f"{where}: column {name}"
    text = plain(asked(value, at) if form == "asked" else value, column, where)
    if form == "boxed":
        from rpg.answers.extraction import last_box  # noqa: PLC0415 - a fifth of a second for whoever imports it

        boxed = last_box(text)
        if boxed is None:
            raise DataError(f"{at}: contains no \\boxed{{...}} answer")
        text = boxed
    elif form == "after":
        _, marker, text = text.rpartition(argument)
        if not marker:
            raise DataError(f"{at}: contains no {argument!r}: {reprlib.repr(value)}")
    elif form == "regex":
        try:
            match = patterns.search(argument, text)
        except patterns.TooSlow as slow:
            raise DataError(f"{at}: the pattern {argument!r} {slow}") from None
        if match is None:
            raise DataError(f"{at}: the pattern {argument!r} is not in {reprlib.repr(value)}")
        text = match[1] if match.re.groups else match[0]
    if not (text or "").strip():
        raise DataError(f"{where}: column {column}: the text is empty")
    return text.strip()


def plain(value: Any, column: str, where: str) -> str:
    """A value as text: a number as people write it, a list joined by commas. Raises DataError: no
    text, or not Unicode."""
    if isinstance(value, list | tuple) and all(
        isinstance(part, str | int | float) for part in value
    ):
        value = ", ".join(map(str, value))
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as error:
            why = f"{where}: column {column}: not UTF-8 text ({error.reason} at byte {error.start})"
            raise DataError(why) from error
    if isinstance(value, Decimal) and value.is_finite():
        value = f"{value.normalize():f}"
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where}: column {column}: expected text or a number, got {value}")
    if isinstance(value, float):
        value = str(int(value)) if value.is_integer() else repr(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise DataError(f"{where}: column {column}: expected text, got {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: column {column}: not valid Unicode ({error.reason})") from error
    return value


def asked(conversation: Any, where: str) -> str:
    """The last user's message; the recipe's words around the problem are taken off where they are
    there."""
    if isinstance(conversation, str):
        conversation = [{"role": "user", "content": conversation}]
    messages = conversation if isinstance(conversation, list | tuple) else ()
    asked_for = [
        m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"
    ]
    if not asked_for or not isinstance(asked_for[-1], str):
        raise DataError(
            f"{where}: expected a conversation, e.g. [{{'role': 'user', 'content': "
            f"'problem'}}], got "
            f"{reprlib.repr(conversation)}"
        )
    text = asked_for[-1].strip()
    after = _AFTER.rstrip()
    whole = text.startswith(_BEFORE) and text.endswith(after)
    return text[len(_BEFORE) : -len(after)] if whole else text


def conversation(value: Any, column: str, where: str) -> list[dict[str, str]]:
    """A list of messages, checked. Raises DataError: none, or no user's message ends it (an
    assistant's may follow)."""
    at = f"{where}: column {column}"
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise DataError(f"{at}: expected text or a list of messages, got {reprlib.repr(value)}")
    messages = []
    for number, message in enumerate(value, 1):
        this = f"{at}: message {number}"
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise DataError(f"{this}: expected role and content, got {reprlib.repr(message)}")
        if message["role"] not in ("system", "user", "assistant"):
            raise DataError(f"{this}: role {message['role']!r}; accepted: system, user, assistant")
        if message.get("tool_calls"):
            raise DataError(f"{this}: tool_calls are not shown to the model; write them as text")
        text = plain(message["content"], f"{column}, message {number}", where)
        messages.append({"role": str(message["role"]), "content": text})
    turns = messages[:-1] if messages[-1]["role"] == "assistant" else messages
    if not turns or turns[-1]["role"] != "user" or not turns[-1]["content"].strip():
        raise DataError(f"{at}: the last message (but an assistant's) must be a user's, with text")
    return messages
