"""Did the bits change? A run's numbers, step by step, as digests that are equal on the same machine and the same pins.

The embedded trainer repeats to the bit: what changes a loss, an advantage, a draw or a grade changes a digit
somewhere, long before it moves a mean over seeds out of any band.
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
"""Measured with a clock, so never equal; and so is every seconds_*."""
_HEX = 8
_NUMERIC = ("python", "torch", "transformers", "numpy", "schedulefree")
"""Packages whose version may change a digit."""


def run_digest(folder: RunFolder) -> dict[str, Any]:
    """{"spec", "steps", "metrics": {name: a digest per step, one after the other}, "weights", "samples"} of a run.

    Raises:
        StoreError, OSError: something of it is not there.
    """
    manifest, rows = folder.read_manifest(), folder.read_metrics().rows
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        "spec": _short(json.dumps(manifest["spec"], sort_keys=True), 16),
        "steps": [row["step"] for row in rows],
        "metrics": {
            name: "".join(_short(repr(row.get(name)), _HEX) for row in rows)
            for name in names
            if name not in _CLOCK and not name.startswith("seconds_") and name != "step"
        },
        "weights": model_digest(folder.checkpoint(manifest["steps"])),
        "samples": {
            f"{benchmark} at step {step}": _short(
                json.dumps(read_eval(folder, benchmark, step).to_pylist()), 16
            )
            for benchmark in folder.benchmarks()
            for step in folder.eval_steps(benchmark)
        },
    }


def _short(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


@dataclass(frozen=True)
class Change:
    """`runs` of `of` runs that two nights have in common differ; `step` is None where all metrics are the same."""

    runs: int
    of: int
    first: str
    step: int | None
    what: str
    others: int

    def __str__(self) -> str:
        where = (
            f"first at step {self.step}, metric {self.what}"
            if self.step is not None
            else f"first: {self.what}"
        )
        more = f" and {self.others} more" if self.others else ""
        return f"{self.runs} of {self.of} runs, {where}{more} ({self.first})"


def compare_digests(tonight: Mapping[str, Any], before: Mapping[str, Any]) -> Change | None:
    """The earliest difference between two nights' runs; None when all that they have in common is equal."""
    common = [name for name in tonight if name in before]
    found = {name: difference for name in common if (difference := _difference(tonight[name], before[name]))}
    if not found:
        return None
    first = min(found, key=lambda name: (found[name][0] is None, found[name][0] or 0))
    step, names = found[first]
    return Change(len(found), len(common), first, step, names[0], len(names) - 1)


def _difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[int | None, list[str]] | None:
    """(first step that differs, metrics that differ there); (None, what) where only weights or samples do."""
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
    """What the bits depend on besides code and configuration: versions of the packages that compute, the processor."""
    found = {name: str(versions[name]) for name in _NUMERIC if name in versions}
    return {**found, "processor": str(machine.get("processor", "?"))}


def reference(nights: Sequence[Mapping[str, Any]], here: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The newest earlier night (they come oldest first) with these pins and this processor whose bits are settled:
    the same as before, accepted, or the first of their kind.
    """
    settled = (
        night
        for night in reversed(nights)
        if night.get("digests") and night.get("environment") == here and is_settled(night)
    )
    return next(settled, None)


def is_settled(night: Mapping[str, Any]) -> bool:
    return bool(night.get("accepted")) or (not night.get("bits") and not night.get("failed"))


def causes(tonight: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """What is different between two nights that may change bits, a phrase each."""
    found = []
    if tonight.get("code") != before.get("code"):
        found.append(f"the code ({_commit(before)} to {_commit(tonight)})")
    theirs, ours = before.get("environment") or {}, tonight.get("environment") or {}
    found += [
        f"{name} ({theirs.get(name, 'none')} to {ours.get(name, 'none')})"
        for name in dict.fromkeys([*theirs, *ours])
        if theirs.get(name) != ours.get(name)
    ]
    specs = [
        {name: run["spec"] for name, run in (night.get("digests") or {}).items()}
        for night in (tonight, before)
    ]
    if any(specs[0][name] != specs[1][name] for name in specs[0] if name in specs[1]):
        found.append("the configuration")
    return found


def _commit(night: Mapping[str, Any]) -> str:
    revision = str(night.get("revision") or "")
    commit = revision[:10] + ("+" if revision.endswith("+") else "")
    return " ".join(filter(None, [commit and f"commit {commit}", f"code {night.get('code') or '?'}"]))


def verdict(tonight: Mapping[str, Any], nights: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
    """(what is to be said about tonight's bits, whether it is red).

    Other pins or another processor change bits by right: then the bands alone judge, and tonight is what later nights
    are compared with.
    """
    before = reference(nights, tonight["environment"])
    if before is None:
        last = next((night for night in reversed(nights) if night.get("digests")), None)
        if last is None:
            return "bits: the first night that later ones are compared with", False
        change = compare_digests(tonight["digests"], last["digests"])
        what = f"bits changed: {change}" if change else "bits are the same"
        return f"{what}; other than in night {last['night']}: {', '.join(causes(tonight, last))}", False
    change = compare_digests(tonight["digests"], before["digests"])
    if change is None:
        return f"bits are the same as in night {before['night']}", False
    why = causes(tonight, before)
    changed = (
        f"changed since: {', '.join(why)}"
        if why
        else "code, pins, processor and configuration are the same: not deterministic"
    )
    since = _commit(before)
    return f"bits changed since {since}: {change}; {changed}", True
