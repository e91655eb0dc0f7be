"""A run's identity: one hash of everything that affects its training.

It covers the digest of the run's data and every training field that differs from a default frozen for the format
(rpg.config.frozen_defaults). So a new field with a default changes no identity; fields that evaluate or operate are
not part of it. Runs stored under an identity of format 1, which covered every field, are found by `former_identity`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel

from rpg.config.fields import REQUIRED, SECTION, Leaf, leaves
from rpg.config.frozen_defaults import ADDED, ALGORITHMS, DEFAULTS, FORMAT, FROZEN, is_frozen_kind
from rpg.config.run_spec import RunSpec
from rpg.config.section import EVALUATES, TRAINS

SCHEDULE = "training.optimizer.schedule"
STEPS = "training.steps"
"""Part of a run's identity; but a longer run continues a shorter one with the same root."""


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no blanks, shortest round-trip floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def identity_record(spec: RunSpec, data_digest: str) -> dict[str, Any]:
    """The record of which a run's identity is the hash: {format, data, settings: {dotted field: value}}."""
    settings = _settings([leaf for leaf in leaves(spec) if leaf.kind is TRAINS])
    return {"format": FORMAT, "data": data_digest, "settings": settings}


def identity(spec: RunSpec, data_digest: str) -> str:
    """Hash of a run's training settings and data: 16 hexadecimal digits. Data count by content, not by name."""
    return _hash(identity_record(spec, data_digest))


def root(spec: RunSpec, data_digest: str) -> str:
    """The identity without the number of steps: runs that share it are the same run up to the shorter one's end.

    In both back ends, nothing before a step depends on how many steps follow: rates are constant after the warm-up, and
    schedules of an algorithm have their own lengths. Only a learning rate that falls to the end depends on it: then
    the root is the identity.
    """
    record = identity_record(spec, data_digest)
    if SCHEDULE in record["settings"]:
        return _hash(record)
    return _hash({**record, "settings": {k: v for k, v in record["settings"].items() if k != STEPS}})


def evaluation_identity(spec: RunSpec) -> str:
    """Hash of how a run's checkpoints are evaluated, without how often, on what and with how many samples."""
    return _hash(_settings([leaf for leaf in leaves(spec) if leaf.kind is EVALUATES]))


def former_identity(spec: RunSpec, data_digest: str) -> str:
    """The identity of a run in format 1, which covered all fields."""
    resolved = frozen_dump(spec)
    del resolved["evaluation"]["place"]
    resolved["backend"].pop("place", None)
    resolved["task"] |= spec.task.by_content()
    return _hash({"spec": resolved, "data": data_digest})


def frozen_dump(section: BaseModel, place: str = "") -> dict[str, Any]:
    """A section as plain data, without fields that are newer than format 1 and have their default.

    `place` is the section's place in the schema, e.g. `task.chain`.
    """
    data: dict[str, Any] = section.model_dump(mode="json")
    for leaf in reversed(list(leaves(section, place=place))):
        new = leaf.default is not REQUIRED and leaf.place not in DEFAULTS
        if new and _same(leaf, ADDED.get(leaf.place, leaf.default)):
            _remove(data, leaf.dotted.removesuffix(".type"))
    return data


def _settings(fields: list[Leaf]) -> dict[str, Any]:
    """The fields that differ from their frozen default."""
    entry = next((ALGORITHMS.get(leaf.value, {}) for leaf in fields if leaf.place == "algorithm.name"), {})
    kinds = {
        leaf.dotted.removesuffix(".type"): leaf.value for leaf in fields if leaf.dotted.endswith(".type")
    }
    return {leaf.dotted: leaf.value for leaf in fields if not _same(leaf, _frozen(leaf, entry, kinds))}


def _frozen(leaf: Leaf, entry: dict[str, Any], kinds: dict[str, Any]) -> Any:
    """The default to compare with: of the algorithm's entry, else of the place in the schema, else (a new field) its own."""
    inside = leaf.dotted.removeprefix("algorithm.")
    if inside != leaf.dotted and inside in entry:
        section = inside.rpartition(".")[0]
        own = entry.get(f"{section}.type", entry.get(section))
        if not section or leaf.dotted.endswith(".type") or kinds.get(f"algorithm.{section}", SECTION) == own:
            return entry[inside]
    if not is_frozen_kind(leaf.place):
        return REQUIRED
    return FROZEN.get(leaf.place, leaf.default)


def _same(leaf: Leaf, default: Any) -> bool:
    return default is not REQUIRED and canonical_json(leaf.value) == canonical_json(default)


def _remove(data: dict[str, Any], dotted: str) -> None:
    """Drop a field; a section only if nothing but its type is left."""
    *parents, last = dotted.split(".")
    for part in parents:
        data = data[int(part)] if isinstance(data, list) else data[part]
    if not isinstance(data.get(last), dict) or data[last].keys() <= {"type"}:
        data.pop(last, None)


def _hash(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]
