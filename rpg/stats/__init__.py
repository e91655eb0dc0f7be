"""Estimates with honest intervals from few seeds and problems, tests of their differences: docs/statistics.md."""

from rpg.stats.comparisons import ERROR, MINIMUM_SEEDS, Family, family, holm
from rpg.stats.estimates import (
    LEVEL,
    Estimate,
    accuracy,
    crossed,
    majority_at_k,
    pass_at_k,
    seed_interval,
    t_quantile,
)

__all__ = [
    "ERROR",
    "LEVEL",
    "MINIMUM_SEEDS",
    "Estimate",
    "Family",
    "accuracy",
    "crossed",
    "family",
    "holm",
    "majority_at_k",
    "pass_at_k",
    "seed_interval",
    "t_quantile",
]
