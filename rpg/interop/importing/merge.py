"""Merge the results of another data folder into this one: every run once, contradictions
reported."""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import StoreError, atomic_folder, atomic_path
from rpg.store.gc import remove
from rpg.store.layout import Layout
from rpg.store.run_folder import RunFolder, by_clock, folders
from rpg.store.samples import read_eval


@dataclass
class Merged:
    """What became of the other folder's runs, `sweep/run` each."""

    copied: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Finished there but not here; our versions are in the trash."""
    same: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    """Run that was not taken over -> why."""


def merge(layout: Layout, other: Layout) -> Merged:
    """Copy the runs of `other`, which stays unchanged. Raises StoreError: there are no results, or
    a folder cannot be read or written."""
    if other.home.resolve() == layout.home.resolve():
        raise StoreError(f"{other.home}: this is the data folder itself")
    if not other.sweeps() and not folders(other.evaluations):
        raise StoreError(
            f"{other.home}: contains no sweeps; expected a data folder (with runs/ in it)"
        )
    merged = Merged()
    for sweep in other.sweeps():
        runs = [folder for folder in other.run_folders(sweep) if folder.manifest_path.exists()]
        _join(
            layout, other, sweep, [folder.name for folder in runs if _take(layout, folder, merged)]
        )
    _samples(layout, other)
    return merged


def _samples(layout: Layout, other: Layout) -> None:
    """Copy stored samples, whose files have a name for each process that drew some, and evaluations
    by hand of models that have none here."""
    for path in sorted(other.samples.glob("*/*.json*")):
        target = layout.samples / path.relative_to(other.samples)
        if not target.exists():
            with atomic_path(target) as temporary:
                shutil.copyfile(path, temporary)
    for name in folders(other.evaluations):
        if not (layout.evaluations / name).exists():
            _copy(other.evaluations / name, layout.evaluations / name)


def _take(layout: Layout, theirs: RunFolder, merged: Merged) -> bool:
    """Whether the run is here afterwards: copied, or already present."""
    name = f"{theirs.sweep}/{theirs.name}"
    ours = layout.run(theirs.sweep, theirs.name)
    if theirs.state() == "running":
        merged.left[name] = "it is still running there"
        return False
    if not ours.manifest_path.exists():
        _copy(theirs.path, ours.path)
        merged.copied.append(name)
        return True
    if ours.read_manifest()["run_id"] != theirs.read_manifest()["run_id"]:
        merged.left[name] = "the run of that name here has other settings or data"
        return False
    why = _difference(ours, theirs)
    if why is not None:
        merged.left[name] = why
        return True
    if theirs.state() == "done" and ours.state() not in ("done", "running"):
        remove(layout, name)
        _copy(theirs.path, ours.path)
        merged.replaced.append(name)
    else:
        merged.same.append(name)
    return True


def _difference(ours: RunFolder, theirs: RunFolder) -> str | None:
    """The first number that differs between two folders of one run; None if everything in both
    agrees."""
    return _different_metric(ours, theirs) or _different_samples(ours, theirs)


def _different_metric(ours: RunFolder, theirs: RunFolder) -> str | None:
    """The first metric of a common step that differs, but for what a clock measures."""
    rows = {row["step"]: row for row in theirs.read_metrics()}
    for row in ours.read_metrics():
        step = row["step"]
        other = rows.get(step, {})
        for name in sorted(row.keys() & other.keys()):
            here = row[name]
            there = other[name]
            if not by_clock(name) and not _same(here, there):
                what = f"{name} is {here!r} here and {there!r} there"
                return f"step {step}: {what}; the one here is kept"
    return None


def _same(here: Any, there: Any) -> bool:
    both_nan = here != here and there != there
    return bool(here == there or both_nan)


def _different_samples(ours: RunFolder, theirs: RunFolder) -> str | None:
    """The first common step of a benchmark whose samples were graded otherwise."""
    for benchmark in ours.benchmarks():
        common = set(ours.eval_steps(benchmark)) & set(theirs.eval_steps(benchmark))
        for step in common:
            if _verdicts(ours, benchmark, step) != _verdicts(theirs, benchmark, step):
                return f"step {step}: the samples of {benchmark} differ; those here are kept"
    return None


def _verdicts(folder: RunFolder, benchmark: str, step: int) -> dict[tuple[str, int], bool]:
    rows = (
        read_eval(folder, benchmark, step).select(["problem_id", "sample", "correct"]).to_pylist()
    )
    return {(row["problem_id"], row["sample"]): row["correct"] for row in rows}


def _copy(theirs: Path, ours: Path) -> None:
    leftover = shutil.ignore_patterns(".*", "lease.json", "waiting.json")
    with atomic_folder(ours) as build:
        shutil.copytree(theirs, build, dirs_exist_ok=True, ignore=leftover)


def _join(layout: Layout, other: Layout, sweep: str, runs: list[str]) -> None:
    """Write the sweep's record with the runs of both."""
    try:
        theirs = other.read_sweep(sweep)
    except StoreError:
        theirs = {"name": sweep, "runs": runs, "benchmarks": []}
    try:
        ours = layout.read_sweep(sweep)
    except StoreError:
        ours = {**theirs, "runs": [], "created": theirs.get("created") or time.time()}
    current = [run for run in theirs["runs"] if run in runs and run not in ours["runs"]]
    benchmarks = list(
        dict.fromkeys([*(ours.get("benchmarks") or []), *(theirs.get("benchmarks") or [])])
    )
    layout.write_sweep({**ours, "runs": [*ours["runs"], *current], "benchmarks": benchmarks})
