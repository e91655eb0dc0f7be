"""Values in the grammar of Hydra's command line: every value arrives as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def hydra_value(value: Any) -> str:
    """A value in the grammar of Hydra's command line; text is always quoted, and never interpolated."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{hydra_value(item)}" for key, item in value.items()) + "}"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    if text and all(c.isascii() and (c.isalnum() or c in "_-/.") for c in text) and text[0] not in "-.":
        reserved = text.lower() in ("null", "true", "false", "nan", "inf")
        if not reserved and not _number(text):
            return text
    # Hydra reads \' as ', and a run of backslashes before a quote in pairs; so does OmegaConf before ${.
    out, slashes = [], 0
    for place, c in enumerate(text):
        if c == "'" or text.startswith("${", place):
            out.append("\\" * slashes + "\\" + c)
        else:
            out.append(c)
        slashes = slashes + 1 if c == "\\" else 0
    return "'" + "".join(out) + "\\" * slashes + "'"


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
