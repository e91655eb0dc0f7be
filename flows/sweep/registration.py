"""The first thing a sweep does: write down what it is going to do, so that everything else can be derived from files."""

from __future__ import annotations

import time
from typing import Any

from flows.sweep.renewal import identified, renew, set_aside, upgrade
from rpg.config.code import kept_sources
from rpg.config.sweep_spec import PlannedRun, Sweep
from rpg.provenance import git_revision, machine, versions
from rpg.store import Layout, RunFolder, StoreError
from rpg.store.current import FRESH, imported_runs
from rpg.store.run_writer import write_manifest


def register(sweep: Sweep, layout: Layout, fresh: bool = False) -> list[RunFolder]:
    """Write sweep.json and a manifest for every run; what is already there for the same run stays untouched.

    `fresh`: what other code than today's has trained is set aside, and nothing of the kind is taken over.

    Raises:
        StoreError: a folder cannot be written, or a run's folder holds the manifest of another run.
    """
    upgrade(layout, sweep.spec.name, {run.data for run in sweep.runs})
    folders = [layout.run(sweep.spec.name, run.folder) for run in sweep.runs]
    benchmarks = list(dict.fromkeys(name for run in sweep.runs for name in run.spec.benchmarks()))
    previous = _created(layout, sweep.spec.name)
    layout.write_sweep(
        {
            "name": sweep.spec.name,
            "description": sweep.spec.description,
            "source": sweep.source,
            "path": str(sweep.path),
            "baseline": sweep.baseline,
            "created": previous or time.time(),
            "runs": [*(run.folder for run in sweep.runs), *imported_runs(layout, sweep.spec.name)],
            "benchmarks": benchmarks,
        }
    )
    for folder, run in zip(folders, sweep.runs, strict=True):
        wanted = _manifest(sweep, run)
        if (
            folder.manifest_path.exists()
            and _same_run(folder, run)
            and (not fresh or not set_aside(layout, folder))
        ):
            renew(folder, wanted | ({FRESH: True} if fresh else {}))
            continue
        write_manifest(folder, wanted | ({FRESH: True} if fresh else {}))
    return folders


def _created(layout: Layout, name: str) -> float | None:
    try:
        return layout.read_sweep(name).get("created")
    except StoreError:
        return None


def _same_run(folder: RunFolder, run: PlannedRun) -> bool:
    """True when the manifest is this run's; a torn one is written again (its content is derived from the sweep)."""
    try:
        found = folder.read_manifest()["run_id"]
    except StoreError:
        return False
    if found != run.run_id:
        raise StoreError(
            f"{folder.manifest_path}: belongs to run {found}, not {run.run_id}; move that folder away"
        )
    return True


def _manifest(sweep: Sweep, run: PlannedRun) -> dict[str, Any]:
    spec = run.spec
    return {
        **identified(spec, run.data),
        "variant": run.variant,
        "algorithm": spec.algorithm.name,
        "display_name": spec.algorithm.display_name,
        "seed": spec.seed,
        "axes": run.axes,
        "baseline": sweep.baseline,
        "spec": spec.model_dump(mode="json"),
        "versions": versions(),
        "git_revision": git_revision(),
        "machine": machine(),
        "created": time.time(),
        "steps": spec.training.steps,
        "eval_steps": list(spec.eval_steps()),
        "benchmarks": list(spec.benchmarks()),
        **({"rewards": kept} if (kept := kept_sources(spec)) else {}),
    }
