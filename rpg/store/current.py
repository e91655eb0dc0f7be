"""What a sweep's current runs are: those of its newest file. This is the only place that says so.

A sweep that is started again with other settings writes another sweep.json. Runs of the same name that it does not
name any more are *superseded*: they stay on disk and in the database, are listed with the settings in which they
differ, and can be compared on purpose; they never enter a mean. Conductor, preparation, evaluator, database, report,
dashboard and status all ask here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rpg.store import run_provenance
from rpg.store.atomic_files import StoreError
from rpg.store.layout import Layout
from rpg.store.run_folder import IMPORTED, RunFolder, folder_name, folders

Manifest = Mapping[str, Any]
"""A run's manifest, or what the database holds of it: `variant`, `seed`, `axes`, `spec` and `identity`."""

NOT_IN_FILE = "not in the newest file"
"""Why a run is superseded for which no current run has the same variant."""

OUTDATED = "outdated"
"""In the manifest of a run that was set aside because other code than today's had trained it: rpg.store.run_provenance."""

FRESH = "fresh"
"""In the manifest of a run that shall not take over what older code has trained, wherever it lies."""

DATA = "data"
"""Stands among settings for the digest of a run's problems."""


class NotComparable(StoreError):
    """Runs that cannot stand in one table."""


def current_runs(layout: Layout, sweep: str) -> list[RunFolder]:
    """The runs of the sweep's newest file, begun or not, in its order.

    Where sweep.json cannot be read, nothing supersedes anything: the run folders on disk.
    """
    try:
        names = layout.read_sweep(sweep)["runs"]
        return [layout.run(sweep, folder_name(name, "run")) for name in names]
    except StoreError:
        return [layout.run(sweep, name) for name in folders(layout.sweep_folder(sweep))]


def imported_runs(layout: Layout, sweep: str) -> list[str]:
    """Names of the run folders of a sweep that were trained elsewhere: no file plans them, and none supersedes them."""
    there = (layout.run(sweep, name) for name in folders(layout.sweep_folder(sweep)))
    return [folder.name for folder in there if is_imported(folder)]


def is_imported(folder: RunFolder) -> bool:
    """Whether a run was trained elsewhere (`rpg import`)."""
    return (folder.path / IMPORTED).is_file()


def superseded_runs(layout: Layout, sweep: str) -> list[RunFolder]:
    """Run folders on disk that the sweep's newest file does not name, sorted."""
    current = {folder.name for folder in current_runs(layout, sweep)}
    there = (layout.run(sweep, name) for name in folders(layout.sweep_folder(sweep)) if name not in current)
    return [folder for folder in there if folder.manifest_path.exists()]


def superseded(layout: Layout, sweep: str) -> dict[str, str]:
    """Run -> why, of the runs that are superseded and whose manifest can be read."""
    old = _readable(superseded_runs(layout, sweep))
    return why_superseded(old, _readable(current_runs(layout, sweep)).values()) if old else {}


def why_superseded(old: Mapping[str, Manifest], current: Iterable[Manifest]) -> dict[str, str]:
    """Run -> the settings in which it differs from the current run of its variant (of its seed, where there is one)."""
    named: dict[Any, Manifest] = {}
    for manifest in current:
        named.setdefault(manifest["variant"], manifest)
        named[manifest["variant"], manifest["seed"]] = manifest
    reasons = {}
    for run, manifest in old.items():
        twin = named.get((manifest["variant"], manifest["seed"]), named.get(manifest["variant"]))
        reasons[run] = NOT_IN_FILE if twin is None else _difference(manifest, twin)
    return reasons


def superseded_variant(manifest: Manifest, why: str) -> str:
    """A superseded run's variant: never that of a current run, so that no query can mistake one for the other."""
    own = [part.partition(", now ")[0] for part in why.split("; ")]
    return f"{manifest['variant']} [{', '.join(own)}]"


def differing(mine: Manifest, other: Manifest) -> list[str]:
    """Dotted settings that train and in which two runs differ; `data` where their problems do."""
    one, two = _settings(mine, other), _settings(other, mine)
    return sorted(name for name in {*one, *two} if one.get(name, ...) != two.get(name, ...))


def require_comparable(runs: Mapping[str, Manifest]) -> None:
    """The assertion that guards every table: its runs differ in the sweep's axes and in nothing else.

    Raises:
        NotComparable: naming two runs and the settings in which they differ, or two runs that would be counted twice.
    """
    counts = Counter((manifest["variant"], manifest["seed"]) for manifest in runs.values())
    for (variant, seed), count in counts.items():
        if count > 1:
            names = [n for n, m in runs.items() if (m["variant"], m["seed"]) == (variant, seed)]
            raise NotComparable(
                f"{' and '.join(names)} are both {variant} with seed {seed}: one of them would count twice"
            )
    found = list(runs.items())
    for name, manifest in found[1:]:
        first, reference = found[0]
        axes = {*(manifest.get("axes") or {}), *(reference.get("axes") or {}), "seed"}
        beyond = [field for field in differing(manifest, reference) if not _varied(field, axes)]
        if beyond:
            raise NotComparable(
                f"{first} and {name} cannot stand in one table: they differ in {', '.join(beyond)}, "
                "which the sweep does not vary"
            )


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as {dotted name: value}."""
    if isinstance(value, Mapping) and value:
        parts = (flat(part, f"{prefix}.{name}" if prefix else str(name)) for name, part in value.items())
        return {name: part for found in parts for name, part in found.items()}
    return {prefix: value}


def _varied(field: str, axes: Iterable[str]) -> bool:
    """Whether an axis sets this field. To choose a section's kind is to choose all of its fields."""
    for axis in axes:
        parent, _, last = axis.rpartition(".")
        place = parent if last in ("type", "name", "preset") else axis
        if field == place or field.startswith(f"{place}.") or (field == DATA and axis.startswith("task")):
            return True
    return False


def _settings(manifest: Manifest, other: Manifest) -> dict[str, Any]:
    """What trains a run; of manifests before format 2, which do not tell kinds of fields apart, all of the settings."""
    if manifest.get("identity") and other.get("identity"):
        record = manifest["identity"]
        return {**record["settings"], DATA: record["data"]}
    spec = flat(manifest["spec"])
    return {name: value for name, value in spec.items() if not name.startswith("evaluation.place")}


def _difference(manifest: Manifest, twin: Manifest) -> str:
    """`training.optimizer.learning_rate=0.0001, now 0.02; ...`."""
    parts = []
    for name in differing(manifest, twin):
        if name == DATA:
            parts.append("other data")
        elif name != "seed":
            parts.append(f"{name}={_at(manifest['spec'], name)}, now {_at(twin['spec'], name)}")
    if manifest.get(OUTDATED):
        parts.append(run_provenance.reason(manifest[OUTDATED]))
    return "; ".join(parts) or NOT_IN_FILE


def _at(spec: Any, dotted: str) -> str:
    for part in dotted.split("."):
        if isinstance(spec, list) and part.isdecimal() and int(part) < len(spec):  # one of several rewards
            spec = spec[int(part)]
        else:
            spec = spec.get(part) if isinstance(spec, Mapping) else None
    return spec if isinstance(spec, str) else json.dumps(spec)


def _readable(found: Sequence[RunFolder]) -> dict[str, dict[str, Any]]:
    manifests = {}
    for folder in found:
        try:
            manifests[folder.name] = folder.read_manifest()
        except StoreError:  # its own view says so
            continue
    return manifests
