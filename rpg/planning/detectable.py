"""Which differences a sweep can find, before it is trained."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rpg import stats
from rpg.config.sweep_spec import Sweep
from rpg.planning.gpu_estimate import Assumptions, problems_of
from rpg.store import Layout


def design(sweep: Sweep) -> stats.Design | None:
    """Variants, seeds, problems and samples of a sweep; None if there is nothing to compare."""
    seeds = Counter(run.variant for run in sweep.runs)
    spec = sweep.runs[0].spec
    if len(seeds) < 2 or not spec.benchmarks():
        return None
    count = len(spec.benchmarks())
    problems = (max(2, problems_of(spec, Assumptions()) // count),) * count
    return stats.Design(len(seeds), min(seeds.values()), problems, spec.evaluation.samples_per_problem)


def known_spreads(layout: Layout, benchmarks: tuple[str, ...]) -> stats.Spreads | None:
    """How much seeds, answers and problems differed in stored sweeps on the same benchmarks; the median of the sweeps."""
    found = []
    for name in layout.sweeps():
        looks = layout.read_looks(name)
        same = [look for look in looks if set(look.get("benchmarks", ())) == set(benchmarks)]
        found += [look["spreads"] for look in same[-1:]]
    return stats.Spreads(*map(float, np.median(found, axis=0))) if found else None


def finds(sweep: Sweep, layout: Layout) -> str:
    """The smallest difference that the sweep finds in 80 % of cases, in a few words; "" without a verdict."""
    planned = design(sweep)
    if planned is None or planned.seeds < stats.MINIMUM_SEEDS:
        return ""
    spreads = known_spreads(layout, sweep.runs[0].spec.benchmarks()) or stats.ASSUMED
    return f"finds {100 * stats.detectable(planned, spreads):.0f} points"


def says(sweep: Sweep, layout: Layout) -> str:
    """What the sweep can find and what a difference that matters would take, in a sentence; "" if nothing is compared."""
    planned = design(sweep)
    if planned is None:
        return ""
    if planned.seeds < stats.MINIMUM_SEEDS:
        return f"{planned.seeds} seeds give differences and intervals, but no verdicts: those take three"
    spreads = known_spreads(layout, sweep.runs[0].spec.benchmarks())
    source = "as in stored sweeps on these benchmarks" if spreads else "assumed"
    spreads = spreads or stats.ASSUMED
    return (
        f"{stats.sentence(planned, spreads, sweep.spec.matters)} (seeds of a variant differ by "
        f"{100 * spreads.seeds:.1f} points, {source})"
    )
