"""What is already there for a run, brought to what the newest file says: without training anything
again.

A run is known by what trains it (rpg.config.identity). So its folder may have been begun with other
settings that operate or evaluate, or by a version of this project that computed the digest of its
data in another way.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from rpg.config.errors import ConfigError
from rpg.config.evaluation import Evaluation
from rpg.config.identity import identities
from rpg.config.load import spec_of
from rpg.store import Layout, RunFolder, StoreError
from rpg.store.atomic_files import readable
from rpg.store.current import current_runs, is_imported
from rpg.store.run_folder import folders, pending_evaluations, unreadable
from rpg.store.run_writer import reopen, write_manifest


def refuse_older_format(layout: Layout, sweep: str) -> None:
    """Raises StoreError: a run of the newest file is of format 1, which named runs by all of their
    settings. It cannot be told what it trained with; the database reads what it has finished."""
    for folder in current_runs(layout, sweep):
        if _is_of_format_1(folder):
            raise StoreError(
                f"{folder.path}: a run of an older format (1), which is not continued; its results "
                "are still read. Run the sweep beside it under another name (--name), "
                "or move that folder away"
            )


def _is_of_format_1(folder: RunFolder) -> bool:
    if is_imported(folder):
        return False
    try:
        return "identity" not in folder.read_manifest()
    except StoreError:  # there is none, or a torn one, which is written again
        return False


def renew_digests(layout: Layout, sweep: str, older: Mapping[str, str]) -> None:
    """Name run folders by today's digest of their data. `older` maps a digest that an older version
    gave to the same data to that of today; runs of other data stay as they are. Can be killed at
    any moment.
    """
    for name in folders(layout.sweep_folder(sweep)):
        folder = layout.run(sweep, name)
        with contextlib.suppress(StoreError, ConfigError):
            manifest = folder.read_manifest()
            data = older.get(manifest["identity"]["data"]) if "identity" in manifest else None
            if data is None or folder.state() == "running":
                continue
            spec = spec_of(folder)
            new = identities(spec, data)
            former = manifest["run_id"][:8]
            renamed = layout.run(sweep, name.removesuffix(former) + new["run_id"][:8])
            if name.endswith(former) and not renamed.path.exists():
                with readable("rename", folder.path):
                    folder.path.rename(renamed.path)
                folder = renamed
            write_manifest(folder, {**manifest, **new, "run": folder.name})


def renew(folder: RunFolder, wanted: Mapping[str, Any]) -> None:
    """Bring the manifest of the same run to the `wanted` one, and its evaluations to what that
    promises.

    What says how the run began (versions, revision, machine, time) stays.
    """
    manifest = folder.read_manifest()
    began = ("versions", "git_revision", "machine", "created")
    fresh = {name: value for name, value in wanted.items() if name not in began}
    if not manifest["spec"].get("evaluation", {}).get("early", False):
        fresh = without_early_evaluations(fresh)
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


def without_early_evaluations(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a run that began without evaluations of its first steps, as runs did before
    these were the default: it owes none of them, even if their checkpoints are there."""
    given = {**manifest["spec"]["evaluation"], "early": False}
    steps = Evaluation.model_validate(given).steps(manifest["steps"])
    spec = {**manifest["spec"], "evaluation": given}
    return {**manifest, "spec": spec, "eval_steps": list(steps)}


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
