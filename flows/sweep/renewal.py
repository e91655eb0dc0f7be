"""What is already there for a run, brought to what the newest file says: without training anything
again.

A run is known by what trains it (rpg.config.identity). So its folder may have been begun with other
settings that operate or evaluate, or by a version of this project that named runs by all of their
settings (format 1).
"""

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from rpg.config.identity import (
    former_identity,
    identities,
    identity,
)
from rpg.config.run_spec import RunSpec
from rpg.store import Layout, RunFolder, StoreError
from rpg.store.atomic_files import readable
from rpg.store.run_folder import folders, pending_evaluations, unreadable
from rpg.store.run_writer import reopen, write_manifest


def upgrade(layout: Layout, sweep: str, digests: Collection[str], older: Mapping[str, str]) -> None:
    """Give the run folders of older versions in a sweep their names and identities of today.

    Which data a run of format 1 had is known only through its identity, which holds the digest: of
    the `digests` of the sweep's runs the one that yields it. Of other runs, `older` maps a digest
    that an older version gave to the same data to that of today. Others (data that has changed)
    stay as they are. Can be killed at any moment.
    """
    for name in folders(layout.sweep_folder(sweep)):
        folder = layout.run(sweep, name)
        with contextlib.suppress(StoreError, ValidationError):
            manifest = folder.read_manifest()
            if folder.state() == "running":
                continue
            spec = RunSpec.model_validate(manifest["spec"])
            if "identity" in manifest:
                data = older.get(manifest["identity"]["data"])
            else:
                fitting = (d for d in digests if former_identity(spec, d) == manifest["run_id"])
                data = next(fitting, None)
            if data is None:
                continue
            run_id = identity(spec, data)
            old = manifest["run_id"]
            renamed = layout.run(sweep, name.removesuffix(old[:8]) + run_id[:8])
            if name.endswith(old[:8]) and not renamed.path.exists():
                with readable("rename", folder.path):
                    folder.path.rename(renamed.path)
                folder = renamed
            write_manifest(folder, {**manifest, **identities(spec, data), "run": folder.name})


def renew(folder: RunFolder, wanted: Mapping[str, Any]) -> None:
    """Bring the manifest of the same run to the `wanted` one, and its evaluations to what that
    promises.

    What says how the run began (versions, revision, machine, time) stays.
    """
    manifest = folder.read_manifest()
    began = ("versions", "git_revision", "machine", "created")
    fresh = {name: value for name, value in wanted.items() if name not in began}
    before = manifest.get("evaluation_id", fresh["evaluation_id"])
    if before != fresh["evaluation_id"]:
        _swap_evaluations(folder, before, fresh["evaluation_id"])
    elif fresh["samples"] > manifest.get("samples", fresh["samples"]):
        _extend_samples(folder)
    fresh["eval_steps"] = _possible(folder, manifest, fresh["eval_steps"])
    if any(manifest.get(name) != value for name, value in fresh.items()):
        write_manifest(folder, {**manifest, **fresh})
    if folder.done_path.exists() and (pending_evaluations(folder) or unreadable(folder.done_path)):
        reopen(folder)


def _possible(folder: RunFolder, manifest: Mapping[str, Any], wanted: list[int]) -> list[int]:
    """The steps whose checkpoints are there, are still to come, or were promised before.

    A checkpoint that was dropped because nobody had asked for it would have to be trained again.
    """
    available = set(folder.checkpoint_steps()) | set(manifest["eval_steps"])
    newest = max(folder.checkpoint_steps(), default=-1)
    return [step for step in wanted if step > newest or step in available]


def _swap_evaluations(folder: RunFolder, before: str, after: str) -> None:
    """Samples drawn in another way stay aside, and come back when that way is asked for again."""
    if folder.done_path.exists():
        reopen(folder)
    evals = folder.path / "evals"
    aside = folder.path / f"evals-{before}"
    back = folder.path / f"evals-{after}"
    with readable("rename", evals):
        if evals.exists() and not aside.exists():
            evals.rename(aside)
        if back.exists() and not evals.exists():
            back.rename(evals)


def _extend_samples(folder: RunFolder) -> None:
    """Evaluations whose checkpoint is there become the beginning of one with more samples."""
    for benchmark in folder.benchmarks():
        for step in folder.eval_steps(benchmark):
            if folder.checkpoint(step).exists():
                samples = folder.eval_path(benchmark, step)
                with readable("rename", samples):
                    samples.rename(folder.fewer_path(benchmark, step))
