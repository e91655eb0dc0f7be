"""Runs that several sweeps have in common are computed once.

Two runs are the same when their identities are (rpg.config.identity); a longer run goes on where a
shorter one ended that is the same otherwise. While a sweep works on a run, from the start of its
training to its last evaluation, it holds the kernel lock of that identity. A sweep that comes to
the same run meanwhile does its others first, then waits, then takes over the finished files as hard
links.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

from flows.machine.disk_space import WaitingNote
from rpg.store import Layout, RunFolder, StoreError, locks
from rpg.store.atomic_files import atomic_folder, atomic_path, atomic_write_json, link, readable
from rpg.store.run_folder import folders
from rpg.store.run_writer import note_removed, write_manifest
from rpg.store.samples import drift_path, write_fewer


class Claims:
    """The identities this sweep holds; `take` never waits."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._held: dict[str, locks.Lock] = {}
        self._notes: dict[str, WaitingNote] = {}
        self._run_id = cache(lambda folder: folder.read_manifest()["run_id"])
        # With 1,000 runs these are what a search costs. A folder's time changes when one comes into
        # it or goes; what a manifest says here never changes.
        self._names = lru_cache(lambda path, _changed: folders(path))
        self._known = cache(_known)

    def take(self, folder: RunFolder) -> bool:
        """Claim the run's identity; False while another sweep (its waiting note names it) or
        another host works on it."""
        path = self._layout.runs / ".claims" / self._run_id(folder)
        lock = locks.take(path, {"sweep": folder.sweep})
        if lock is None:
            holder = f"{locks.note(path).get('sweep', '?')} ({locks.who(path)})"
            note = self._notes.setdefault(folder.name, WaitingNote(folder))
            note.write(f"waits for the same run of sweep {holder}")
            return False
        if folder.holder():  # somebody's who has no claim that could be seen from here
            lock.close()
            return False
        self._held[folder.name] = lock
        return True

    def fd(self, folder: RunFolder) -> int:
        return self._held[folder.name].fd

    def release(self, folder: RunFolder) -> None:
        lock = self._held.pop(folder.name, None)
        if lock:
            lock.close()

    def close(self) -> None:
        while self._held:
            self._held.popitem()[1].close()

    def duplicate(self, folder: RunFolder) -> RunFolder | None:
        """The furthest folder of the same run elsewhere, else of a shorter one; None when this one
        is as far."""
        manifest = folder.read_manifest()
        steps_here = progress(folder)
        same = []
        shorter = []
        for other, run_id, root, steps in self._runs():
            if run_id == manifest["run_id"]:
                same.append(other)
            elif root and root == manifest.get("root_id") and steps < manifest["steps"]:
                shorter.append(other)
        for others in (same, (other for other in shorter if other.state() != "running")):
            furthest = max(others, key=progress, default=folder)
            if progress(furthest) > steps_here:
                return furthest
        return None

    def _runs(self) -> Iterator[tuple[RunFolder, str, str | None, int]]:
        """(folder, identity, root, steps) of every run that is not set aside."""
        for sweep in self._layout.sweeps():
            path = self._layout.sweep_folder(sweep)
            for name in self._names(path, path.stat().st_mtime_ns) if path.exists() else ():
                folder = self._layout.run(sweep, name)
                with contextlib.suppress(StoreError):
                    yield folder, *self._known(folder)


def _known(folder: RunFolder) -> tuple[str, str | None, int]:
    manifest = folder.read_manifest()
    if "outdated" in manifest:  # by an earlier version, since older code had trained it
        raise StoreError(f"{folder.path} is set aside")
    return manifest["run_id"], manifest.get("root_id"), manifest["steps"]


def progress(folder: RunFolder) -> tuple[int, int]:
    """(newest checkpoint, evaluations), to compare folders of the same run."""
    steps = folder.checkpoint_steps()
    return (
        steps[-1] if steps else -1,
        sum(len(folder.eval_steps(name)) for name in folder.benchmarks()),
    )


def take_over(folder: RunFolder, source: RunFolder) -> None:
    """Bring what `source` has into `folder`; can be killed at any moment and done again.

    Metrics come first, because a checkpoint implies the metrics of its steps; they are copied, as
    only they are ever appended to. Checkpoints and graded samples never change once they are in
    place, so they are linked: the samples first, because an evaluator draws its own for a
    checkpoint that it finds without them.
    """
    for number, attempt in enumerate(source.attempts(), folder.next_attempt()):
        if source.provenance_path(attempt).exists():
            with atomic_path(folder.provenance_path(number)) as temporary:
                shutil.copyfile(source.provenance_path(attempt), temporary)
        with atomic_path(folder.metrics_path(number)) as temporary:
            shutil.copyfile(source.metrics_path(attempt), temporary)
    mine = folder.read_manifest()
    theirs = source.read_manifest()
    if mine.get("evaluation_id") == theirs.get("evaluation_id", mine.get("evaluation_id")):
        note_removed(folder, source.removed_steps())
        for benchmark in mine.get("benchmarks", source.benchmarks()):
            for step in source.eval_steps(benchmark):
                if step in mine["eval_steps"] and not folder.eval_path(benchmark, step).exists():
                    _take_evaluation(folder, source, benchmark, step)
    if theirs.get("ended") and theirs["run_id"] == mine["run_id"]:
        write_manifest(folder, {**mine, "ended": theirs["ended"]})
    for step in source.checkpoint_steps():
        if not folder.checkpoint(step).exists():
            _link_tree(source.checkpoint(step), folder.checkpoint(step))
    _promise_what_is_there(folder, source)
    origin = {"sweep": source.sweep, "run": source.name, "time": time.time()}
    atomic_write_json(folder.path / "shared.json", origin)


def _take_evaluation(folder: RunFolder, source: RunFolder, benchmark: str, step: int) -> None:
    """An evaluation in the same way, with as many samples as this run asks for."""
    wanted = folder.read_manifest().get("samples", 0)
    drawn = source.read_manifest().get("samples", 0)
    has_weights = folder.checkpoint(step).exists() or source.checkpoint(step).exists()
    samples = source.eval_path(benchmark, step)
    target = folder.eval_path(benchmark, step)
    with readable("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if drawn == wanted or (drawn < wanted and not has_weights):
            if drift_path(samples).exists():  # before the samples, which say that all is there
                link(drift_path(samples), drift_path(target))
            link(samples, target)
        elif drawn < wanted:
            link(samples, folder.fewer_path(benchmark, step))
        elif not has_weights:
            write_fewer(samples, target, wanted)
        # Else the evaluator takes the samples that are stored, and measures how far they moved.


def _promise_what_is_there(folder: RunFolder, source: RunFolder) -> None:
    """Take from the manifest the evaluations of checkpoints that `source` did not keep because it
    had not been asked to evaluate them: they would have to be trained again."""
    manifest = folder.read_manifest()
    newest = max(source.checkpoint_steps(), default=-1)
    kept = {*folder.checkpoint_steps(), *source.read_manifest().get("eval_steps", [])}
    steps = [step for step in manifest["eval_steps"] if step > newest or step in kept]
    if steps != manifest["eval_steps"]:
        write_manifest(folder, {**manifest, "eval_steps": steps})


def _link_tree(source: Path, target: Path) -> None:
    """A folder of links; nothing when the source is pruned meanwhile."""
    try:
        with atomic_folder(target) as build:
            for at, _, names in os.walk(source):
                inside = build / Path(at).relative_to(source)
                inside.mkdir(exist_ok=True)
                for name in names:
                    link(Path(at) / name, inside / name)
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
