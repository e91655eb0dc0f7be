"""A run's identity: one hash of what trains it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rpg.config.run import RunSpec


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no blanks, shortest round-trip floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def identity(spec: RunSpec, data_digest: str) -> str:
    """Hash of the resolved run and its data: 16 hexadecimal digits. Paths count by content, not by name."""
    resolved = spec.model_dump(mode="json")
    del resolved["evaluation"]["place"]  # where samples are drawn says nothing about them
    resolved["task"] |= spec.task.by_content()
    text = canonical_json({"spec": resolved, "data": data_digest})
    return hashlib.sha256(text.encode()).hexdigest()[:16]
