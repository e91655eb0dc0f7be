"""Notes on runs that ended before their last step (training.until, rollout.drop_solved), and on the
time to an accuracy."""

from collections.abc import Mapping

import pandas

from rpg import stats
from rpg.errors import plural
from rpg.report.format import accuracy, amount, p_sentence
from rpg.stats.times import Times, compare_times, median_time
from rpg.store import queries
from rpg.store.queries import Database

_SETTINGS = {
    "tokens": "training.until.tokens",
    "seconds": "training.until.seconds",
    "accuracy": "training.until.accuracy",
    "solved": "rollout.drop_solved: no prompt was left",
}
"""What ends a run, by the reason it records."""


def notes(db: Database, sweep: str, labels: Mapping[str, str], baseline: str | None) -> list[str]:
    """What a reader has to know to read the table where runs ended early."""
    runs = queries.ends(db, sweep)
    return [*_ended(runs, labels), *_times(runs, labels, baseline)]


def _ended(runs: pandas.DataFrame, labels: Mapping[str, str]) -> list[str]:
    lines = []
    early = runs[runs["ended"] < runs["steps"]]
    for (variant, reason), group in early.groupby(["variant", "reason"]):
        of_variant = (runs["variant"] == variant).sum()
        steps = ", ".join(f"{step:.0f}" for step in sorted(group["ended"]))
        planned = group["steps"].max()
        lines.append(
            f"{labels[variant]}: {len(group)} of {plural(int(of_variant), 'run')} ended early "
            f"({_SETTINGS[reason]}), at step {steps}; the last checkpoint stands at step "
            f"{planned:.0f}"
        )
    return lines


def _times(runs: pandas.DataFrame, labels: Mapping[str, str], baseline: str | None) -> list[str]:
    """The time to an accuracy of each variant, compared with the baseline's."""
    runs = runs[runs["accuracy"].notna()]
    steps = {str(name): _reaching(group, "step") for name, group in runs.groupby("variant")}
    tokens = {str(name): _reaching(group, "tokens") for name, group in runs.groupby("variant")}
    compared = _compared(runs, steps, baseline)
    lines = []
    for variant, times in steps.items():
        goal = runs.loc[runs["variant"] == variant, "accuracy"].iloc[0]
        total = len(times.reached) + len(times.unfinished)
        line = (
            f"{labels[variant]}: training accuracy {accuracy(goal)} reached in "
            f"{len(times.reached)} of {plural(total, 'run')}"
        )
        median = median_time(times)
        if median is not None:
            line += f", median {median:.0f} steps"
            spent = median_time(tokens[variant])
            line += f" and {amount(spent)} tokens" if spent is not None else ""
            line += " (Kaplan-Meier; unfinished runs are censored)" if times.unfinished else ""
        if variant in compared:
            line += f"; log-rank against the baseline: {p_sentence(compared[variant])}, corrected"
        lines.append(line)
    return lines


def _reaching(runs: pandas.DataFrame, unit: str) -> Times:
    has_reached = runs["reason"] == "accuracy"
    values = runs[unit].astype(float)
    return Times(tuple(values[has_reached]), tuple(values[~has_reached]))


def _compared(
    runs: pandas.DataFrame, steps: Mapping[str, Times], baseline: str | None
) -> dict[str, float]:
    """Variant -> p, where all aim at one accuracy and seeds suffice for a verdict."""
    counts = runs.groupby("variant").size()
    if baseline is None or baseline not in steps or runs["accuracy"].nunique() > 1:
        return {}
    if counts.min() < stats.MINIMUM_SEEDS:
        return {}
    others = [variant for variant in steps if variant != baseline]
    p = [compare_times(steps[variant], steps[baseline]) for variant in others]
    return {
        variant: min(1.0, len(others) * value) for variant, value in zip(others, p, strict=True)
    }
