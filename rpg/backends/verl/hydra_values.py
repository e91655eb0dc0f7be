"""Values in the grammar of Hydra's command line: every value arrives as it was."""

import re
from collections.abc import Mapping
from typing import Any


def hydra_value(value: Any) -> str:
    """Text is quoted where it could be read as anything else, and never interpolated."""
    if value is None:
        return "null"
    if isinstance(value, (int, float)):  # a bool is one, too
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{hydra_value(item)}" for key, item in value.items()) + "}"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    if re.fullmatch(r"[\w/][\w/.-]*", text, re.ASCII) and text.lower() not in (
        "null",
        "true",
        "false",
    ):
        try:
            float(text)
        except ValueError:
            return text
    # Hydra reads \' as ', and a run of backslashes before a quote in pairs; so does OmegaConf
    # before ${.
    escaped = re.sub(r"(\\*)('|\$(?=\{))", r"\1\1\\\2", text)
    return "'" + escaped + "\\" * (len(text) - len(text.rstrip("\\"))) + "'"
