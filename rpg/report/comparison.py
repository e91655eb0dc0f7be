"""The rows of a sweep's table: accuracies of the chosen checkpoints, and tests of their differences
from the baseline."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas

from rpg import stats
from rpg.report import earlier_looks, problem_scores, verdicts
from rpg.report import format as written
from rpg.report.problem_scores import Pairs, ProblemScores
from rpg.report.selection import MEAN, Selection
from rpg.report.verdicts import Difference
from rpg.store import queries
from rpg.store.queries import Database


class Shares(NamedTuple):
    """What an evaluation found; all but the accuracy are NaN without samples."""

    accuracy: float
    pass_at_k: float
    maj_at_k: float
    unread: float


SHARES = Shares._fields
Curves = dict[str, dict[int, Shares]]
"""Run -> step -> what was found there."""
SPENT = ("responses", "tokens", "updates", "seconds")
"""Columns of the table: what a variant had spent when it was last measured, mean over seeds."""

COLUMNS = (
    "variant",
    "label",
    "benchmark",
    "seeds",
    "problems",
    "k",
    "step",  # the checkpoint that `last` is of
    "steps",  # the training steps there shall be
    "first_step",
    "first",
    "last",
    "low",  # 95 % interval of `last`, over seeds and problems
    "high",
    "best",  # mean over seeds of each run's best checkpoint: optimistic
    "pass_at_k",
    "maj_at_k",
    "unread",  # share of the answers at `step` that could not be read, and count as wrong
    "difference",  # from the baseline at the last step that both have, paired by seed and problem
    "difference_low",  # its 95 % interval, which holds for all differences of its family together
    "difference_high",  # and is narrowed by those of earlier looks
    "p",
    "p_corrected",  # for all differences of its family together, and by what this look may spend
    "verdict",  # for other problems like them, by the interval
    "p_mixed",  # as p_corrected, of a plain crossed mixed model
    "these_low",  # as difference_low, for the problems at hand (seeds alone vary)
    "these_high",
    "these_verdict",
    "seed_accuracies",  # of every seed, as text: `0: 0.412, 1: 0.398`
    "collapsed",  # the seeds that collapsed (rpg.stats.collapsed), as text
    "collapsed_low",  # 95 % interval of the share of seeds that collapse
    "collapsed_high",
    "without_difference",  # as `difference` and its bounds, without the collapsed seeds
    "without_low",
    "without_high",
    "without_verdict",
    "caution",  # what limits every verdict, as in the report's headline
    "leads",  # the highest `last` of its benchmark, and better than every other by the same test
    *SPENT,
)
TESTED = [
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "p_corrected",
    "verdict",
    "p_mixed",
    "these_low",
    "these_high",
    "these_verdict",
]
"""The columns that `verdicts.Difference` fills, in its order."""
UNTESTED = Difference(math.nan, math.nan, math.nan, math.nan, math.nan, "")


class Terms(NamedTuple):
    """On what terms a sweep is judged: the looks that were taken at its differences before; and of
    its file the size of a difference that matters (`matters`), the tokens at which variants are
    compared (`budget`), and what limits all of its verdicts (`caution`)."""

    looks: tuple[stats.Look, ...] = ()
    matters: float = stats.MATTERS
    budget: float | None = None
    caution: str = ""


NO_TERMS = Terms()


@dataclass(frozen=True)
class Comparison:
    """The table without what variants have spent, and what its differences rest on."""

    table: pandas.DataFrame
    look: stats.Look | None
    """This look at the differences; None if no verdict was given."""
    earlier: list[stats.Look]
    """Looks at these data before it."""
    advice: str
    """What the design can find; empty if that cannot be told."""
    notes: list[str]
    collapses: list[stats.Collapse]
    """Seeds that ended far below their siblings."""

    @property
    def level(self) -> float:
        """The error that this look may make."""
        return self.look.level if self.look else stats.ERROR


@dataclass(frozen=True)
class _Planned:
    """The design of a comparison, what varies in it, and a note on problems that carry too much."""

    design: stats.Design
    spreads: stats.Spreads
    few_problems: str


@dataclass(frozen=True)
class _Without:
    """What a comparison without collapsed seeds needs."""

    pairs: Pairs
    collapses: Sequence[stats.Collapse]
    level: float


@dataclass(frozen=True)
class _Tested:
    results: Mapping[tuple[str, str], Difference]
    look: stats.Look | None = None
    earlier: Sequence[stats.Look] = ()


def judge(db: Database, selection: Selection, terms: Terms) -> Comparison:
    """Measure the chosen checkpoints and test their differences from the baseline."""
    pairs = problem_scores.at_last(
        selection.chosen, selection.runs_with_samples, selection.baseline
    )
    evaluated = {(run, step) for step, runs in selection.chosen.values() for run in runs.values()}
    problems = ProblemScores(db, selection.sweep, evaluated | problem_scores.checkpoints(pairs))

    table = _measured(selection, problems)
    parts = {name: selection.parts[name] for name in dict.fromkeys(table["benchmark"])}
    planned = _design(problems, pairs, selection.headline_benchmarks)
    tested = _test(selection, problems, pairs, parts, terms.looks)
    look = tested.look
    if look and planned:
        look = look._replace(spreads=planned.spreads)

    rows = zip(table["variant"], table["benchmark"], strict=True)
    differences = [tested.results.get(row, UNTESTED) for row in rows]
    table["verdict"] = ""
    if pairs:
        table[TESTED] = pandas.DataFrame(differences, table.index, TESTED)
    level = look.level if look else stats.ERROR
    table["leads"] = _leads(table, selection, problems, parts, level)
    collapses = _collapses(selection, problems)
    _add_collapses(table, selection, problems, collapses)
    _add_without(table, selection, problems, parts, _Without(pairs, collapses, level))

    advice = stats.sentence(planned.design, planned.spreads, terms.matters) if planned else ""
    notes = [
        *_compared_late(selection, pairs),
        *queries.differences(db, selection.sweep),
        *_not_compared(selection, table),
        *_collapse_notes(table, selection, collapses),
        advice,
        planned.few_problems if planned else "",
    ]
    return Comparison(
        table=table,
        look=look,
        earlier=list(tested.earlier),
        advice=advice,
        notes=[note for note in notes if note],
        collapses=collapses,
    )


def _measured(selection: Selection, problems: ProblemScores) -> pandas.DataFrame:
    """One row per variant and benchmark, and the mean; differences and spending are still empty."""
    steps = selection.runs.groupby("variant")["steps"].max()
    # The mean's curve is averaged here, not taken from the database: benchmarks may have been
    # picked.
    curves = {name: mean_curves(selection.scores, parts) for name, parts in selection.parts.items()}
    rows = []
    for variant, (step, runs) in selection.chosen.items():
        for benchmark, parts in selection.parts.items():
            row = _row(_until(curves[benchmark], runs, step), runs, step, parts, problems)
            if row:
                rows.append(
                    {
                        "variant": variant,
                        "benchmark": benchmark,
                        "steps": int(steps[variant]),
                        **row,
                    }
                )
    table = pandas.DataFrame(rows, columns=list(COLUMNS))
    table["label"] = table["variant"].map(selection.labels)
    return table


def mean_curves(scores: pandas.DataFrame, parts: Sequence[str]) -> Curves:
    """Run -> step -> the shares, as means over these benchmarks, where a run has all of them."""
    each = scores[scores["benchmark"].isin(parts)].groupby(["run", "step"])
    means = each[list(SHARES)].mean()
    means = means[each.size() == len(parts)]
    curves: Curves = {}
    for (run, step), *shares in means.itertuples(name=None):
        curves.setdefault(run, {})[int(step)] = Shares(*shares)
    return curves


def _until(curves: Curves, runs: Mapping[int, str], step: int) -> Curves:
    """The curves of these runs until a step, in the order of the runs' names."""
    return {
        run: {at: shares for at, shares in curves[run].items() if at <= step}
        for run in sorted(runs.values())
        if run in curves
    }


def _row(
    curves: Curves,
    runs: Mapping[int, str],
    step: int,
    parts: Sequence[str],
    problems: ProblemScores,
) -> dict[str, Any] | None:
    """First, last and best of a variant's runs; None if only some of the benchmarks have
    samples."""
    last = {run: curve[step] for run, curve in curves.items() if step in curve}
    per_benchmark = [problems.array(name, problem_scores.at_step(runs, step)) for name in parts]
    arrays = [array for array in per_benchmark if array is not None]
    if not last or 0 < len(arrays) < len(parts):
        return None
    evaluated = Counter(at for curve in curves.values() for at in curve)
    first_step = min(at for at, count in evaluated.items() if count >= len(last))
    first = [curve[first_step].accuracy for curve in curves.values() if first_step in curve]
    best = [max(shares.accuracy for shares in curve.values()) for curve in curves.values() if curve]
    with_samples = parts if arrays else []
    samples = [problems.fewest_samples[run, step, name] for name in with_samples for run in last]
    return {
        "step": step,
        "first_step": first_step,  # the first with all of the runs
        "first": _mean(first),
        "best": _mean(best),
        "seeds": len(last),
        "k": min(samples, default=0),
        "pass_at_k": _mean([shares.pass_at_k for shares in last.values()]),
        "maj_at_k": _mean([shares.maj_at_k for shares in last.values()]),
        "unread": _mean([shares.unread for shares in last.values()]),
        **_last(arrays, [shares.accuracy for shares in last.values()]),
    }


def _mean(values: Sequence[float]) -> float:
    """The mean of the values that are known; NaN without any."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _last(arrays: Sequence[np.ndarray], accuracies: Sequence[float]) -> dict[str, Any]:
    """The last accuracy with its interval; without samples that is Student's over seeds, and needs
    three of them."""
    if arrays:
        score = stats.accuracy(arrays)
        return {
            "last": score.mean,
            "low": score.low,
            "high": score.high,
            "problems": score.problems,
        }
    seeds = len(accuracies)
    mean = _mean(accuracies)
    half = math.nan
    if seeds > 2:
        half = float(stats.t_quantile(seeds - 1) * pandas.Series(accuracies).sem())
    return {"last": mean, "low": mean - half, "high": mean + half, "problems": 0}


def _test(
    selection: Selection,
    problems: ProblemScores,
    pairs: Pairs,
    parts: Mapping[str, Sequence[str]],
    looks: Sequence[stats.Look],
) -> _Tested:
    """Differences and verdicts of both families (of the mean, of single benchmarks), with this look
    at them and those before it."""
    if not pairs:
        return _Tested({})

    # What this look is at: the same name and the same finished runs are the same look again.
    checkpoints = problem_scores.checkpoints(pairs)
    last_steps = dict(sorted(checkpoints))  # of a run with several steps the last one stays
    places = sorted({step for _, step in checkpoints})
    name = json.dumps([selection.baseline, sorted(pairs), places, sorted(parts)])
    runs = selection.runs
    reached = runs["run"].map(last_steps)
    is_finished = runs["state"].eq("done") | (reached >= runs["steps"])
    finished = sorted(runs["run"][reached.notna() & is_finished])
    grown = list(earlier_looks.grown(looks, name, pairs, set(finished)))
    earlier, planned, level = stats.next_look(grown, name, finished, len(runs))

    results: dict[tuple[str, str], Difference] = {}
    for of_mean in (True, False):
        family = _tested_together(parts, of_mean)
        results |= verdicts.compare(problems, pairs, family, level)
    results = earlier_looks.looked_at(results, earlier)
    if all(result.verdict in verdicts.NO_VERDICT for result in results.values()):
        return _Tested(results)
    look = stats.Look(
        compared=name,
        runs=finished,
        planned=planned,
        number=len(earlier) + 1,
        level=level,
        benchmarks=[benchmark for benchmark in parts if benchmark != MEAN],
        spreads=None,
        results=earlier_looks.outcomes(results),
    )
    return _Tested(results, look, earlier)


def _tested_together(parts: Mapping[str, Sequence[str]], of_mean: bool) -> dict[str, Sequence[str]]:
    """The benchmarks that are tested together: the mean accuracies, or all single ones."""
    return {
        benchmark: names for benchmark, names in parts.items() if (benchmark == MEAN) == of_mean
    }


def _leads(
    table: pandas.DataFrame,
    selection: Selection,
    problems: ProblemScores,
    parts: Mapping[str, Sequence[str]],
    level: float,
) -> list[bool]:
    """Whether a row is the best of its benchmark and better than every other by the paired test.

    The highest is tested against every other variant as if it were the baseline. Its difference
    from the baseline itself is the table's, so that both say the same.
    """
    against: dict[tuple[str, bool], dict[tuple[str, str], Difference]] = {}
    leads = pandas.Series(False, index=table.index)
    for benchmark, part in table.groupby("benchmark"):
        place = part["last"].idxmax()
        leader = part.loc[place, "variant"]
        of_mean = benchmark == MEAN
        if (leader, of_mean) not in against:
            pairs = problem_scores.at_last(selection.chosen, selection.runs_with_samples, leader)
            family = _tested_together(parts, of_mean)
            against[leader, of_mean] = verdicts.compare(problems, pairs, family, level)
        others = {
            variant: result.verdict
            for (variant, name), result in against[leader, of_mean].items()
            if name == benchmark
        }
        in_table = part.set_index("variant")["verdict"]
        baseline = selection.baseline
        if leader == baseline:
            others = in_table.drop(leader).to_dict()
        elif baseline is not None and baseline in in_table:
            others[baseline] = stats.WORSE if in_table[leader] == stats.BETTER else ""
        all_worse = all(verdict == stats.WORSE for verdict in others.values())
        leads[place] = len(others) == len(part) - 1 > 0 and all_worse
    return [bool(lead) for lead in leads]


def _collapses(selection: Selection, problems: ProblemScores) -> list[stats.Collapse]:
    """Collapsed seeds, by what variants are judged by: the mean over benchmarks."""
    runs = {
        variant: problem_scores.at_step(of_variant, step)
        for variant, (step, of_variant) in selection.chosen.items()
    }
    return stats.collapsed(
        problem_scores.seed_accuracies(problems, runs, selection.headline_benchmarks)
    )


def _add_collapses(
    table: pandas.DataFrame,
    selection: Selection,
    problems: ProblemScores,
    collapses: Sequence[stats.Collapse],
) -> None:
    """Fill in the accuracy of every seed, and which of them collapsed."""
    seeds: dict[str, list[int]] = {}
    for each in collapses:
        seeds.setdefault(each.variant, []).append(each.seed)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("seed_accuracies", "collapsed", "collapsed_low", "collapsed_high")
    }
    for variant, benchmark in zip(table["variant"], table["benchmark"], strict=True):
        step, runs = selection.chosen[variant]
        of_variant = {variant: problem_scores.at_step(runs, step)}
        parts = selection.parts[benchmark]
        accuracies = problem_scores.seed_accuracies(problems, of_variant, parts)[variant]
        each_seed = [
            f"{seed}: {written.accuracy(value)}" for seed, value in sorted(accuracies.items())
        ]
        gone = seeds.get(variant, [])
        low, high = stats.share_collapsed(len(gone), len(runs))
        columns["seed_accuracies"].append(", ".join(each_seed))
        columns["collapsed"].append(", ".join(map(str, gone)))
        columns["collapsed_low"].append(low)
        columns["collapsed_high"].append(high)
    # Whole columns at once: pandas takes milliseconds to set a single cell.
    for name, values in columns.items():
        table[name] = values


def _add_without(
    table: pandas.DataFrame,
    selection: Selection,
    problems: ProblemScores,
    parts: Mapping[str, Sequence[str]],
    without: _Without,
) -> None:
    """Fill in the differences without collapsed seeds, where there are any."""
    table["without_verdict"] = ""
    if not without.collapses or selection.baseline is None:
        return
    pairs = problem_scores.without(without.pairs, selection.baseline, without.collapses)
    for of_mean in (True, False):
        family = _tested_together(parts, of_mean)
        results = verdicts.compare(problems, pairs, family, without.level)
        for (variant, benchmark), result in results.items():
            here = (table["variant"] == variant) & (table["benchmark"] == benchmark)
            table.loc[here, "without_difference"] = result.difference
            table.loc[here, "without_low"] = result.low
            table.loc[here, "without_high"] = result.high
            table.loc[here, "without_verdict"] = result.verdict


def _collapse_notes(
    table: pandas.DataFrame, selection: Selection, collapses: Sequence[stats.Collapse]
) -> list[str]:
    """A line for each collapsed seed, and one for each comparison that is another without them."""
    notes = []
    for each in collapses:
        own = written.accuracy(each.accuracy)
        others = written.accuracy(each.siblings)
        notes.append(
            f"{selection.labels[each.variant]}: seed {each.seed} collapsed, at {own} beside "
            f"{others} of its siblings"
        )
    if not collapses:
        return []
    headline = MEAN if MEAN in selection.parts else selection.headline_benchmarks[0]
    compared = table[(table["benchmark"] == headline) & (table["without_verdict"] != "")]
    for row in compared.itertuples():
        bounds = written.interval(row.without_low, row.without_high, written.points)
        difference = f"{written.points(row.without_difference)} points {bounds}".rstrip()
        notes.append(f"{row.label} without collapsed seeds: {difference}, {row.without_verdict}")
    return notes


def _design(problems: ProblemScores, pairs: Pairs, benchmarks: Sequence[str]) -> _Planned | None:
    """Of the variants that are compared at the same place with the same seeds; None if there are
    none, or if all answers are alike, which says nothing about how much they differ elsewhere."""
    for _, baseline in pairs.values():
        beside = [runs for runs, other in pairs.values() if other == baseline]
        compared = problems.compared(benchmarks, [baseline, *beside], {})
        if not compared or compared.strata[0].shape[1] < 2:
            continue
        strata = compared.strata
        places = [(run, place[0][0]) for run, place in baseline.values()]
        samples = min(
            problems.fewest_samples[run, step, name] for run, step in places for name in benchmarks
        )
        spreads = stats.spreads(strata, samples)
        if not any(spreads):
            return None
        variants, seeds = strata[0].shape[:2]
        sizes = tuple(array.shape[2] for array in strata)
        design = stats.Design(variants, seeds, sizes, samples, baseline_seeds=len(baseline))
        return _Planned(design, spreads, stats.carried_by_few(strata, compared.clusters))
    return None


def _compared_late(selection: Selection, pairs: Pairs) -> list[str]:
    """Variants that were not compared at their last step, and runs that are not in their
    numbers."""
    notes = []
    steps = {name: place[0][0] for name, (ours, _) in pairs.items() for _, place in ours.values()}
    for variant, (step, seeds) in selection.chosen.items():
        label = selection.labels[variant]
        variant_runs = selection.runs[selection.runs["variant"] == variant]
        compared = steps.get(variant, step)
        total = variant_runs["steps"].max()
        if min(compared, step) < total:
            evaluated = "last evaluated" if compared == step else f"last evaluated at step {step}"
            notes.append(f"{label}: {evaluated}, and compared, at step {compared} of {total:.0f}")
        left_out = sorted(set(variant_runs["run"]) - set(seeds.values()))
        if left_out:
            notes.append(f"{label}: numbers without {', '.join(left_out)}")
    return notes


def _not_compared(selection: Selection, table: pandas.DataFrame) -> list[str]:
    baseline = selection.baseline
    if baseline is None or baseline not in selection.chosen:
        return []
    compared = set(table.loc[table["verdict"] != "", "variant"])
    apart = [
        selection.labels[variant]
        for variant in selection.chosen
        if variant in selection.variants_with_samples - compared - {baseline}
    ]
    if not apart:
        return []
    return [
        f"not compared with {selection.labels[baseline]}, for want of samples alike: "
        + ", ".join(apart)
    ]
