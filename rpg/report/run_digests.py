"""Did the bits change? Digests of a run's numbers, step by step; equal on the same machine with the same pinned packages.

The embedded trainer is reproducible to the bit: a change of a loss, an advantage, a sample or a grade changes some digit
long before it moves a mean over seeds out of its band.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rpg.store import RunFolder
from rpg.store.checkpoints import model_digest
from rpg.store.samples import read_eval

_CLOCK = ("time", "attempt", "tokens_per_second")
"""Measured with a clock, like every seconds_*, and therefore never equal."""
_HEX = 8
_NUMERIC = ("python", "torch", "transformers", "numpy", "schedulefree")
"""Packages whose versions may change a digit."""


def run_digest(folder: RunFolder) -> dict[str, Any]:
    """{"spec", "steps", "metrics": {name: the digests of all steps, concatenated}, "weights", "samples"} of a run. Raises
    StoreError, OSError: a part of the run is missing.
    """
    manifest, rows = folder.read_manifest(), folder.read_metrics().rows
    metrics = dict.fromkeys(name for row in rows for name in row)
    return {
        "spec": _short(json.dumps(manifest["spec"], sort_keys=True), 16),
        "steps": [row["step"] for row in rows],
        "metrics": {
            name: "".join(_short(repr(row.get(name)), _HEX) for row in rows)
            for name in metrics
            if name not in _CLOCK and not name.startswith("seconds_") and name != "step"
        },
        "weights": model_digest(folder.checkpoint(manifest["steps"])),
        "samples": {
            f"{name} at step {step}": _short(json.dumps(read_eval(folder, name, step).to_pylist()), 16)
            for name in folder.benchmarks()
            for step in folder.eval_steps(name)
        },
    }


def _short(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


@dataclass(frozen=True)
class Change:
    """`runs` of the `of` runs that two nights have in common differ; `step` is None if all metrics are equal."""

    runs: int
    of: int
    first: str
    step: int | None
    what: str
    others: int

    def __str__(self) -> str:
        where = (
            f"first: {self.what}" if self.step is None else f"first at step {self.step}, metric {self.what}"
        )
        more = f" and {self.others} more" if self.others else ""
        return f"{self.runs} of {self.of} runs, {where}{more} ({self.first})"


def compare_digests(tonight: Mapping[str, Any], before: Mapping[str, Any]) -> Change | None:
    """The earliest difference between the runs of two nights; None if the runs they have in common are equal."""
    common = [name for name in tonight if name in before]
    changed = {run: difference for run in common if (difference := _difference(tonight[run], before[run]))}
    if not changed:
        return None
    first = min(changed, key=lambda run: (changed[run][0] is None, changed[run][0] or 0))
    step, names = changed[first]
    return Change(len(changed), len(common), first, step, names[0], len(names) - 1)


def _difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[int | None, list[str]] | None:
    """(first step that differs, metrics that differ there); (None, what differs) if only weights or samples do."""
    names = dict.fromkeys([*a["metrics"], *b["metrics"]])
    for index, step in enumerate(a["steps"] if len(a["steps"]) >= len(b["steps"]) else b["steps"]):
        part = slice(index * _HEX, (index + 1) * _HEX)
        differ = [n for n in names if a["metrics"].get(n, "")[part] != b["metrics"].get(n, "")[part]]
        if differ:
            return step, differ
    if a["weights"] != b["weights"]:
        return None, ["weights"]
    samples = [n for n in {**a["samples"], **b["samples"]} if a["samples"].get(n) != b["samples"].get(n)]
    return (None, [f"samples of {name}" for name in samples]) if samples else None


def environment(versions: Mapping[str, str], machine: Mapping[str, Any]) -> dict[str, str]:
    """What the bits depend on besides code and configuration: versions of numerical packages, and the processor."""
    packages = {name: str(versions[name]) for name in _NUMERIC if name in versions}
    return {**packages, "processor": str(machine.get("processor", "?"))}


def reference(nights: Sequence[Mapping[str, Any]], here: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The newest earlier night (`nights` are oldest first) with this environment and settled bits: equal to those before,
    accepted, or the first of their kind.
    """
    same = (night for night in reversed(nights) if night.get("digests") and night.get("environment") == here)
    return next(filter(is_settled, same), None)


def is_settled(night: Mapping[str, Any]) -> bool:
    return bool(night.get("accepted")) or (not night.get("bits") and not night.get("failed"))


def causes(tonight: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """The differences between two nights that may change bits, a phrase for each."""
    changes = []
    if tonight.get("code") != before.get("code"):
        changes.append(f"the code ({_commit(before)} to {_commit(tonight)})")
    old, new = before.get("environment") or {}, tonight.get("environment") or {}
    changes += [
        f"{name} ({old.get(name, 'none')} to {new.get(name, 'none')})"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]
    specs = [
        {name: run["spec"] for name, run in (night.get("digests") or {}).items()}
        for night in (tonight, before)
    ]
    if any(specs[0][name] != specs[1][name] for name in specs[0] if name in specs[1]):
        changes.append("the configuration")
    return changes


def _commit(night: Mapping[str, Any]) -> str:
    revision = str(night.get("revision") or "")
    commit = revision[:10] + ("+" if revision.endswith("+") else "")
    return " ".join(filter(None, [commit and f"commit {commit}", f"code {night.get('code') or '?'}"]))


def verdict(tonight: Mapping[str, Any], nights: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
    """(a sentence about tonight's bits, whether they are red).

    Other package versions or another processor may change bits: then only the bands judge, and later nights are compared
    with tonight.
    """
    before = reference(nights, tonight["environment"])
    if before is None:
        last = next((night for night in reversed(nights) if night.get("digests")), None)
        if last is None:
            return "bits: the first night; later nights are compared with it", False
        change = compare_digests(tonight["digests"], last["digests"])
        what = f"bits changed: {change}" if change else "bits are the same"
        return f"{what}; changed since night {last['night']}: {', '.join(causes(tonight, last))}", False
    change = compare_digests(tonight["digests"], before["digests"])
    if change is None:
        return f"bits are the same as in night {before['night']}", False
    changes = ", ".join(causes(tonight, before))
    same = "code, package versions, processor and configuration are the same: not deterministic"
    why = f"changed since: {changes}" if changes else same
    return f"bits changed since {_commit(before)}: {change}; {why}", True
