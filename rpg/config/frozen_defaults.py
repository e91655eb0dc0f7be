"""The defaults by which runs are identified, frozen: a run's identity holds only what differs from them.

They lie in frozen_defaults.json. A line there never changes, whatever becomes of the default in the code: that is what
keeps the identities of finished runs. A new field gets a line in `added`, with the default it came with
(tests/config/test_identity.py asks for it); then no run that does not use it gets another identity.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_RECORD: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

FORMAT: int = _RECORD["format"]

ADDED: dict[str, Any] = _RECORD["added"]
"""Defaults of fields that came after the format, by place."""

DEFAULTS: dict[str, Any] = _RECORD["defaults"]
"""Place in the schema (rpg.config.fields) -> default. A field without a default is not listed."""

ALGORITHMS: dict[str, dict[str, Any]] = _RECORD["algorithms"]
"""Algorithm -> the settings of its entry in the catalogue."""

FROZEN = {**ADDED, **DEFAULTS}
_SECTIONS = {".".join(place.split(".")[:end]) for place in FROZEN for end in range(1, place.count(".") + 1)}


def is_frozen_kind(place: str) -> bool:
    """Whether the section of a field was there when defaults were frozen, or has been added to the file since.

    A kind of section that came later (a task type, a back end) has no runs whose identity is to be kept: all its
    fields count, whatever their default becomes, and no line is needed. So do all settings of a new algorithm.
    """
    section = place.rpartition(".")[0]
    return not section or section in _SECTIONS
