"""What our trainer adds to a checkpoint of verl's, and which checkpoints are whole. Needs neither verl nor torch.

    <folder>/global_step_40/actor/...          verl's: weights, optimizer, random state; huggingface/ is the model
                            reference/...      the reference policy, where it is one of its own
                            rpg.json           counters and reference schedule; written last, and in one piece

A folder without rpg.json is what a kill left behind. verl's own mark, latest_checkpointed_iteration.txt, is written in
place and can be found empty.
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
    """`renewed_at`, `average`, `kept` (whether it has weights of its own)."""
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
    """The whole checkpoint with the highest step below `folder`; None where there is none."""
    found = {}
    for path in Path(folder).glob("global_step_*"):
        match = _NAME.fullmatch(path.name)
        if match and (path / "rpg.json").is_file():
            found[int(match[1])] = path
    return found[max(found)] if found else None
