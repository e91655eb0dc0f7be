"""JSON that others wrote: rows of data, logs, answers."""

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["DuplicateKeyError", "read_json", "refuse_duplicates"]


class DuplicateKeyError(ValueError):
    """An object names a key twice, and nothing says which of its values is meant."""


def read_json(text: str | bytes) -> Any:
    """The value that `text` holds. Python's own reader would silently keep the last of two values.

    Raises ValueError: it is not JSON or is nested too deeply. Raises DuplicateKeyError.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("too many brackets in one another") from None


def refuse_duplicates(names: Iterable[str]) -> None:
    """Raises DuplicateKeyError for the first of the names that comes a second time."""
    seen = set[str]()
    for name in names:
        if name in seen:
            raise DuplicateKeyError(f"the key {name!r} is given twice in one object")
        seen.add(name)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        refuse_duplicates(name for name, _ in pairs)
    return content
