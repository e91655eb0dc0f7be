"""What our trainer adds to verl's checkpoints, and which of them are whole. Imports neither verl nor torch.

    <folder>/global_step_40/actor/...          verl's: weights, optimizer, random state; huggingface/ is the model
                            reference/...      the reference policy, if it has its own weights
                            rpg.json           counters and reference schedule; written last, atomically

A folder without rpg.json is what a kill left behind. verl's own mark, latest_checkpointed_iteration.txt, is not written
atomically and may be empty.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object

FORMAT = 1
_NAME = re.compile(r"global_step_(\d+)")


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

    def write(self, folder: Path) -> None:
        """Raises: StoreError"""
        atomic_write_json(folder / "rpg.json", {"format": FORMAT, **asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> State:
        """Raises: StoreError"""
        path = Path(folder) / "rpg.json"
        value = read_json_object(path)
        if value.pop("format", None) != FORMAT:
            raise StoreError(f"{path}: written by another version of this program")
        try:
            return cls(**value)
        except TypeError as error:
            raise StoreError(f"{path}: {error}") from error


def newest(folder: Path) -> Path | None:
    """The whole checkpoint with the highest step in `folder`; None if there is none."""
    steps = {}
    for path in Path(folder).glob("global_step_*"):
        match = _NAME.fullmatch(path.name)
        if match and (path / "rpg.json").is_file():
            steps[int(match[1])] = path
    return steps[max(steps)] if steps else None
