"""What a study's trials and reported runs show, as numbers for its report."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas

from rpg import stats
from rpg.report.earlier_looks import looked_at, outcomes
from rpg.report.problem_scores import ProblemScores, Runs
from rpg.report.selection import MEAN
from rpg.report.verdicts import TOO_FEW, TOO_FEW_MOVE, Difference
from rpg.stats import searches
from rpg.stats.variance_components import variance_components
from rpg.store import queries
from rpg.store.queries import Database
from rpg.study.registration import OVER_LEVELS, Registration
from rpg.study.spec import Space

FACTOR_NAMES = {"model.warm_start.seed": "initial model"}


def held(trials: pandas.DataFrame) -> np.ndarray:
    """What a search has in its hands after each ended trial of a variant: what it finished with; if
    it was pruned, its accuracy so far or the lowest that finished in its batch, whichever is lower;
    if it failed, 0 (docs/studies.md)."""
    ended = trials[trials["state"] != "pending"]
    finished = ended["state"] == "finished"
    reached = ended["objective"].astype(float)
    lowest = reached.where(finished).groupby(ended["batch"]).transform("min")
    values = reached.where(finished, np.fmin(reached, lowest)).where(
        ended["state"] != "failed", 0.0
    )
    return np.asarray(values, float)


def good_share(trials: pandas.DataFrame, space: Space, matters: float) -> float:
    """Share of a variant's space (in logarithms where it is searched in them) whose nearest trial
    finished within `matters` of the best; a pruned or failed trial is none. NaN before one has
    finished, or with nothing to search."""
    ended = trials[trials["state"] != "pending"]
    finished = ended["objective"].astype(float).where(ended["state"] == "finished")
    if finished.isna().all() or not space:
        return math.nan
    good = finished >= finished.max() - matters
    choices = {}
    places = []
    for at, (field, values) in enumerate(space.items()):
        places.append(ended[field].map(values.place))
        if values.choices is not None:
            choices[at] = len(values.choices)
    return searches.good_region(np.stack(places, axis=1), good.to_numpy(), choices)


class Reported(NamedTuple):
    """Scores of the reported runs. `cells`: an array (variants, levels of each crossed factor ...,
    seeds, problems) per benchmark, of shares of right ones among `samples`; `strata`: the same, as
    means over the levels. `runs`: all of them."""

    variants: list[str]
    cells: list[np.ndarray]
    strata: list[np.ndarray]
    samples: int
    runs: list[str]


def reported(db: Database, registered: Registration) -> Reported | None:
    """Of the registered runs at the last step that is evaluated on all benchmarks, for the seeds
    that all variants have there at all levels of the factors. None before there are any."""
    scores = queries.scores(db, registered.sweep)
    mine = scores[
        scores["run"].isin(list(registered.runs)) & scores["benchmark"].isin(registered.benchmarks)
    ]
    counts = mine.groupby(["step", "run"])["benchmark"].nunique()
    whole = counts[counts == len(registered.benchmarks)].reset_index()
    if whole.empty:
        return None
    step = int(whole["step"].max())
    present = set(whole.loc[whole["step"] == step, "run"])
    cells_of: dict[str, dict[str, Runs]] = {name: {} for name in registered.variants}
    for run, planned in registered.runs.items():
        if run in present:
            of_level = cells_of[planned["variant"]].setdefault(json.dumps(planned["factors"]), {})
            of_level[int(planned["seed"])] = run, ((step, 1.0),)
    levels = [len(values) for values in registered.factors.values()]
    crossed = math.prod(levels)
    variants = [name for name, of_variant in cells_of.items() if len(of_variant) == crossed]
    in_order = [runs for name in variants for runs in cells_of[name].values()]
    problems = ProblemScores(db, registered.sweep, {(run, step) for run in present})
    block = problems.block(registered.benchmarks, in_order) if in_order else None
    if block is None:
        return None
    cells = [array.reshape(len(variants), *levels, *array.shape[1:]) for array in block]
    strata = [array.mean(axis=tuple(range(1, array.ndim - 2))) for array in cells]
    samples = min(
        problems.fewest_samples[run, step, name]
        for run in present
        for name in registered.benchmarks
    )
    return Reported(variants, cells, strata, samples, sorted(present))


def over_levels(scores: Reported, baseline: str, error: float) -> dict[str, Difference]:
    """Variant -> its difference from the baseline, where levels of factors are crossed with the
    seeds; without p-values, since the verdicts follow from the intervals, which hold for all
    variants together.

    The half-width is the root of the sum of squares of those of rpg.stats.family with seeds as
    units (means over levels) and with levels as units (means over seeds): Banerjee 1960, Sankhya
    22; docs/studies.md, "Factors".
    """
    others = [name for name in scores.variants if name != baseline]
    names = [baseline, *others]
    places = [scores.variants.index(name) for name in names]
    by_level = []
    for array in scores.cells:
        seeds, count = array.shape[-2:]
        by_level.append(array.reshape(len(names), -1, seeds, count).mean(axis=2))
    families = [
        stats.family([array[None, places] for array in units])
        for units in (scores.strata, by_level)
    ]
    difference = families[0].difference[0]
    bounds = [family.intervals(error) for family in families]
    below = np.sqrt(sum((low[0] - difference) ** 2 for low, _ in bounds))
    above = np.sqrt(sum((high[0] - difference) ** 2 for _, high in bounds))
    few_seeds = any(stats.has_few_seeds(family) for family in families)
    few_move = any(stats.moves_too_little(family) for family in families)
    differences = {}
    for place, name in enumerate(others):
        mean = float(difference[place])
        least = float((difference - below)[place])
        most = float((difference + above)[place])
        verdict = stats.verdict(least, most)
        if few_seeds:
            verdict = TOO_FEW
        elif few_move:
            verdict = TOO_FEW_MOVE
        if few_move:  # then nothing is known of other problems: no interval either
            least = most = math.nan
        differences[name] = Difference(mean, least, most, math.nan, math.nan, verdict)
    return differences


def look_over_levels(
    scores: Reported | None, registered: Registration, looks: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Difference], stats.Look] | None:
    """The differences, and this look at them; `looks`: taken before, as they are stored. None
    before there are scores of the baseline and another variant."""
    if scores is None or len(scores.variants) < 2 or registered.baseline not in scores.variants:
        return None
    taken = [stats.Look(**fields) for fields in looks if fields["compared"] == OVER_LEVELS]
    earlier, planned, level = stats.next_look(taken, OVER_LEVELS, scores.runs, len(registered.runs))
    apart = over_levels(scores, registered.baseline, level)
    benchmarks = list(registered.benchmarks)
    headline = MEAN if len(benchmarks) > 1 else benchmarks[0]
    by_benchmark = {(name, headline): result for name, result in apart.items()}
    together = looked_at(by_benchmark, earlier)
    results = outcomes(together)
    look = stats.Look(
        OVER_LEVELS, scores.runs, planned, len(earlier) + 1, level, benchmarks, None, results
    )
    return {name: result for (name, _), result in together.items()}, look


def components(scores: Reported, factors: Sequence[str]) -> pandas.DataFrame:
    """Variance components (columns, see rpg.stats.variance_components) of each variant, means over
    benchmarks; none with one seed, one problem or one level of a factor."""
    names = [FACTOR_NAMES.get(field, field) for field in factors]
    names += ["seed", "problem"]
    if any(min(array.shape[1:]) < 2 for array in scores.cells):
        return pandas.DataFrame()
    of_benchmarks = [
        pandas.DataFrame([variance_components(cells, scores.samples, names) for cells in array])
        for array in scores.cells
    ]
    return sum(of_benchmarks) / len(of_benchmarks)
