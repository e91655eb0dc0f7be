"""Differences where all variants have spent the same, from checkpoints on both sides of that.

Between two checkpoints nobody has measured anything. Accuracies are interpolated there, and what
the true curve may have done is part of the result: an accuracy that rises or falls from one
checkpoint to the next lies between the two, so every difference is also tested at the ends that are
worst and best for the variant. A verdict is given only if these agree. Checkpoints that are too far
apart carry none, nor does the way from the initial model to the first checkpoint, where accuracies
change most.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rpg.report import problem_scores, verdicts
from rpg.report.format import size_in_points
from rpg.report.problem_scores import Place, ProblemScores, Runs
from rpg.report.verdicts import Difference

CLOSE = 0.1
"""How much the accuracy of a variant may change between the two checkpoints around a budget."""

Curve = Mapping[int, float]
"""Step, ascending -> what a run had spent by then, or how accurate it was."""


@dataclass(frozen=True)
class Bracket:
    """The last checkpoint before a run had spent a budget, the first after it, and the share of the
    way between them; twice the same checkpoint if the budget was spent exactly there."""

    before: int
    after: int
    share: float = 0.0

    @property
    def interpolated(self) -> Place:
        if self.before == self.after:
            return ((self.before, 1.0),)
        return ((self.before, 1 - self.share), (self.after, self.share))


@dataclass(frozen=True)
class Around:
    """The runs of a variant around a budget."""

    interpolated: Runs
    lowest: Runs
    """Each run at the checkpoint of its bracket with the lower accuracy."""
    highest: Runs
    change: float
    """Of the accuracy across the brackets, mean over runs."""
    brackets: Mapping[str, Bracket]

    @property
    def steps(self) -> int:
        """Between the two checkpoints, where that is most."""
        return max(bracket.after - bracket.before for bracket in self.brackets.values())

    @property
    def far_apart(self) -> str:
        """Why the checkpoints carry no verdict; empty if they are close enough."""
        apart = [one for one in self.brackets.values() if one.before != one.after]
        from_start = [bracket.after for bracket in apart if bracket.before == 0]
        if from_start:
            return f"spent before its first checkpoint, step {max(from_start)}"
        if self.change > CLOSE:
            widest = max(apart, key=lambda bracket: bracket.after - bracket.before)
            return (
                f"accuracy changes by {size_in_points(self.change)} points between steps "
                f"{widest.before} and {widest.after}"
            )
        return ""

    def spacing(self) -> int | None:
        """Steps between checkpoints that would be close enough; None: every step was evaluated."""
        if self.steps <= 1:
            return None
        parts = max(4, math.ceil(2 * self.change / CLOSE))
        return max(1, self.steps // parts)


def bracket(spent: Curve, budget: float) -> Bracket:
    """Around the budget; `spent` reaches it and begins below it."""
    before = max(step for step, amount in spent.items() if amount <= budget)
    after = min(step for step, amount in spent.items() if amount >= budget)
    if after <= before:
        return Bracket(before, before)
    share = (budget - spent[before]) / (spent[after] - spent[before])
    return Bracket(before, after, share)


def around(
    runs: Mapping[int, str],
    spent: Mapping[str, Curve],
    accuracies: Mapping[str, Curve],
    budget: float,
) -> Around:
    """The runs (by seed) of a variant where each had spent the budget."""
    brackets = {run: bracket(spent[run], budget) for run in runs.values()}
    lowest: Runs = {}
    highest: Runs = {}
    changes = []
    for seed, run in runs.items():
        before, after = brackets[run].before, brackets[run].after
        low, high = sorted((before, after), key=lambda step: accuracies[run][step])
        lowest[seed] = (run, ((low, 1.0),))
        highest[seed] = (run, ((high, 1.0),))
        changes.append(accuracies[run][after] - accuracies[run][before])
    return Around(
        interpolated={seed: (run, brackets[run].interpolated) for seed, run in runs.items()},
        lowest=lowest,
        highest=highest,
        change=abs(float(np.mean(changes))),
        brackets=brackets,
    )


def checkpoints(variants: Mapping[str, Around]) -> set[tuple[str, int]]:
    """(run, step) of all brackets."""
    return {
        (run, step)
        for variant in variants.values()
        for run, each in variant.brackets.items()
        for step in (each.before, each.after)
    }


def compare(
    problems: ProblemScores,
    variants: Mapping[str, Around],
    baseline: str,
    benchmarks: Sequence[str],
    level: float,
) -> tuple[dict[str, Difference], dict[str, str]]:
    """Variant -> its difference from the baseline; variant -> why it was not measured.

    `benchmarks` are those over which accuracies are means. The interval reaches from the lowest to
    the highest end of those of the three comparisons, and p is the largest of theirs.
    """
    refused = {}
    close = {}
    base = variants[baseline]
    for name, variant in variants.items():
        if name == baseline:
            continue
        if base.far_apart or variant.far_apart:
            refused[name] = variant.far_apart or f"baseline: {base.far_apart}"
        else:
            close[name] = variant

    def tested(pairs: problem_scores.Pairs) -> dict[str, Difference]:
        results = verdicts.compare(problems, pairs, {"": benchmarks}, level)
        return {name: result for (name, _), result in results.items()}

    middle = tested({name: (one.interpolated, base.interpolated) for name, one in close.items()})
    worst = tested({name: (one.lowest, base.highest) for name, one in close.items()})
    best = tested({name: (one.highest, base.lowest) for name, one in close.items()})
    differences = {}
    for name, result in middle.items():
        if name not in worst or name not in best:
            continue
        three = [result, worst[name], best[name]]
        found = {each.verdict for each in three}
        if len(found) > 1:
            steps = ", ".join(f"{step}" for step in _ends([close[name], base]))
            refused[name] = f"the checkpoints around it, steps {steps}, differ in their verdict"
            continue
        differences[name] = result._replace(
            low=min(each.low for each in three),
            high=max(each.high for each in three),
            p=max(each.p for each in three),
            p_corrected=max(each.p_corrected for each in three),
        )
    return differences, refused


def _ends(sides: Sequence[Around]) -> list[int]:
    """The steps of all brackets that are not a single checkpoint."""
    ends = set()
    for side in sides:
        for each in side.brackets.values():
            if each.before != each.after:
                ends |= {each.before, each.after}
    return sorted(ends)
