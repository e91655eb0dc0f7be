"""Checkpoints: a Hugging Face model folder plus what is needed to go on bit for bit.

    checkpoints/step-000040/model.safetensors, config.json, tokenizer.json, ...   loads with from_pretrained
                            checkpoint.json                                       sizes and digests of these files
                            training/state.json, optimizer.safetensors, reference.safetensors

A checkpoint is built aside, flushed and renamed into place; state.json is the first file of training/ to go when the
training state is dropped, so its presence says that the state is whole. No file is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from rpg.backends.local.policy import Policy
from rpg.data import fsync_tree
from rpg.store.files import StoreError, fsync_folder, read_json_object, readable
from rpg.store.run import RunFolder

FORMAT = 1
_MODEL = "model.safetensors"
_KEEP = 2
"""So many of the newest checkpoints keep their training state."""


class Checkpoints:
    """Writes the checkpoints of one run and keeps only what is owed."""

    def __init__(self, folder: RunFolder, owed: Collection[int]):
        self.folder, self.owed = folder, set(owed)
        self._last: Path | None = None
        self._digests: dict[str, dict[str, Any]] = {}
        self._keys: list[str] | None = None

    def save(
        self,
        step: int,
        policy: Policy,
        state: dict[str, Any],
        optimizer: dict[str, Tensor],
        reference: dict[str, Tensor] | None,
    ) -> None:
        """Write the checkpoint of `step`, then drop what is no longer needed.

        Raises:
            StoreError: it cannot be written (the message names the folder); what was there before is unharmed.
        """
        final = self.folder.checkpoint(step)
        build = final.with_name(f".{final.name}.tmp")
        try:
            with readable("write", final):
                shutil.rmtree(build, ignore_errors=True)
                (build / "training").mkdir(parents=True)
                self._write_model(policy, build)
                save_file(optimizer, build / "training" / "optimizer.safetensors")
                if reference is not None:
                    save_file(reference, build / "training" / "reference.safetensors")
                state = {"format": FORMAT, "step": step, **state, "files": _digests(build / "training")}
                (build / "training" / "state.json").write_text(json.dumps(state, indent=1))
                digests = {"format": FORMAT, "step": step, "optimizer_step": state["optimizer_step"]}
                (build / "checkpoint.json").write_text(
                    json.dumps(digests | {"files": self._digests}, indent=1)
                )
                fsync_tree(build)
                if final.exists():
                    _discard(final)
                build.replace(final)
                fsync_folder(final.parent)
        except SafetensorError as error:
            raise StoreError(f"cannot write {final}: {error}") from error
        finally:
            shutil.rmtree(build, ignore_errors=True)
        self._last = final
        self.prune()

    def _write_model(self, policy: Policy, build: Path) -> None:
        """Weights anew; config and tokenizer, which never change, as links to those of the last checkpoint."""
        weights = policy.model.state_dict()
        if self._last is None or self._keys is None:
            policy.model.save_pretrained(build, max_shard_size="1000GB")
            policy.tokenizer.save_pretrained(build)
            with safe_open(build / _MODEL, "pt") as file:
                keys = list(file.keys())
            # A model that is stored under other names than its own takes the slow way every time.
            self._keys = keys if all(key in weights for key in keys) else None
            self._digests = _digests(build)
            return
        for name in self._digests:
            if name != _MODEL:
                _link(self._last / name, build / name)
        tensors = {key: weights[key].contiguous() for key in self._keys}
        save_file(tensors, build / _MODEL, metadata={"format": "pt"})
        self._digests = {**self._digests, _MODEL: _digest(build / _MODEL)}

    def prune(self) -> None:
        """Keep checkpoints owed an evaluation and the newest ones; training states of the newest ones only."""
        for step in self.folder.checkpoint_steps()[:-_KEEP]:
            path = self.folder.checkpoint(step)
            if step not in self.owed:
                _discard(path)
            elif (path / "training").exists():
                (path / "training" / "state.json").unlink(missing_ok=True)
                shutil.rmtree(path / "training", ignore_errors=True)

    def resumable(self, missing: Collection[int], warn: Callable[[str], None]) -> Path | None:
        """The newest whole checkpoint from which everything owed can still come; None to begin at the beginning.

        `missing` are steps whose evaluation is owed: their checkpoint must be there, or come again. A checkpoint that
        is not whole is set aside as `*.corrupt`, with a warning. Later checkpoints than the one returned are removed:
        they will be made again.
        """
        for leftover in self.folder.checkpoints.glob(".step-*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        whole, trainable = [], []
        for step in self.folder.checkpoint_steps():
            path = self.folder.checkpoint(step)
            begun = (path / "training" / "state.json").exists()
            damage = damaged(path) or (damaged_training(path) if begun else None)
            if damage:
                aside = _set_aside(path)
                warn(f"warning: {path}: {damage}; set aside as {aside.name}, going on without it")
                continue
            whole.append(step)
            if begun:
                trainable.append(step)
        lost = [step for step in missing if whole and step < whole[-1] and step not in whole]
        found = [step for step in trainable if not lost or step < min(lost)]
        chosen = found[-1] if found else None
        for step in whole:
            if chosen is None or step > chosen:
                _discard(self.folder.checkpoint(step))
        return None if chosen is None else self.folder.checkpoint(chosen)


def damaged(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint's model files, in a few words; None for a whole one."""
    return _damage(checkpoint, checkpoint / "checkpoint.json")


def damaged_training(checkpoint: Path) -> str | None:
    """The same for its training state."""
    return _damage(checkpoint / "training", checkpoint / "training" / "state.json")


def load_training(checkpoint: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor] | None]:
    """(state, optimizer tensors, reference weights or None) of a whole checkpoint."""
    folder = checkpoint / "training"
    state = read_json_object(folder / "state.json")
    reference = folder / "reference.safetensors"
    tensors = load_file(folder / "optimizer.safetensors")
    return state, tensors, load_file(reference) if reference.exists() else None


def model_digest(checkpoint: Path) -> str:
    """Digest of a checkpoint's weights, as recorded."""
    return read_json_object(checkpoint / "checkpoint.json")["files"][_MODEL]["sha256"]


def _damage(folder: Path, record: Path) -> str | None:
    try:
        files = read_json_object(record)["files"]
        for name, expected in files.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != expected["bytes"]:
                return f"{name} has {path.stat().st_size} bytes instead of {expected['bytes']}"
            if _digest(path) != expected:
                return f"{name} is corrupt (its digest differs)"
    except (StoreError, OSError, KeyError, TypeError, AttributeError) as error:
        return f"{record.name} is unreadable ({error})"
    return None


def _digests(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.name: _digest(path) for path in sorted(folder.iterdir()) if path.is_file()}


def _digest(path: Path) -> dict[str, Any]:
    with open(path, "rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
        return {"bytes": handle.tell(), "sha256": digest}


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


def _discard(path: Path) -> None:
    """Remove a checkpoint so that nobody sees half of it."""
    trash = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(trash, ignore_errors=True)
    path.replace(trash)
    shutil.rmtree(trash, ignore_errors=True)


def _set_aside(path: Path) -> Path:
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}.corrupt" if number == 1 else f"{path.name}.corrupt-{number}")
        if not aside.exists():
            path.replace(aside)
            return aside
    raise StoreError(f"cannot set {path} aside: 999 damaged copies of it are there already")
