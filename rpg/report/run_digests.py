"""Did the bits change? Digests of a run's numbers, step by step; equal on the same machine with the
same pinned packages.

The embedded trainer is reproducible to the bit: a change of a loss, an advantage, a sample or a
grade changes some digit long before it moves a mean over seeds out of its band.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rpg.store import RunFolder
from rpg.store.checkpoints import model_digest
from rpg.store.current import scores_of
from rpg.store.run_folder import by_clock
from rpg.store.samples import read_eval

_HEX = 8
_NUMERIC = (
    "python",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "schedulefree",
    "math-verify",
    "sympy",
    "scipy",
    "pandas",
    "duckdb",
    "verl",
    "ray",
    "vllm",
)
"""Packages whose versions may change a digit."""


def run_digest(folder: RunFolder) -> dict[str, Any]:
    """{"spec", "loss", "back end", "steps", "metrics": {name: the digests of all steps,
    concatenated}, "weights", "samples"} of a run. Raises StoreError, OSError: a part of the run is
    missing.
    """
    manifest = folder.read_manifest()
    rows = folder.read_metrics()
    metrics = dict.fromkeys(name for row in rows for name in row)
    imported = manifest.get("imported")
    settings = manifest["spec"] if imported is None else imported["sha256"]
    weights = "" if imported else model_digest(folder.checkpoint(manifest["steps"]))
    return {
        "spec": _short(json.dumps(settings, sort_keys=True), 16),
        "loss": manifest["algorithm"],
        "back end": manifest["spec"].get("backend", {}).get("type", "local"),
        "steps": [row["step"] for row in rows],
        "metrics": {
            name: "".join(_short(repr(row.get(name)), _HEX) for row in rows)
            for name in metrics
            if name != "step" and not by_clock(name)
        },
        "weights": weights,
        "samples": _scores(folder) if imported else _samples(folder),
    }


def _samples(folder: RunFolder) -> dict[str, str]:
    """Digest of the graded samples of each evaluation."""
    return {
        f"{name} at step {step}": _short(json.dumps(read_eval(folder, name, step).to_pylist()), 16)
        for name in folder.benchmarks()
        for step in folder.eval_steps(name)
    }


def _scores(folder: RunFolder) -> dict[str, str]:
    """Digest of each accuracy of a run that was trained elsewhere, which has no samples."""
    return {
        f"{name} at step {step}": _short(repr(accuracy), 16)
        for name, steps in scores_of(folder).items()
        for step, accuracy in steps.items()
    }


def _short(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def compare_digests(tonight: Mapping[str, Any], before: Mapping[str, Any]) -> str | None:
    """How many of the runs that two nights have in common differ, and where the earliest difference
    is; None if they are equal, but for metrics that only tonight's have."""
    common = [name for name in tonight if name in before]
    changed: dict[str, tuple[int | None, list[str]]] = {}
    for run in common:
        difference = _difference(tonight[run], before[run])
        if difference is not None:
            changed[run] = difference
    if not changed:
        return None

    def earliest(run: str) -> float:
        step, _ = changed[run]
        return math.inf if step is None else step

    first = min(changed, key=earliest)
    step, names = changed[first]
    where = f"first: {names[0]}"
    if step is not None:
        where = f"first at step {step}, metric {names[0]}"
    if len(names) > 1:
        where += f" and {len(names) - 1} more"
    return f"{len(changed)} of {len(common)} runs differ, {where} ({first})"


def _difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[int | None, list[str]] | None:
    """(first step that differs, metrics that differ there); (None, what differs) if only weights or
    samples do."""
    for index, step in enumerate(a["steps"] if len(a["steps"]) >= len(b["steps"]) else b["steps"]):
        part = slice(index * _HEX, (index + 1) * _HEX)
        differ = [
            n
            for n, digests in b["metrics"].items()
            if a["metrics"].get(n, "")[part] != digests[part]
        ]
        if differ:
            return step, differ
    if a["weights"] != b["weights"]:
        return None, ["weights"]
    samples = [name for name in b["samples"] if a["samples"].get(name) != b["samples"][name]]
    return (None, [f"samples of {name}" for name in samples]) if samples else None


class Ledger(NamedTuple):
    """What two nights have in common and whether it is equal.

    `change`: of the runs' bits; `reported`: parts of report statistics that differ; `gone` and
    `new`: what only the earlier or only the later night has, by kind; `counts`: kind -> (in both
    nights, in the earlier one).
    """

    change: str | None
    reported: list[str]
    gone: dict[str, list[str]]
    new: dict[str, list[str]]
    counts: dict[str, tuple[int, int]]

    @property
    def is_equal(self) -> bool:
        return not (self.change or self.reported or self.gone)

    def __str__(self) -> str:
        counts = ", ".join(
            f"{both} of {old} {kind}" for kind, (both, old) in self.counts.items() if old
        )
        changed = [self.change] if self.change else []
        changed += (
            [f"report statistics {_few(self.reported)}"]
            if self.reported and not self.change
            else []
        )
        lost = [f"missing {kind}: {_few(names)}" for kind, names in self.gone.items()]
        new = [f"new {kind}: {_few(names)}" for kind, names in self.new.items()]
        return "; ".join([*changed, *lost, *new, f"compared: {counts or 'nothing'}"])


def ledger(tonight: Mapping[str, Any], before: Mapping[str, Any]) -> Ledger:
    """Tonight's record beside that of an earlier night, a sweep whose file was renamed under
    tonight's name."""
    before = named_as(tonight, before)
    new = _entries(tonight)
    old = _entries(before)
    gone = _only(old, new)
    come = _only(new, old)
    counts = {
        kind: (len(names) - len(gone.get(kind, ())), len(names)) for kind, names in old.items()
    }
    now = new["report statistics"]
    then = old["report statistics"]
    reported = [name for name in then if now.get(name, then[name]) != then[name]]
    return Ledger(
        compare_digests(tonight["digests"], before["digests"]), reported, gone, come, counts
    )


def _entries(night: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Kind -> names of what a night has; for report statistics with their digests."""
    runs = night["digests"]
    statistics = (night.get("statistics") or {}).items()
    return {
        "runs": dict.fromkeys(runs),
        "metrics": {name: None for run in runs.values() for name in run["metrics"]},
        "losses": {run["loss"]: None for run in runs.values() if "loss" in run},
        "back ends": {run["back end"]: None for run in runs.values() if "back end" in run},
        "report statistics": {
            f"{name}: {part}": value for name, of in statistics for part, value in of.items()
        },
    }


def _only(
    these: Mapping[str, dict[str, Any]], others: Mapping[str, dict[str, Any]]
) -> dict[str, list[str]]:
    only = {
        kind: [name for name in names if name not in others[kind]] for kind, names in these.items()
    }
    return {kind: names for kind, names in only.items() if names}


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def named_as(tonight: Mapping[str, Any], night: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier night under tonight's names: a sweep whose file was renamed is known by the
    settings of its runs."""
    ours = _settings(tonight)
    theirs = _settings(night)
    names = {
        old: next((new for new in ours if new not in theirs and ours[new] == settings), old)
        for old, settings in theirs.items()
        if old not in ours
    }

    def under(name: str) -> str:
        label, slash, rest = name.partition(" / ")
        return names.get(label, label) + slash + rest

    renamed = dict(night)
    for field in ("values", "spread", "digests", "statistics"):
        renamed[field] = {under(name): value for name, value in (night.get(field) or {}).items()}
    return renamed


def _settings(night: Mapping[str, Any]) -> dict[str, list[str]]:
    """Sweep -> the settings of its runs."""
    settings: dict[str, list[str]] = {}
    for name, run in sorted((night.get("digests") or {}).items()):
        settings.setdefault(name.partition(" / ")[0], []).append(run["spec"])
    return settings


def environment(versions: Mapping[str, str], machine: Mapping[str, Any]) -> dict[str, str]:
    """What the bits depend on besides code and configuration: versions of numerical packages, and
    the processor."""
    packages = {name: str(versions[name]) for name in _NUMERIC if name in versions}
    return {**packages, "processor": str(machine.get("processor", "?"))}


def reference(nights: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The newest earlier night (`nights` are oldest first) that is settled: equal to those before,
    accepted, or first."""
    settled = [night for night in nights if night.get("digests") and is_settled(night)]
    return settled[-1] if settled else None


def is_settled(night: Mapping[str, Any]) -> bool:
    return bool(night.get("accepted")) or (not night.get("bits") and not night.get("failed"))


def causes(tonight: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """The differences between two nights that may change bits, a phrase for each."""
    changes = []
    if tonight.get("code") != before.get("code"):
        changes.append(f"the code, from {_commit(before)} to {_commit(tonight)}")
    old = before.get("environment") or {}
    new = tonight.get("environment") or {}
    changes += [
        f"{name} ({old.get(name, 'none')} to {new.get(name, 'none')})"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]
    ours = tonight.get("digests") or {}
    theirs = before.get("digests") or {}
    if any(ours[name]["spec"] != theirs[name]["spec"] for name in ours if name in theirs):
        changes.append("the configuration")
    return changes


def _commit(night: Mapping[str, Any]) -> str:
    revision = str(night.get("revision") or "")
    commit = revision[:10] + ("+" if revision.endswith("+") else "")
    code = f"code {night.get('code') or '?'}"
    return f"commit {commit} ({code})" if commit else code


def verdict(tonight: Mapping[str, Any], nights: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
    """(a sentence about what tonight has in common with the last settled night, whether it is red).

    Red are bits or report statistics that differ, and anything that is missing tonight.
    """
    before = reference(nights)
    if before is None:
        return "this is the first night; later nights are compared with it", False
    diff = ledger(tonight, before)
    if diff.is_equal:
        return f"every number is bit for bit as in night {before['night']}; {diff}", False
    parts = []
    if diff.change:
        parts.append("results changed")
    elif diff.reported:
        parts.append("report statistics changed")
    if diff.gone:
        parts.append("results missing")
    what = " and ".join(parts)
    same = "code, package versions, processor and configuration are the same: not deterministic"
    changes = "; ".join(causes(tonight, before))
    why = f"possible causes: {changes}" if changes else same
    return f"{what} since {_commit(before)}: {diff}; {why}", True
