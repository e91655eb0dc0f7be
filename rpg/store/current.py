"""The current runs of a sweep: those of its newest file. This is the only module that decides which
they are.

A sweep that is started again with other settings writes a new sweep.json. Runs in its folder that
it no longer names are *superseded*: they stay on disk and in the database, are listed with the
settings in which they differ, and can be compared on purpose, but never enter a mean.
"""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rpg.store.atomic_files import StoreError, read_json_object
from rpg.store.layout import Layout
from rpg.store.run_folder import IMPORTED, RunFolder, folder_name, folders

Manifest = Mapping[str, Any]
"""A run's manifest, or its part in the database: `variant`, `seed`, `axes`, `spec` and `identity`.
"""

NOT_IN_FILE = "not in the newest file"
"""Why a run is superseded if no current run has its variant."""

RECORDED = "rpg.record"
"""Where a run comes from that another trainer wrote while it trained."""

START = "model.warm_start.seed"
"""It is part of an axis `seed` where every run has its own seed there."""

DATA = "data"
"""Name of the digest of a run's problems among its settings."""


class NotComparable(StoreError):
    """Runs that cannot stand in one table."""


def current_runs(layout: Layout, sweep: str) -> list[RunFolder]:
    """The runs of the sweep's newest file, started or not, in its order. If sweep.json cannot be
    read, no run is superseded: all run folders on disk."""
    try:
        names = layout.read_sweep(sweep)["runs"]
        return [layout.run(sweep, folder_name(name, "run")) for name in names]
    except StoreError:
        return [layout.run(sweep, name) for name in folders(layout.sweep_folder(sweep))]


def imported_runs(layout: Layout, sweep: str) -> list[str]:
    """Names of the runs of a sweep that were trained elsewhere, which no file plans or
    supersedes."""
    members = (layout.run(sweep, name) for name in folders(layout.sweep_folder(sweep)))
    return [folder.name for folder in members if is_imported(folder)]


def is_imported(folder: RunFolder) -> bool:
    """Whether a run was trained elsewhere (`rpg import`)."""
    # os.path, as pathlib raises for a file in a folder that this user may not read.
    return os.path.isfile(folder.path / IMPORTED)


def scores_of(folder: RunFolder) -> dict[str, dict[str, float]]:
    """{benchmark: {step: accuracy}} of a run whose samples are not at hand."""
    path = folder.path / IMPORTED
    return dict(read_json_object(path)["scores"]) if path.exists() else {}


def how_it_came(source: str) -> str:
    """`trained elsewhere, imported from trl`; source: `imported.from` of its manifest."""
    return (
        f"trained elsewhere, {'recorded live' if source == RECORDED else f'imported from {source}'}"
    )


def superseded_runs(layout: Layout, sweep: str) -> list[RunFolder]:
    """Run folders on disk that the sweep's newest file does not name, sorted."""
    current = {folder.name for folder in current_runs(layout, sweep)}
    others = (
        layout.run(sweep, name)
        for name in folders(layout.sweep_folder(sweep))
        if name not in current
    )
    # os.path, as pathlib raises for a file in a folder that this user may not read.
    return [folder for folder in others if os.path.exists(folder.manifest_path)]


def superseded(layout: Layout, sweep: str) -> dict[str, str]:
    """Superseded run with a readable manifest -> why it is superseded."""
    former = _readable(superseded_runs(layout, sweep))
    return why_superseded(former, _readable(current_runs(layout, sweep)).values()) if former else {}


def why_superseded(former: Mapping[str, Manifest], current: Iterable[Manifest]) -> dict[str, str]:
    """Run -> the settings in which it differs from the current run of its variant (with its seed,
    if there is one)."""
    named: dict[Any, Manifest] = {}
    for manifest in current:
        named.setdefault(manifest["variant"], manifest)
        named[manifest["variant"], manifest["seed"]] = manifest
    reasons = {}
    for run, manifest in former.items():
        twin = named.get((manifest["variant"], manifest["seed"]), named.get(manifest["variant"]))
        reasons[run] = NOT_IN_FILE if twin is None else _difference(manifest, twin)
    return reasons


def superseded_variant(manifest: Manifest, why: str) -> str:
    """The variant of a superseded run, distinct from that of every current run, so that no query
    confuses them."""
    settings = [part.partition(", now ")[0] for part in why.split("; ")]
    return f"{manifest['variant']} [{', '.join(settings)}]"


def differing(mine: Manifest, other: Manifest) -> list[str]:
    """Dotted training settings in which two runs differ; `data` if their problems differ."""
    ours = _settings(mine, other)
    theirs = _settings(other, mine)
    return sorted(name for name in ours | theirs if ours.get(name, ...) != theirs.get(name, ...))


def require_comparable(runs: Mapping[str, Manifest]) -> None:
    """Check that the runs of a table differ in the sweep's axes and in nothing else. Raises
    NotComparable: naming two runs and the settings in which they differ, or runs that would be
    counted twice."""
    counts = Counter((manifest["variant"], manifest["seed"]) for manifest in runs.values())
    for (variant, seed), count in counts.items():
        if count > 1:
            names = [n for n, m in runs.items() if (m["variant"], m["seed"]) == (variant, seed)]
            why = (
                f"{' and '.join(names)} are both {variant} with seed {seed}: one of them would "
                "count twice"
            )
            raise NotComparable(why)
    if not runs:
        return
    (first, reference), *others = runs.items()
    always = {"seed"} | set(reference.get("axes") or {})
    if all(flat(run["spec"]).get(START) == run["seed"] for run in runs.values()):
        always.add(START)  # each seed has its own initial model
    for name, manifest in others:
        axes = always | set(manifest.get("axes") or {})
        fields = [field for field in differing(manifest, reference) if not _varied(field, axes)]
        if fields:
            raise NotComparable(
                f"{first} and {name} cannot stand in one table: they differ in "
                f"{', '.join(fields)}, which the sweep does not vary"
            )


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as {dotted name: value}."""
    if isinstance(value, Mapping) and value:
        parts = (
            flat(part, f"{prefix}.{name}" if prefix else str(name)) for name, part in value.items()
        )
        return {name: inner for part in parts for name, inner in part.items()}
    return {prefix: value}


def _varied(field: str, axes: Iterable[str]) -> bool:
    """Whether an axis sets this field. An axis that chooses a section's type sets all of its
    fields. A section that is a list may be written as its only part: `reward.weight` sets
    `reward.0.weight`."""
    field_of_only_part = field.replace(".0.", ".")
    for axis in axes:
        parent, _, last = axis.rpartition(".")
        place = parent if last in ("type", "name", "preset") else axis
        if field == DATA and axis.startswith("task"):
            return True
        for name in (field, field_of_only_part):
            if name == place or name.startswith(f"{place}."):
                return True
    return False


def _settings(manifest: Manifest, other: Manifest) -> dict[str, Any]:
    """The training settings of a run; all settings for manifests before format 2, which do not tell
    kinds apart."""
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
    return "; ".join(parts) or NOT_IN_FILE


def _at(spec: Any, dotted: str) -> str:
    """The value of a setting, as a text. A key may itself be a dotted name, as those of verl."""
    parts = dotted.split(".")
    for i, part in enumerate(parts):
        rest = ".".join(parts[i:])
        if isinstance(spec, Mapping) and rest in spec:
            spec = spec[rest]
            break
        if (
            isinstance(spec, list) and part.isdecimal() and int(part) < len(spec)
        ):  # one of several rewards
            spec = spec[int(part)]
        else:
            spec = spec.get(part) if isinstance(spec, Mapping) else None
    return spec if isinstance(spec, str) else json.dumps(spec)


def _readable(members: Sequence[RunFolder]) -> dict[str, dict[str, Any]]:
    manifests = {}
    for folder in members:
        with contextlib.suppress(StoreError):  # reported where the run itself is shown
            manifests[folder.name] = folder.read_manifest()
    return manifests
