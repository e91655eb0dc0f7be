"""Tests of the variants' differences from a baseline, for the tables of rpg.report.summary.

A table has two families, each judged at the whole level: the differences of the mean over
benchmarks, and those of all single benchmarks.

A verdict is one word of stats.verdict (better, worse, within noise), or one of NO_VERDICT, which
says why there is none.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rpg import stats
from rpg.report.problem_scores import Pairs, ProblemScores
from rpg.report.selection import MEAN

REAL = (stats.BETTER, stats.WORSE)
TOO_FEW = stats.TOO_FEW_SEEDS
TOO_FEW_MOVE = stats.TOO_FEW_MOVE
NOT_MEASURED = "not measured"
"""At equal spending: the checkpoints of a variant do not carry a verdict."""
NO_VERDICT = (TOO_FEW, TOO_FEW_MOVE, NOT_MEASURED, stats.NOT_TESTABLE)


class Difference(NamedTuple):
    """A variant's difference from the baseline; without a p-value if it cannot be tested.

    Bounds and `p_corrected` hold for all differences of its family together, and `verdict` says on
    which side of zero the bounds are, or why there is no verdict (stats.judge): it is about other
    problems of the kind. `these_verdict` is about the problems at hand, where seeds alone vary.
    `p_mixed` is that of a plain crossed mixed model, for comparison.
    """

    difference: float
    low: float
    high: float
    p: float
    p_corrected: float
    verdict: str
    p_mixed: float = math.nan
    these_low: float = math.nan
    these_high: float = math.nan
    these_verdict: str = ""


def with_equal_seeds(
    scores: ProblemScores, pairs: Pairs, parts: Sequence[str]
) -> Iterator[tuple[list[str], stats.Family]]:
    """Groups of variants that share the same seeds and places with the baseline and have all
    benchmarks, and their differences. Seeds that only the baseline has count, too."""
    # The formulas take a table without gaps, so each group is one table of its own.
    groups: dict[Any, list[str]] = {}
    for name, (runs, base) in pairs.items():
        if scores.block(parts, [base, runs]):
            shared = tuple((seed, base[seed]) for seed in sorted(set(runs) & set(base)))
            further = tuple((seed, base[seed]) for seed in sorted(set(base) - set(runs)))
            groups.setdefault((shared, further), []).append(name)
    for (shared, further), names in groups.items():
        variants = [dict(shared), *(pairs[name][0] for name in names)]
        compared = scores.compared(parts, variants, dict(further))
        if compared:
            yield names, compared.family()


def compare(
    scores: ProblemScores,
    pairs: Pairs,
    benchmarks: Mapping[str, Sequence[str]],
    level: float = stats.ERROR,
) -> dict[tuple[str, str], Difference]:
    """(variant, benchmark) -> its difference, all of them tested together; `benchmarks` are names
    with their parts (a mean has several)."""
    fitted = []
    for name, parts in benchmarks.items():
        for variants, family in with_equal_seeds(scores, pairs, parts):
            fitted.append((name, variants, family))
    comparisons = sum(len(variants) for _, variants, _ in fitted)
    results: dict[tuple[str, str], Difference] = {}
    for benchmark, variants, family in fitted:
        differences = differences_of(family, comparisons, level)
        results |= {
            (variant, benchmark): result
            for variant, result in zip(variants, differences, strict=True)
        }
    return results


def tested_together(parts: Mapping[str, Sequence[str]], of_mean: bool) -> dict[str, Sequence[str]]:
    """The benchmarks that are tested together: the mean accuracies, or all single ones."""
    return {
        benchmark: names for benchmark, names in parts.items() if (benchmark == MEAN) == of_mean
    }


def differences_of(family: stats.Family, comparisons: int, level: float) -> list[Difference]:
    """The differences of variants with equal seeds, judged together with all `comparisons`."""
    others = stats.judge(family, stats.OTHERS, comparisons, level)
    these = stats.judge(family, stats.THESE, comparisons, level)
    p_values = family.p_values()
    p_mixed = family.mixed_p(comparisons)
    rows = []
    for at in range(family.comparisons):
        judged = others[at]
        tested = not math.isnan(judged.p)
        row = Difference(
            difference=float(family.difference[0, at]),
            low=judged.low,
            high=judged.high,
            p=float(p_values[0, at]) if tested else math.nan,
            # Scaled so that it can be compared with 0.05 at every look.
            p_corrected=min(judged.p * (stats.ERROR / level), 1.0) if tested else math.nan,
            verdict=judged.word,
            p_mixed=float(p_mixed[0, at]) if tested else math.nan,
            these_low=these[at].low,
            these_high=these[at].high,
            these_verdict=these[at].word,
        )
        rows.append(row)
    return rows
