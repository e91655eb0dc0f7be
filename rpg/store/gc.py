"""Removing files from a data folder: weights that are no longer needed, leftovers, and the trash.

`remove` moves a run or a sweep to `<home>/trash/<date>-<name>/`, so that a mistake can be undone
until the next `rpg gc`, which empties the trash.
"""

import itertools
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rpg.store import locks
from rpg.store.atomic_files import StoreError, read_json_object, readable
from rpg.store.checkpoints import checkpoints_of, discard, discard_training, model_files_digest
from rpg.store.draws import SETTINGS
from rpg.store.layout import Layout
from rpg.store.notes import place
from rpg.store.run_folder import RunFolder, folders
from rpg.store.run_writer import note_removed

TRASH = "trash"


@dataclass(frozen=True)
class Item:
    """Something that `rpg gc` would remove; `size` is the number of bytes it frees."""

    path: Path
    why: str
    size: int


def garbage(layout: Layout) -> list[Item]:
    """Everything that is no longer needed. Running runs are left alone."""
    items = [_item(path, "trash") for path in _entries(layout.home / TRASH)]
    gone = "samples of a checkpoint that is gone (its evaluations keep them)"
    items += [_item(path, gone) for path in _unused(layout)]
    for sweep in layout.sweeps():
        for name in folders(layout.sweep_folder(sweep)):
            folder = layout.run(sweep, name)
            # os.path, as pathlib raises for a file in a folder that this user may not read.
            if os.path.exists(folder.manifest_path) and folder.state() != "running":
                items += _of_run(folder)
    return [item for item in items if item.size]


def _unused(layout: Layout) -> Iterator[Path]:
    """Stored samples to which none can be added: of checkpoints of runs that are on disk no more.
    Those of models outside of this folder stay, and all where runs of others cannot be read."""
    runs = [run for sweep in layout.sweeps() for run in layout.run_folders(sweep)]
    if layout.closed_sweeps() or any(run.is_closed() for run in runs):
        return
    models = {
        model_files_digest(run.checkpoint(step), layout.home)
        for run in runs
        for step in run.checkpoint_steps()
        if (run.checkpoint(step) / "checkpoint.json").is_file()
    }
    for path in _entries(layout.samples):
        settings = read_json_object(path / SETTINGS) if (path / SETTINGS).is_file() else {}
        of_run = str(settings.get("of", "")).startswith(f"{layout.runs.name}/")
        if of_run and settings.get("model") not in models:
            yield path


def collect(items: list[Item]) -> None:
    """Remove them; one that another process has removed in the meantime is not an error."""
    for item in items:
        with readable("remove", item.path):
            if item.path.name.startswith("step-") and item.path.parent.name == "checkpoints":
                folder = RunFolder(item.path.parents[1])
                step = int(item.path.name.partition("-")[2].partition(".")[0])
                if item.path == folder.checkpoint(step):
                    note_removed(folder, [step])
                if item.path.exists():
                    discard(item.path)
            elif item.path.name == "training":
                discard_training(item.path)
            elif item.path.is_dir():
                shutil.rmtree(item.path, ignore_errors=True)
            else:
                item.path.unlink(missing_ok=True)


def _of_run(folder: RunFolder) -> Iterator[Item]:
    for path in _entries(folder.checkpoints):
        if path.name.endswith(".tmp") and path.name.startswith(".step-"):
            yield _item(path, "incomplete checkpoint")
        elif ".corrupt" in path.name:
            yield _item(path, "damaged checkpoint")
    try:
        if folder.state() == "done":
            gone, idle = checkpoints_of(folder).superfluous()
            unkept = "evaluated checkpoint that keep_checkpoints does not keep"
            yield from (_item(folder.checkpoint(step), unkept) for step in gone)
            for step in idle:
                yield _item(
                    folder.checkpoint(step) / "training", "training state of an older checkpoint"
                )
    except (StoreError, KeyError):
        return


def remove(layout: Layout, name: str, only_check: bool = False) -> Path:
    """Move a sweep or a run (`quickstart/grpo-s0-12345678`) to the trash; returns where.
    StoreError: none, or in use."""
    name = name.strip("/")
    sweep, _, run = name.partition("/")
    path = place(layout, name)
    conductor = layout.sweep_folder(sweep) / ".conductor"
    members = (
        [layout.run(sweep, run)] if run else [layout.run(sweep, member) for member in folders(path)]
    )
    busy = [member.name for member in members if member.state() == "running"]
    if busy or locks.alive(conductor):
        raise StoreError(
            f"{name} is in use ({', '.join(busy) or 'its sweep is running'}): stop it first"
        )
    if only_check:
        return path
    target = _free(layout.home / TRASH / f"{time.strftime('%Y-%m-%d')}-{name.replace('/', '-')}")
    with readable("move", path):
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        if not run and layout.reports(sweep).is_dir():
            layout.reports(sweep).rename(_free(target.with_name(f"{target.name}-report")))
    return target


def size(path: Path) -> int:
    """Bytes on disk below `path`, hard links counted once; 0 if it does not exist."""
    seen: dict[tuple[int, int], int] = {}
    for root, _, names in os.walk(path) if path.is_dir() else [(str(path.parent), [], [path.name])]:
        for name in names:
            try:
                stat = os.lstat(os.path.join(root, name))
            except OSError:
                continue
            seen[stat.st_dev, stat.st_ino] = stat.st_size
    return sum(seen.values())


def _item(path: Path, why: str) -> Item:
    return Item(path, why, size(path))


def _entries(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else []


def _free(path: Path) -> Path:
    tries = (path.with_name(f"{path.name}-{number}") for number in itertools.count(1))
    return next(candidate for candidate in itertools.chain([path], tries) if not candidate.exists())
