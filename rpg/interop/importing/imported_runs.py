"""Writes a log as a run folder that is marked as trained elsewhere."""

import hashlib
import json
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.interop.importing.trainer_logs import Log, LogError
from rpg.store.atomic_files import StoreError, atomic_write_json, atomic_write_text
from rpg.store.current import current_runs, how_it_came, is_imported
from rpg.store.layout import Layout
from rpg.store.locks import in_turn
from rpg.store.run_folder import IMPORTED, RunFolder, folder_name
from rpg.store.run_writer import write_done, write_manifest


@dataclass(frozen=True)
class Training:
    """What is known of how a run was trained elsewhere."""

    algorithm: str | None = None
    """Default: the name of the variant."""
    axes: Mapping[str, Any] = field(default_factory=dict)
    updates: int = 1
    """Logged steps per rollout."""


UNKNOWN = Training()


def take_over(
    layout: Layout,
    log: Log,
    *,
    kind: str,
    source: Path,
    sweep: str,
    variant: str,
    seed: int,
    training: Training = UNKNOWN,
) -> RunFolder:
    """Write (or overwrite) the run of a variant and seed in a new or existing sweep.

    Raises LogError: a run that was trained here has this variant and seed, or a benchmark is called
    `mean`. StoreError: the folder cannot be written, or the sweep's record cannot be read (then
    nothing is written).
    """
    _record(layout, sweep)  # before anything is written
    folder = run_of(layout, kind, sweep, variant, seed)
    evaluated = [
        step for name, scores in log.scores.items() if benchmark_name(name) for step in scores
    ]
    steps = max([row["step"] for row in log.steps] + evaluated, default=0)
    # `rpg evaluate --join` may have added benchmarks to a run that is imported again.
    benchmarks = sorted({*log.scores, *folder.benchmarks()})
    origin = {"from": kind, "file": str(source.resolve()), "updates": training.updates}
    origin["sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()
    created = time.time()
    manifest = {
        "variant": variant,
        "algorithm": training.algorithm or variant,
        "seed": seed,
        "axes": dict(training.axes),
        "spec": {},
        "created": created,
        "steps": steps,
        "benchmarks": benchmarks,
        "imported": origin,
    }
    lines = "".join(json.dumps({"time": created, **row, "attempt": 1}) + "\n" for row in log.steps)
    atomic_write_text(folder.metrics_path(1), lines)
    write_scores(folder, log.scores)
    register(layout, folder, manifest)
    write_done(folder, seconds=sum(row.get("seconds_step", 0.0) for row in log.steps), attempts=1)
    return folder


def benchmark_name(name: str) -> str:
    """The name of a benchmark, checked. Raises LogError: it is that of the average over
    benchmarks."""
    if name == "mean":
        raise LogError(
            "benchmark 'mean': the average over benchmarks has this name; choose another"
        )
    return folder_name(name, "benchmark")


def run_of(layout: Layout, kind: str, sweep: str, variant: str, seed: int) -> RunFolder:
    """The folder of a run that was trained elsewhere, which may not exist yet.

    Raises LogError: a run that was trained here, or came in another way, has this variant and seed.
    """
    slug = re.sub(r"[^a-z0-9.]+", "-", variant.lower()).strip("-.")[:60].strip("-.") or "run"
    folder = layout.run(sweep, f"{slug}-s{seed}-{_identity(kind, sweep, variant, seed)[:8]}")
    others = layout.run_folders(sweep) if sweep in layout.sweeps() else []
    for other in others:
        if other.name != folder.name:
            _check_other(layout, other, sweep, variant, seed)
    return folder


def _check_other(layout: Layout, other: RunFolder, sweep: str, variant: str, seed: int) -> None:
    """Raises LogError: another run has this variant and seed."""
    try:
        manifest = other.read_manifest()
    except StoreError:
        return
    if manifest["variant"] != variant or manifest["seed"] != seed:
        return
    origin = manifest.get("imported")
    came = how_it_came(origin["from"]) if origin else "trained here"
    remove = f"rpg rm {sweep}/{other.name} --home {shlex.quote(str(layout.home))}"
    raise LogError(
        f"{sweep}: {other.name} was {came} and has variant {variant!r} and seed {seed}; give this "
        f"run another variant, e.g. 'TRL GRPO', or remove that one: {remove}"
    )


def register(
    layout: Layout, folder: RunFolder, manifest: Mapping[str, Any], baseline: str | None = None
) -> None:
    """Write the manifest, and name the run in its sweep's record, which is made if there is none.
    Raises StoreError: the record exists and cannot be read (then nothing is written)."""
    origin = manifest["imported"]
    variant = manifest["variant"]
    seed = manifest["seed"]
    identity = {
        "run_id": _identity(origin["from"], folder.sweep, variant, seed),
        "display_name": variant,
    }
    folder.path.mkdir(parents=True, exist_ok=True)
    with in_turn(
        layout.sweep_folder(folder.sweep) / ".imports.lock"
    ):  # seeds may be recorded side by side
        record = _record(layout, folder.sweep)
        defaults = {"created": time.time(), "versions": {}, "eval_steps": [], "benchmarks": []}
        write_manifest(folder, {**defaults, **identity, **manifest})
        if not (folder.path / IMPORTED).exists():
            write_scores(folder, {})
        record["baseline"] = record.get("baseline") or baseline
        if not own_benchmarks(layout, folder.sweep):  # else those are the sweep's
            evaluated = [*record.get("benchmarks", []), *sorted(manifest.get("benchmarks", []))]
            record["benchmarks"] = list(dict.fromkeys(evaluated))
        record["runs"] = [*(name for name in record["runs"] if name != folder.name), folder.name]
        layout.write_sweep(record)


def write_scores(folder: RunFolder, scores: Mapping[str, Mapping[Any, float]]) -> None:
    """Benchmark -> step (a number, or its text) -> accuracy."""
    atomic_write_json(folder.path / IMPORTED, {"scores": scores})


def _identity(kind: str, sweep: str, variant: str, seed: int) -> str:
    key = {"kind": kind, "sweep": sweep, "variant": variant, "seed": seed}
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def own_benchmarks(layout: Layout, sweep: str) -> list[str]:
    """The benchmarks of the runs that were trained here; none in a new sweep or one with imported
    runs only."""
    if sweep not in layout.sweeps() or all(map(is_imported, current_runs(layout, sweep))):
        return []
    return list(layout.read_sweep(sweep).get("benchmarks", []))


def _record(layout: Layout, sweep: str) -> dict[str, Any]:
    """The contents of sweep.json, existing or to be written. A file that cannot be read is an
    error, not a new sweep."""
    if (layout.sweep_folder(sweep) / "sweep.json").exists():
        return layout.read_sweep(sweep)
    new: dict[str, Any] = {
        "name": sweep,
        "source": "",
        "path": "",
        "baseline": None,
        "created": time.time(),
    }
    return new | {"runs": [], "benchmarks": [], "description": "imported runs"}
