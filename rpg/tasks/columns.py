"""Values of a row: by the name of a column, or by a form such as `boxed(column)` (rpg.config.data_source)."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from rpg.answers.extraction import last_box
from rpg.config.data_source import parsed_column
from rpg.config.task import RECIPE_TEMPLATE
from rpg.tasks.problems import DataError

_parsed = lru_cache(maxsize=256)(parsed_column)


def value_at(row: Any, path: str) -> Any:
    """Field b of column a for `a.b`, unless a column has that very name; None where the row has neither."""
    if isinstance(row, Mapping) and path in row:
        return row[path]
    for part in path.split("."):
        if not isinstance(row, Mapping) or part not in row:
            return None
        row = row[part]
    return row


def text_of(row: Mapping[str, Any], column: str, where: str) -> str | None:
    """The text that a column holds; None where the row has none.

    Raises:
        DataError: it is no text, empty, or not of the form that is asked for. The message names row and column.
    """
    form, argument, name = _parsed(column)
    value = value_at(row, name)
    if value is None:
        return None
    if form == "asked":
        value = asked(value, f"{where}: column {name}")
    text = plain(value, column, where)
    if form == "boxed":
        boxed = last_box(text)
        if boxed is None:
            raise DataError(f"{where}: column {name}: holds no \\boxed{{...}} answer")
        text = boxed
    elif form == "after":
        _, marker, text = text.rpartition(argument)
        if not marker:
            raise DataError(f"{where}: column {name}: holds no {argument!r}: {reprlib.repr(value)}")
    elif form == "regex":
        match = re.search(argument, text, re.DOTALL)
        if match is None:
            raise DataError(
                f"{where}: column {name}: the pattern {argument!r} is not in {reprlib.repr(value)}"
            )
        text = match[1] if match.re.groups else match[0]
    if not (text or "").strip():
        raise DataError(f"{where}: column {column}: the text is empty")
    return text.strip()


def plain(value: Any, column: str, where: str) -> str:
    """A value as text: a number as people write it, a list joined by commas.

    Raises:
        DataError: it is neither, or not valid Unicode.
    """
    if isinstance(value, list | tuple) and all(isinstance(part, str | int | float) for part in value):
        value = ", ".join(map(str, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(int(value)) if float(value).is_integer() else repr(value)
    if not isinstance(value, str):
        raise DataError(f"{where}: column {column}: expected text, got {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: column {column}: not valid Unicode ({error.reason})") from error
    return value


_BEFORE, _AFTER = RECIPE_TEMPLATE.split("{prompt}")


def asked(conversation: Any, where: str) -> str:
    """The last user's message; the recipe's words around the problem are taken off where they are there."""
    if isinstance(conversation, str):
        conversation = [{"role": "user", "content": conversation}]
    messages = conversation if isinstance(conversation, list | tuple) else ()
    asked_for = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    if not asked_for or not isinstance(asked_for[-1], str):
        raise DataError(
            f"{where}: expected a conversation, e.g. [{{'role': 'user', 'content': 'problem'}}], got "
            f"{reprlib.repr(conversation)}"
        )
    text = asked_for[-1].strip()
    if text.startswith(_BEFORE) and text.endswith(_AFTER.rstrip()):
        text = text[len(_BEFORE) : -len(_AFTER.rstrip())]
    return text


def conversation(value: Any, column: str, where: str) -> list[dict[str, str]]:
    """A list of messages, checked.

    Raises:
        DataError: it is not a conversation, or no user's message ends it (an assistant's may follow).
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise DataError(
            f"{where}: column {column}: expected text or a list of messages, got {reprlib.repr(value)}"
        )
    messages = []
    for number, message in enumerate(value, 1):
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise DataError(
                f"{where}: column {column}: message {number}: expected role and content, got {reprlib.repr(message)}"
            )
        if message["role"] not in ("system", "user", "assistant"):
            raise DataError(
                f"{where}: column {column}: message {number}: role {message['role']!r}; accepted: system, user, assistant"
            )
        text = plain(message["content"], f"{column}, message {number}", where)
        messages.append({"role": str(message["role"]), "content": text})
    turns = messages[:-1] if messages[-1]["role"] == "assistant" else messages
    if not turns or turns[-1]["role"] != "user":
        raise DataError(
            f"{where}: column {column}: the last message (or the one before the assistant's) must be a user's"
        )
    return messages
