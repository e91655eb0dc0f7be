"""What is measured of a sweep's chosen checkpoints: the rows of its table, without differences."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas

from rpg import stats
from rpg.report import problem_scores
from rpg.report.problem_scores import ProblemScores
from rpg.report.selection import Selection


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


def measure(selection: Selection, problems: ProblemScores) -> pandas.DataFrame:
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
