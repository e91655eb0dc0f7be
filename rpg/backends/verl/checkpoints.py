"""verl's checkpoints as checkpoints of the run: a Hugging Face model that anything can load, with
verl's own state inside.

    checkpoints/step-000040/
        model.safetensors, config.json, ...   merged by verl, from `actor/huggingface/`
        training/global_step_40/              verl's folder, for going on:
            actor/...        weights, optimizer, random state; huggingface/ is the model
            reference/...    the reference policy, if it has its own weights
            rpg.json         counters and reference schedule; written last, atomically

A step that is evaluated and is none of training.checkpoint_every has the model alone.

A folder without rpg.json is what a kill left behind: verl's own latest_checkpointed_iteration.txt
may be empty. Imports neither verl nor torch.
"""

import json
import os
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from rpg.store.atomic_files import (
    StoreError,
    atomic_write_json,
    fsync_tree,
    link,
    read_json_object,
    readable,
)
from rpg.store.checkpoints import FORMAT, CheckpointFolder, Keep, digests
from rpg.store.run_folder import RunFolder

STATE_FORMAT = 1


@dataclass(frozen=True)
class State:
    """The driver's part of a run."""

    step: int
    optimizer_step: int
    tokens: int
    """Response tokens sampled so far."""
    reference: dict[str, Any]
    """`renewed_at`, `average`, `kept` (whether it has its own weights)."""
    world_size: int
    critic_updates: int = 0
    resumable: bool = True
    """Whether a training can go on from it; else it is the model alone."""

    def write(self, folder: Path) -> None:
        """Raises: StoreError"""
        atomic_write_json(folder / "rpg.json", {"format": STATE_FORMAT, **asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises: StoreError"""
        path = Path(folder) / "rpg.json"
        value = read_json_object(path)
        if value.pop("format", None) != STATE_FORMAT:
            raise StoreError(f"{path}: written by another version of this program")
        try:
            return cls(**value)
        except TypeError as error:
            raise StoreError(f"{path}: {error}") from error


def finished(state: Path) -> list[tuple[int, Path]]:
    """(step, folder) of verl's finished checkpoints in the folder it saves to, ascending."""
    folders = (path.parent for path in state.glob("global_step_*/rpg.json"))
    return sorted((int(folder.name.rpartition("_")[2]), folder) for folder in folders)


def newest(state: Path) -> Path | None:
    """The last of :func:`finished` from which a training can go on; None if there is none."""
    folders = [folder for _, folder in reversed(finished(state))]
    return next((folder for folder in folders if State.read(folder).resumable), None)


_UNUSED = (".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5", ".onnx")
"""Other formats of the same weights, which a model from the hub may contain."""


class VerlCheckpoints(CheckpointFolder):
    """Moves verl's checkpoints from `state`, the folder it saves to, into the run's."""

    def __init__(
        self, folder: RunFolder, steps: Collection[int], state: Path, keep: Keep, bfloat16: bool
    ):
        super().__init__(folder, steps, keep)
        self.state = state
        self.bfloat16 = bfloat16

    def adopt(self, step: int, source: Path) -> None:
        """Publish verl's checkpoint `source`, then drop what is no longer needed. Raises
        StoreError: verl left no model in it, or it cannot be moved.
        """
        build = self._begin(step)
        model = source / "actor" / "huggingface"
        state = State.read(source)
        self._fill(build, model, step, state.optimizer_step, self.bfloat16)
        if not state.resumable:
            self.publish(build, self.folder.checkpoint(step))
            shutil.rmtree(source)
            self.prune()
            return
        with readable("write", build):
            fsync_tree(source)
            files = (p for p in sorted(source.rglob("*")) if p.is_file() and not self._exported(p))
            sizes = {str(p.relative_to(source.parent)): {"bytes": p.stat().st_size} for p in files}
            (build / "training").mkdir()
            record = {"format": FORMAT, "step": step, "files": sizes}
            (build / "training" / "state.json").write_text(json.dumps(record, indent=1))
            # Last, so that after a kill either verl's folder is still there or the checkpoint is in
            # place.
            source.replace(build / "training" / source.name)
            final = self.folder.checkpoint(step)
            self.publish(build, final)
            for path in (final / "training" / source.name).rglob("*.safetensors"):
                if self._exported(path):
                    path.unlink()
        self.prune()

    def _exported(self, path: Path) -> bool:
        """Whether a file of verl's folder is the float32 model, which the checkpoint has in
        bfloat16."""
        return self.bfloat16 and path.parent.name == "huggingface" and path.suffix == ".safetensors"

    def begin_with(self, model: Path) -> None:
        """Publish the initial model as checkpoint 0, unless that exists."""
        if 0 not in self.folder.checkpoint_steps():
            build = self._begin(0)
            self._fill(build, model, 0, 0)
            self.publish(build, self.folder.checkpoint(0))

    def rescue(self) -> None:
        """Move verl's folders back that a kill left in an unfinished checkpoint."""
        for path in self.folder.checkpoints.glob(".step-*.tmp/training/global_step_*"):
            target = self.state / path.name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)

    def resume_path(self, checkpoint: Path | None) -> Path | None:
        """verl's folder in a published checkpoint."""
        return (
            min((checkpoint / "training").glob("global_step_*"), default=None)
            if checkpoint
            else None
        )

    def _begin(self, step: int) -> Path:
        final = self.folder.checkpoint(step)
        build = final.with_name(f".{final.name}.tmp")
        with readable("write", final):
            shutil.rmtree(build, ignore_errors=True)
            build.mkdir(parents=True)
        return build

    def _fill(
        self, build: Path, model: Path, step: int, optimizer_step: int, half: bool = False
    ) -> None:
        with readable("read", model):
            files = [p for p in sorted(model.iterdir()) if p.is_file() and p.suffix not in _UNUSED]
        if not any(path.suffix == ".safetensors" for path in files):
            raise StoreError(
                f"{model}: no *.safetensors file in it; expected a whole Hugging Face model"
            )
        with readable("write", build):
            for path in files:
                link(Path(os.path.realpath(path)), build / path.name)
            if half:
                from rpg.models.model_loading import halve  # noqa: PLC0415 (torch: only where it is needed)

                halve(build)
            record = {"format": FORMAT, "step": step, "optimizer_step": optimizer_step}
            (build / "checkpoint.json").write_text(
                json.dumps(record | {"files": digests(build)}, indent=1)
            )
            fsync_tree(build)
