"""Writes a log as a run folder that is marked as trained elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpg.importing.trainer_logs import Log, LogError
from rpg.store.atomic_files import StoreError, atomic_write_json, atomic_write_text
from rpg.store.current import current_runs, is_imported
from rpg.store.layout import Layout
from rpg.store.run_folder import IMPORTED, RunFolder
from rpg.store.run_writer import write_done, write_manifest


def take_over(
    layout: Layout,
    log: Log,
    *,
    kind: str,
    source: Path,
    sweep: str,
    variant: str,
    seed: int,
    algorithm: str | None = None,
    axes: Mapping[str, Any] | None = None,
    updates: int = 1,
) -> RunFolder:
    """Write (or overwrite) the run of a variant and seed in a new or existing sweep.

    Raises:
        LogError: a run that was trained here has this variant and seed.
        StoreError: the folder cannot be written, or the sweep's record cannot be read (then nothing is written).
    """
    record = _record(layout, sweep)  # before anything is written
    _refuse_twin(layout, sweep, variant, seed)
    key = {"kind": kind, "sweep": sweep, "variant": variant, "seed": seed}
    identity = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    slug = re.sub(r"[^a-z0-9.]+", "-", variant.lower()).strip("-.")[:60].strip("-.") or "run"
    folder = layout.run(sweep, f"{slug}-s{seed}-{identity[:8]}")
    evaluated = [step for scores in log.scores.values() for step in scores]
    steps = max([row["step"] for row in log.steps] + evaluated, default=0)
    # `rpg evaluate --join` may have added benchmarks to a run that is imported again.
    benchmarks = sorted({*log.scores, *folder.benchmarks()})
    origin = {"from": kind, "file": str(source.resolve()), "updates": updates}
    origin["sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()
    created = time.time()
    manifest = {
        "run_id": identity,
        "variant": variant,
        "algorithm": algorithm or variant,
        "display_name": variant,
        "seed": seed,
        "axes": dict(axes or {}),
        "spec": {},
        "versions": {},
        "created": created,
        "steps": steps,
        "eval_steps": [],
        "benchmarks": benchmarks,
        "imported": origin,
    }
    lines = "".join(json.dumps({"time": created, **row, "attempt": 1}) + "\n" for row in log.steps)
    write_manifest(folder, manifest)
    atomic_write_text(folder.metrics_path(1), lines)
    scores = {name: {str(step): value for step, value in curve.items()} for name, curve in log.scores.items()}
    atomic_write_json(folder.path / IMPORTED, {"scores": scores})
    write_done(folder, seconds=sum(row.get("seconds_step", 0.0) for row in log.steps), attempts=1)
    _add_to_sweep(layout, record, folder.name, sorted(log.scores))
    return folder


def own_benchmarks(layout: Layout, sweep: str) -> list[str]:
    """The benchmarks of the runs that were trained here; none in a new sweep or one with imported runs only."""
    if sweep not in layout.sweeps() or all(map(is_imported, current_runs(layout, sweep))):
        return []
    return list(layout.read_sweep(sweep).get("benchmarks", []))


def _refuse_twin(layout: Layout, sweep: str, variant: str, seed: int) -> None:
    for folder in layout.run_folders(sweep) if sweep in layout.sweeps() else []:
        try:
            manifest = folder.read_manifest()
        except StoreError:
            continue
        if (manifest["variant"], manifest["seed"]) == (variant, seed) and "imported" not in manifest:
            raise LogError(
                f"{sweep}: {folder.name} was trained here and has variant {variant!r} and seed {seed}; give the imported "
                "run another variant, e.g. --variant 'TRL GRPO'"
            )


def _record(layout: Layout, sweep: str) -> dict[str, Any]:
    """The contents of sweep.json, existing or to be written. A file that cannot be read is an error, not a new sweep."""
    if (layout.sweep_folder(sweep) / "sweep.json").exists():
        return layout.read_sweep(sweep)
    new: dict[str, Any] = {"name": sweep, "source": "", "path": "", "baseline": None, "created": time.time()}
    return new | {"runs": [], "benchmarks": [], "description": "imported runs"}


def _add_to_sweep(layout: Layout, record: dict[str, Any], run: str, benchmarks: list[str]) -> None:
    """Append the run to the sweep. Its benchmarks count only if no run of the sweep was trained here."""
    if not own_benchmarks(layout, record["name"]):
        record["benchmarks"] = list(dict.fromkeys([*record.get("benchmarks", []), *benchmarks]))
    record["runs"] = [*(name for name in record["runs"] if name != run), run]
    layout.write_sweep({name: value for name, value in record.items() if name != "format"})
