"""The identity of a run's data: a digest of what its section `task` says, whatever the order,
the classes and the modules in which its fields are declared.

Fields stand in the text that is hashed in one order, which is kept here. The order of values (of
tiers, of benchmarks, of lists) is part of the content: it decides the order of problems.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]

_SOURCE = ("content", "columns", "weight", "limit")
_COLUMNS = ("prompt", "answer", "demonstration")

ORDER: dict[str, Sequence[str]] = {
    "": (
        "type",
        "tuning_problems",
        "train_problems",
        "benchmark_problems",
        "data_seed",
        "train",
        "benchmarks",
        "data",
        "datasets",
        "strict",
        "columns",
        "template",
        "leaks",
        "chat",
        "verifier",
        "tiers",
        "operations",
        "largest",
        "factory",
        "calls",
        "call",
        "markers",
        "reply",
        "reply_characters",
        "network",
        "seconds",
        "memory_gib",
        "digest",
        "generator",
        "reasoning-gym",
    ),
    "train": _SOURCE,
    "train.columns": _COLUMNS,
    "benchmarks.*": _SOURCE,
    "benchmarks.*.columns": _COLUMNS,
    "columns": _COLUMNS,
    "chat": ("system", "examples", "prefix", "template", "options"),
    "chat.examples": ("prompt", "response"),
    "datasets": ("name", "weight", "config", "levels"),
    "verifier": (
        "type",
        "marker",
        "match",
        "rules",
        "fallback",
        "relative_tolerance",
        "at_least",
    ),
}
"""Place in the section -> its fields. Never changed; a field that is not listed stands behind those
that are, by its name."""
MAPPINGS = {
    "tiers": "tiers.*",
    "benchmarks": "benchmarks.*",
    "chat.options": "",
    "datasets.config": "",
}
"""Places of mappings whose keys the user chooses: their order is content. Value: the place of what
they hold."""
OLDER: dict[str, Sequence[str]] = {
    "chain": ("type", "tiers", "train_problems", "benchmark_problems", "data_seed"),
    "operators": ("type", "operations", "train_problems", "benchmark_problems", "data_seed"),
    "words": ("type", "train_problems", "benchmark_problems", "largest", "data_seed"),
}
"""Task type -> the order in which versions up to 22 November 2026 hashed its fields."""


def digest(record: Record) -> str:
    """16 hexadecimal digits for {schema, task: fields of the section, ...}."""
    return _hashed(record, ORDER)


def older_digests(record: Record) -> tuple[str, ...]:
    """The digests that older versions gave to the same content."""
    order = OLDER.get(record["task"]["type"])
    return () if order is None else (_hashed(record, {**ORDER, "": order}),)


def _hashed(record: Record, order: Mapping[str, Sequence[str]]) -> str:
    text = json.dumps({**record, "task": ordered(record["task"], order)}, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ordered(value: Any, order: Mapping[str, Sequence[str]], place: str = "") -> Any:
    """A value with the fields of its sections in `order`."""
    if isinstance(value, list | tuple):
        return [ordered(item, order, place) for item in value]
    if not isinstance(value, Mapping):
        return value
    if place in MAPPINGS:
        return {key: ordered(item, order, MAPPINGS[place]) for key, item in value.items()}
    first = order.get(place, ())
    names = [name for name in first if name in value]
    names += sorted(value.keys() - set(first))
    below = f"{place}." if place else ""
    return {name: ordered(value[name], order, f"{below}{name}") for name in names}
