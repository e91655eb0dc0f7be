"""The checkpoints of a run as files, whichever back end writes them.

    checkpoints/step-000040/
        model.safetensors, config.json, tokenizer.json, ...   loads with from_pretrained
        checkpoint.json                                       sizes and digests of these files
        training/state.json, ...                              what is needed to resume from here

A checkpoint is built in a temporary folder, flushed and renamed into place; when the training state
is dropped, state.json is removed first, so its presence means that the state is complete.
"""

import contextlib
import hashlib
import itertools
import math
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import (
    StoreError,
    atomic_write_json,
    fsync_folder,
    fsync_tree,
    read_json_object,
)
from rpg.store.run_folder import RunFolder, pending_evaluations
from rpg.store.run_writer import clear_waiting, note_removed, write_waiting
from rpg.store.samples import accuracy

FORMAT = 1
WEIGHTS = ".safetensors"
_KEEP = 2
"""Number of newest checkpoints that keep their training state."""


Keep = str | Collection[int]
"""Which evaluated checkpoints keep their weights: `all`, `last`, `best` (and the last), or these
steps and the last."""
KEEP = "best"


class CheckpointFolder:
    """The checkpoints of one run; `eval_steps` are the steps to evaluate, `keep` says which of them
    stay afterwards."""

    def __init__(self, folder: RunFolder, eval_steps: Collection[int], keep: Keep = KEEP):
        self.folder, self.eval_steps, self.keep = folder, set(eval_steps), keep

    def publish(self, build: Path, final: Path) -> None:
        """Flush a checkpoint from its temporary folder to disk and rename it into place."""
        fsync_tree(build)
        if final.exists():
            discard(final)
        build.replace(final)
        fsync_folder(final.parent)

    def wait_for_space(self, needed: float, say: Callable[[str], None]) -> None:
        """Pause, and say so, until this many bytes are free: a full disk would end the run."""
        waiting = False
        while (free := shutil.disk_usage(self.folder.path).free) < needed:
            why = (
                f"waits for disk space: {free / 1e6:,.0f} MB free, {needed / 1e6:,.0f} MB "
                f"needed in {self.folder.path}; "
                "it continues when there is enough (rpg gc frees some)"
            )
            if not waiting:
                say(why)
                with contextlib.suppress(StoreError):
                    write_waiting(self.folder, why)
            waiting = True
            self.prune()  # what was evaluated in the meantime
            time.sleep(2.0)
        if waiting:
            clear_waiting(self.folder)
            say("continues: there is enough disk space again")

    def superfluous(self, newest: int = 1) -> tuple[list[int], list[int]]:
        """(steps whose checkpoint is no longer needed, steps whose training state is no longer
        needed)."""
        steps = self.folder.checkpoint_steps()
        try:
            pending = {step for _, step in pending_evaluations(self.folder)}
        except StoreError:  # without a manifest it is unknown what has been evaluated
            pending = self.eval_steps
        stay = self.eval_steps & (
            pending | self._kept([step for step in steps if step not in pending])
        )
        with_state = [step for step in steps if self._has_state(step)]
        # The newest may hold weights alone, from which no training goes on.
        needed = {*steps[-newest:], *with_state[-newest:]}
        weights = [step for step in steps if step not in needed and step not in stay]
        states = [step for step in with_state if step not in needed and step in stay]
        return weights, states

    def _has_state(self, step: int) -> bool:
        return (self.folder.checkpoint(step) / "training").exists()

    def prune(self, newest: int = _KEEP) -> None:
        """Keep checkpoints that are not evaluated yet, those of `keep`, and the newest ones with
        their training states. After the end of a run, `newest` is 1: only the last checkpoint keeps
        its training state, to continue from."""
        gone, idle = self.superfluous(newest)
        evaluated = self.eval_steps.intersection(gone)
        if evaluated:  # recorded first, so that they do not count as lost and are not trained again
            note_removed(self.folder, evaluated)
        for step in gone:
            discard(self.folder.checkpoint(step))
        for step in idle:
            discard_training(self.folder.checkpoint(step) / "training")

    def _kept(self, evaluated: list[int]) -> set[int]:
        """The evaluated steps to keep, besides the last, which is always kept."""
        if self.keep == "all":
            return set(evaluated)
        if not isinstance(self.keep, str):
            return set(evaluated).intersection(self.keep)
        scored = {step: self._score(step) for step in evaluated if step in self.eval_steps}
        best = self.keep == "best" and scored
        return {min(scored, key=lambda step: (-scored[step], step))} if best else set()

    def _score(self, step: int) -> float:
        """Mean accuracy over the run's benchmarks, like `last_best` in the database; evaluations
        never change."""
        try:
            return accuracy(self.folder, self.folder.read_manifest()["benchmarks"], step) or 0.0
        except StoreError:  # an unreadable one may have been the best
            return math.inf

    def resumable(self, missing: Collection[int], warn: Callable[[str], None]) -> Path | None:
        """The newest complete checkpoint from which everything pending can still be reached; None
        to start over.

        `missing` are steps with a pending evaluation: their checkpoint must exist or be trained
        again. A damaged checkpoint is set aside as `*.corrupt`, with a warning. Checkpoints later
        than the one returned are removed, since they will be written again.
        """
        for leftover in self.folder.checkpoints.glob(".step-*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        whole = []
        trainable = []
        for step in self.folder.checkpoint_steps():
            path = self.folder.checkpoint(step)
            begun = (path / "training" / "state.json").exists()
            state = path / "training"
            damage = damaged(path) or (damaged(state, "state.json") if begun else None)
            if damage:
                names = (
                    f"{path.name}.corrupt{f'-{n}' if n > 1 else ''}" for n in itertools.count(1)
                )
                aside = path.replace(
                    next(name for name in map(path.with_name, names) if not name.exists())
                )
                warn(f"warning: {path}: {damage}; set aside as {aside.name}, continuing without it")
                continue
            whole.append(step)
            if begun:
                trainable.append(step)
        lost = [step for step in missing if whole and step < whole[-1] and step not in whole]
        usable = [step for step in trainable if not lost or step < min(lost)]
        chosen = usable[-1] if usable else None
        for step in whole:
            if chosen is None or step > chosen:
                discard(self.folder.checkpoint(step))
        return None if chosen is None else self.folder.checkpoint(chosen)


def checkpoints_of(folder: RunFolder) -> CheckpointFolder:
    """The checkpoints of a run, kept by the rule in its manifest. Raises StoreError: no readable
    manifest."""
    manifest = folder.read_manifest()
    keep = manifest["spec"].get("training", {}).get("keep_checkpoints", KEEP)
    return CheckpointFolder(folder, manifest["eval_steps"], keep)


def model_digest(checkpoint: Path) -> str:
    """Digest of a checkpoint's weights, as recorded. Adapters beside merged weights do not count:
    those of a model that has not been trained yet differ, and change nothing. Of adapters alone
    they count, with the record of their base."""
    files = read_json_object(checkpoint / "checkpoint.json")["files"]
    whole = [name for name in files if name.endswith(WEIGHTS) and "/" not in name]
    alone = [name for name in files if "/" in name]
    weights = [files[name]["sha256"] for name in sorted(whole or alone)]
    return (
        weights[0] if len(weights) == 1 else hashlib.sha256("".join(weights).encode()).hexdigest()
    )


def model_files_digest(folder: Path, home: Path) -> str:
    """Digest of a model's weights, configuration and tokenizer: as its checkpoint recorded them, or
    of the files (once per state of the folder, since large ones take a while)."""
    record = folder / "checkpoint.json"
    if not record.is_file():
        seen = [
            (p.name, p.stat().st_size, p.stat().st_mtime_ns)
            for p in folder.iterdir()
            if p.is_file()
        ]
        state = hashlib.sha256(repr((str(folder.resolve()), sorted(seen))).encode()).hexdigest()
        record = home / "cache" / "digests" / f"{state[:32]}.json"
        if not record.is_file():
            atomic_write_json(record, {"files": digests(folder)})
    files = read_json_object(record)["files"]
    parts = sorted((name, file["sha256"]) for name, file in files.items() if name != "README.md")
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def damaged(folder: Path, record: str = "checkpoint.json") -> str | None:
    """What is wrong with the files of a checkpoint, or of its training state, whose `record` lists
    them, in a few words; None if they are complete.
    """
    try:
        files = read_json_object(folder / record)["files"]
        for name, expected in files.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != expected["bytes"]:
                return f"{name} has {path.stat().st_size} bytes instead of {expected['bytes']}"
            if "sha256" in expected and digest(path) != expected:
                return f"{name} is corrupt (its digest differs)"
    except (StoreError, OSError, KeyError, TypeError, AttributeError) as error:
        return f"{record} is unreadable ({error})"
    return None


def file_states(checkpoint: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of the files of a checkpoint, without its training state: while they stay
    the same, `damaged` need not read the files again."""
    names = [path.relative_to(checkpoint) for path in checkpoint.rglob("*") if path.is_file()]
    statuses = {
        name.as_posix(): (checkpoint / name).stat()
        for name in sorted(names)
        if name.parts[0] != "training"
    }
    return [(name, status.st_size, status.st_mtime_ns) for name, status in statuses.items()]


def digests(folder: Path) -> dict[str, dict[str, Any]]:
    """{name: {bytes, sha256}} of the files in a folder."""
    return {path.name: digest(path) for path in sorted(folder.iterdir()) if path.is_file()}


def digest(path: Path) -> dict[str, Any]:
    with open(path, "rb") as handle:
        value = hashlib.file_digest(handle, "sha256").hexdigest()
        return {"bytes": handle.tell(), "sha256": value}


def discard(path: Path) -> None:
    """Remove a checkpoint so that no reader sees half of it."""
    trash = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(trash, ignore_errors=True)
    path.replace(trash)
    shutil.rmtree(trash, ignore_errors=True)


def discard_training(state: Path) -> None:
    """Remove a training state so that no reader takes what is left of it for a whole one."""
    (state / "state.json").unlink(missing_ok=True)
    shutil.rmtree(state, ignore_errors=True)
