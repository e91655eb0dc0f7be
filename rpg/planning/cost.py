"""What a sweep costs and which differences it can find, before it is trained: counts that follow
from its specification, and times and spreads measured on similar runs.
"""

import statistics
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from rpg import stats
from rpg.config.errors import ConfigError
from rpg.config.load import spec_of
from rpg.config.run_spec import RunSpec
from rpg.config.sweep_spec import Sweep
from rpg.planning.gpu_estimate import Assumptions, problems_of
from rpg.store import Layout, StoreError

Size = tuple[
    str, str, tuple[int, ...]
]  # model, back end and passes, and the sizes of batches and texts


class Cost(NamedTuple):
    """Counts of one run. `rollouts`: responses sampled for training, without the refills of dynamic
    sampling."""

    rollouts: int
    optimizer_steps: int
    response_tokens_at_most: int
    checkpoints_evaluated: int


def cost(spec: RunSpec) -> Cost:
    """Counts of one run, from its specification alone."""
    t = spec.training
    r = spec.rollout
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
                done = folder.read_done()
                if done:
                    manifest = folder.read_manifest()
                    # Validated again, so that fields newer than the run have the default, which is
                    # what it ran with.
                    spec = spec_of(folder).model_dump(mode="json")
                    by_size.setdefault(size(spec), []).append(done["seconds"] / manifest["steps"])
            except (StoreError, ConfigError, KeyError, TypeError, ValueError):
                continue  # a damaged run folder must not prevent an estimate
    return by_size


def size(spec: dict[str, Any]) -> Size:
    """The stored settings on which the time of a step depends."""
    training = spec["training"]
    rollout = spec["rollout"]
    algorithm = spec["algorithm"]
    model = spec["model"] | {"warm_start": None}
    # A critic, a reference and a second round of samples take time, too.
    has_kl = algorithm["kl"]["type"] != "none" and algorithm["beta"] > 0
    passes = (
        algorithm["advantage"]["type"],
        has_kl and algorithm["reference"],
        algorithm["dynamic_sampling"],
        rollout["engine"]["type"],
    )
    sizes = (
        training["prompts_per_step"],
        training["mini_batch_prompts"],
        training["epochs"],
        rollout["group_size"],
        rollout["max_prompt_tokens"],
        rollout["max_response_tokens"],
    )
    return (str(model), f"{spec['backend']} {passes}", sizes)


def design(sweep: Sweep) -> stats.Design | None:
    """Variants, seeds, problems and samples of a sweep; None if there is nothing to compare."""
    seeds = Counter(run.variant for run in sweep.runs)
    spec = sweep.runs[0].spec
    if len(seeds) < 2 or not spec.benchmarks():
        return None
    problems = tuple(max(2, count) for count in problems_of(spec, Assumptions()))
    return stats.Design(
        variants=len(seeds),
        seeds=min(seeds.values()),
        problems=problems,
        samples=spec.evaluation.samples,
        baseline_seeds=seeds.get(sweep.baseline or ""),
    )


def known_spreads(layout: Layout, benchmarks: tuple[str, ...]) -> stats.Spreads | None:
    """How much seeds, answers and problems differed in stored sweeps on the same benchmarks; the
    median of the sweeps."""
    spreads = []
    for name in layout.sweeps():
        looks = layout.read_looks(name)
        same = [look for look in looks if set(look.get("benchmarks", ())) == set(benchmarks)]
        told = [
            look["spreads"] for look in same if any(look["spreads"] or ())
        ]  # all alike have none
        spreads += told[-1:]
    return stats.Spreads(*map(float, np.median(spreads, axis=0))) if spreads else None


def finds(sweep: Sweep, layout: Layout) -> str:
    """The smallest difference that the sweep finds in 80 % of cases, in a few words; "" without a
    verdict."""
    planned = design(sweep)
    if planned is None or planned.seeds < stats.MINIMUM_SEEDS:
        return ""
    spreads = known_spreads(layout, sweep.runs[0].spec.benchmarks()) or stats.ASSUMED
    return f"finds {100 * stats.detectable(planned, spreads):.0f} points"


def says(sweep: Sweep, layout: Layout) -> str:
    """What the sweep can find and what a difference that matters would take, in a sentence; "" if
    nothing is compared."""
    planned = design(sweep)
    if planned is None:
        return ""
    spreads = known_spreads(layout, sweep.runs[0].spec.benchmarks())
    source = "as in stored sweeps on these benchmarks" if spreads else "assumed"
    spreads = spreads or stats.ASSUMED
    text = stats.sentence(planned, spreads, sweep.spec.matters)
    assumed = f" (seeds of a variant differ by {100 * spreads.seeds:.1f} points, {source})"
    if planned.seeds < stats.MINIMUM_SEEDS:
        return text
    more = stats.baseline_sentence(planned, spreads)
    return text + assumed + (f". {more}" if more else "")
