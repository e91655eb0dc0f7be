"""The files of an attempt at a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rpg.tasks.preparation import PreparedData

STATE = "verl"
"""Folder of verl's files, in that of the run."""


@dataclass(frozen=True)
class Paths:
    """A run's inputs and outputs, at the same place on every machine that takes part."""

    model: str
    """Folder of the initial Hugging Face model, or a hub id."""
    train: Path
    benchmarks: tuple[Path, ...]
    state: Path
    """Folder in which verl leaves its checkpoints."""
    metrics: Path
    """File of verl's metrics; each attempt has its own, since verl truncates it when it opens it."""
    resume: Path | None = None
    """A `global_step_<n>` folder of verl to go on from."""

    @classmethod
    def of(
        cls, run: Path, data: PreparedData, model: str | Path, attempt: int = 1, resume: Path | None = None
    ) -> Paths:
        """Of one attempt at the run in folder `run`."""
        state = run / STATE
        return cls(
            str(model),
            data.train,
            tuple(data.benchmarks.values()),
            state,
            state / f"metrics-{attempt}.jsonl",
            resume,
        )
