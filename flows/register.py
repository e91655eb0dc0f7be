"""The first thing a sweep does: write down what it is going to do, so that everything else can be derived from files."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from flows.renewal import identified, renew, upgrade
from rpg.config.code import kept_sources
from rpg.config.sweep import PlannedRun, Sweep
from rpg.store import Layout, RunFolder, StoreError
from rpg.store.current import imported_runs

_VERSIONED = (
    "rpg-lab", "torch", "transformers", "numpy", "prefect", "duckdb", "schedulefree", "verl", "ray", "vllm",
)  # fmt: skip


def register(sweep: Sweep, layout: Layout) -> list[RunFolder]:
    """Write sweep.json and a manifest for every run; what is already there for the same run stays untouched.

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
        if folder.manifest_path.exists() and _same_run(folder, run):
            renew(folder, _manifest(sweep, run))
            continue
        folder.write_manifest(_manifest(sweep, run))
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


@cache
def versions() -> dict[str, str]:
    """Installed versions of what a run's numbers depend on."""
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def git_revision() -> str | None:
    """Commit of the source tree, with `+` when tracked files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(root)]
        commit = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10
        )
        dirty = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True, timeout=30).returncode
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("+" if dirty else "")


@cache
def machine() -> dict[str, Any]:
    """Where the run was registered: host name, system, processor, cores."""
    processor = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
