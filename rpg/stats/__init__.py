"""Estimates with honest intervals from few seeds and problems, and tests of differences.

In: arrays of scores by variant, seed and problem. Out: estimates, intervals, p-values, power. Pure
numpy and scipy: nothing of ours is imported. docs/statistics.md has the formulas. Read first:
estimates.py, then comparisons.py.
"""

from rpg.stats.collapse import Collapse, collapsed, share_collapsed
from rpg.stats.comparisons import ERROR, OTHERS, THESE, Family, family, holm, units
from rpg.stats.estimates import (
    Estimate,
    accuracy,
    components,
    crossed,
    majority_at_k,
    pass_at_k,
    t_quantile,
)
from rpg.stats.power import (
    ASSUMED,
    MATTERS,
    Design,
    Spreads,
    baseline_sentence,
    carried_by_few,
    detectable,
    sentence,
    spreads,
)
from rpg.stats.sampled import (
    Answers,
    problems_needed,
    sampled_family,
    samples_needed,
    smallest_found,
)
from rpg.stats.sequential import Look, next_look
from rpg.stats.verdicts import (
    BETTER,
    MINIMUM_MOVING,
    MINIMUM_SEEDS,
    NOT_TESTABLE,
    TOO_FEW_MOVE,
    TOO_FEW_SEEDS,
    WITHIN_NOISE,
    WORSE,
    Judged,
    has_few_seeds,
    judge,
    moves_too_little,
    verdict,
)

__all__ = [
    "ASSUMED",
    "BETTER",
    "ERROR",
    "MATTERS",
    "MINIMUM_MOVING",
    "MINIMUM_SEEDS",
    "NOT_TESTABLE",
    "OTHERS",
    "THESE",
    "TOO_FEW_MOVE",
    "TOO_FEW_SEEDS",
    "WITHIN_NOISE",
    "WORSE",
    "Answers",
    "Collapse",
    "Design",
    "Estimate",
    "Family",
    "Judged",
    "Look",
    "Spreads",
    "accuracy",
    "baseline_sentence",
    "carried_by_few",
    "collapsed",
    "components",
    "crossed",
    "detectable",
    "family",
    "has_few_seeds",
    "holm",
    "judge",
    "majority_at_k",
    "moves_too_little",
    "next_look",
    "pass_at_k",
    "problems_needed",
    "sampled_family",
    "samples_needed",
    "sentence",
    "share_collapsed",
    "smallest_found",
    "spreads",
    "t_quantile",
    "units",
    "verdict",
]
