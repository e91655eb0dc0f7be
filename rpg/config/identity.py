"""A run's identity: one hash of what trains it.

It holds the digest of the run's data and every training field that differs from a default frozen for the format
(rpg.config.frozen_defaults). So a new field with a default changes no identity; fields that evaluate or operate are no part of
it. What lies on disk under the identities of format 1, which held every field, is found again by `former_identity`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from rpg.config.fields import REQUIRED, SECTION, Leaf, leaves
from rpg.config.frozen_defaults import ADDED, ALGORITHMS, DEFAULTS, FORMAT, FROZEN, is_frozen_kind
from rpg.config.run_spec import RunSpec
from rpg.config.section import EVALUATES, TRAINS

SCHEDULE = "training.optimizer.schedule"
STEPS = "training.steps"
"""Belongs to a run's identity; but a longer run goes on where a shorter one of the same root ended."""


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no blanks, shortest round-trip floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def identity_record(spec: RunSpec, data_digest: str) -> dict[str, Any]:
    """What a run's identity is a hash of: {format, data, settings: {dotted field: value}}."""
    settings = _settings(leaf for leaf in leaves(spec) if leaf.kind is TRAINS)
    return {"format": FORMAT, "data": data_digest, "settings": settings}


def identity(spec: RunSpec, data_digest: str) -> str:
    """Hash of what trains a run, and of its data: 16 hexadecimal digits. Data counts by content, not by name."""
    return _hash(identity_record(spec, data_digest))


def root(spec: RunSpec, data_digest: str) -> str:
    """The identity without the number of steps: runs that share it are the same run up to the shorter one's end.

    Nothing that both back ends do before a step depends on how many are to follow: rates are constant after their
    warm-up, and schedules of an algorithm count optimizer steps of their own. Where a rate falls to the end, it does:
    then the root is the identity.
    """
    record = identity_record(spec, data_digest)
    if SCHEDULE in record["settings"]:
        return _hash(record)
    return _hash({**record, "settings": {k: v for k, v in record["settings"].items() if k != STEPS}})


def evaluation_identity(spec: RunSpec) -> str:
    """Hash of how a run's checkpoints are evaluated; how often, on what and with how many samples is no part of it."""
    return _hash(_settings(leaf for leaf in leaves(spec) if leaf.kind is EVALUATES))


def former_identity(spec: RunSpec, data_digest: str) -> str:
    """The identity that format 1 gave a run: of all its fields, whatever they are for."""
    resolved = frozen_dump(spec)
    del resolved["evaluation"]["place"]
    resolved["backend"].pop("place", None)
    resolved["task"] |= spec.task.by_content()
    return _hash({"spec": resolved, "data": data_digest})


def frozen_dump(section: BaseModel, place: str = "") -> dict[str, Any]:
    """A section as plain data without the fields that came after format 1 and are at their default.

    `place` is that of the section in the schema, e.g. `task.chain`.
    """
    data: dict[str, Any] = section.model_dump(mode="json")
    for leaf in reversed(list(leaves(section, place=place))):
        new = leaf.default is not REQUIRED and leaf.place not in DEFAULTS
        if new and _same(leaf, ADDED.get(leaf.place, leaf.default)):
            _remove(data, leaf.dotted.removesuffix(".type"))
    return data


def _settings(found: Iterable[Leaf]) -> dict[str, Any]:
    """The fields that differ from their frozen default."""
    leaf_list = list(found)
    entry = next((ALGORITHMS.get(leaf.value, {}) for leaf in leaf_list if leaf.place == "algorithm.name"), {})
    kinds = {leaf.dotted.removesuffix(".type"): leaf.value for leaf in leaf_list if _is_kind(leaf)}
    return {leaf.dotted: leaf.value for leaf in leaf_list if not _same(leaf, _frozen(leaf, entry, kinds))}


def _frozen(leaf: Leaf, entry: dict[str, Any], kinds: dict[str, Any]) -> Any:
    """The default that counts: of the algorithm's entry, else of the place in the schema, else (a new field) its own."""
    inside = leaf.dotted.removeprefix("algorithm.")
    if inside != leaf.dotted and inside in entry:
        section = inside.rpartition(".")[0]
        own = entry.get(f"{section}.type", entry.get(section))
        if not section or leaf.dotted.endswith(".type") or kinds.get(f"algorithm.{section}", SECTION) == own:
            return entry[inside]
    if not is_frozen_kind(leaf.place):
        return REQUIRED
    return FROZEN.get(leaf.place, leaf.default)


def _is_kind(leaf: Leaf) -> bool:
    return leaf.dotted.endswith(".type") or leaf.value == SECTION


def _same(leaf: Leaf, default: Any) -> bool:
    return default is not REQUIRED and canonical_json(leaf.value) == canonical_json(default)


def _remove(data: dict[str, Any], dotted: str) -> None:
    """Drop a field; a section only when nothing but its kind is left of it."""
    *parents, last = dotted.split(".")
    for part in parents:
        data = data[int(part)] if isinstance(data, list) else data[part]
    if not isinstance(data.get(last), dict) or data[last].keys() <= {"type"}:
        data.pop(last, None)


def _hash(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]
