"""The cost of a run: counts that follow from its specification, and times measured on similar runs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from rpg.config.run_spec import RunSpec
from rpg.store import Layout, StoreError

Size = tuple[str, str, tuple[int, ...]]  # model, back end, and the sizes of batches and responses


@dataclass(frozen=True)
class Cost:
    """Counts of one run. `rollouts`: responses sampled for training, without the refills of dynamic sampling."""

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


Measured = dict[Size, list[float]]  # seconds per step of the finished runs in a data folder


def seconds_per_step(measured: Measured, spec: RunSpec) -> tuple[float, int] | None:
    """The median over the runs of the same size, and the number of these runs."""
    seconds = measured.get(size(spec.model_dump(mode="json")))
    return (statistics.median(seconds), len(seconds)) if seconds else None


def measured(layout: Layout) -> Measured:
    """The times of a data folder's runs."""
    by_size: Measured = {}
    for sweep in layout.sweeps():
        for folder in layout.run_folders(sweep):
            try:
                if done := folder.read_done():
                    manifest = folder.read_manifest()
                    # Validated again, so that fields newer than the run have the default, which is what it ran with.
                    spec = RunSpec.model_validate(manifest["spec"]).model_dump(mode="json")
                    by_size.setdefault(size(spec), []).append(done["seconds"] / manifest["steps"])
            except (StoreError, KeyError, TypeError, ValueError):
                continue  # a damaged run folder must not prevent an estimate
    return by_size


def size(spec: dict[str, Any]) -> Size:
    """The stored settings on which the time of a step depends."""
    t, r = spec["training"], spec["rollout"]
    batch = (t["prompts_per_step"], t["mini_batch_prompts"], t["epochs"])
    model = {**spec["model"], "warm_start": None}
    return (str(model), str(spec["backend"]), (*batch, r["group_size"], r["max_response_tokens"]))
