"""What a run will cost: counts that follow from its specification, and time as measured on runs like it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from rpg.config.run_spec import RunSpec
from rpg.store import Layout, StoreError


@dataclass(frozen=True)
class Cost:
    """Counts of one run. `rollouts` are responses sampled for training, without refills of dynamic sampling."""

    rollouts: int
    optimizer_steps: int
    response_tokens_at_most: int
    checkpoints_evaluated: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def cost(spec: RunSpec) -> Cost:
    """Counts of one run, from its specification alone."""
    t, r = spec.training, spec.rollout
    rollouts = t.steps * t.prompts_per_step * r.group_size
    updates = t.steps * t.updates_per_step
    return Cost(rollouts, updates, rollouts * r.max_response_tokens, len(spec.eval_steps()))


@dataclass(frozen=True)
class Measured:
    """Seconds of a step of the finished runs of a data folder, by the size of a run."""

    seconds: dict[tuple, list[float]]

    def seconds_per_step(self, spec: RunSpec) -> tuple[float, int] | None:
        """Median over the runs of the same size, and how many there were."""
        found = self.seconds.get(size(spec.model_dump(mode="json")))
        return (statistics.median(found), len(found)) if found else None


def measured(layout: Layout) -> Measured:
    found: dict[tuple, list[float]] = {}
    for like, seconds in _finished(layout):
        found.setdefault(like, []).append(seconds)
    return Measured(found)


def size(spec: dict) -> tuple:
    """What the time of a step depends on, of a run's settings as they are stored."""
    t, r = spec["training"], spec["rollout"]
    work = (
        t["prompts_per_step"],
        t["mini_batch_prompts"],
        t["epochs"],
        r["group_size"],
        r["max_response_tokens"],
    )
    return (str(spec["model"]), str(spec["backend"]), work)


def _finished(layout: Layout) -> Iterable[tuple[tuple, float]]:
    for sweep in layout.sweeps():
        for folder in layout.run_folders(sweep):
            try:
                done = folder.read_done()
                manifest = folder.read_manifest() if done else None
                if manifest and done:
                    # Read again: a field that is newer than the run has its default then, as it had.
                    spec = RunSpec.model_validate(manifest["spec"]).model_dump(mode="json")
                    yield size(spec), done["seconds"] / manifest["steps"]
            except (StoreError, KeyError, TypeError, ValueError):
                continue  # a damaged run folder must not stop an estimate
