"""p-values of several comparisons with one baseline, together (Dunnett 1955).

Under the hypothesis that all variants equal the baseline, the normal deviates of the comparisons
share the baseline's error, so any two of them have one correlation c: deviate j is
sqrt(c) z + sqrt(1 - c) e_j. Given z they are independent, so the chance that none of m is beyond
x is an integral over z alone. All functions take arrays of any shape.
"""

from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_SCALES = 32
"""Nodes for the common standard error of `dunnett`."""
_DEVIATES = np.linspace(0.0, 16.0, 1601)


def familywise_p(p: ArrayLike, comparisons: int, correlation: float) -> np.ndarray:
    """The chance that any of so many comparisons has a p-value below `p`, if nothing differs."""
    alone = np.asarray(p, float)
    if comparisons == 1:
        return alone
    deviates, logarithms = _table(comparisons, round(float(correlation), 4))
    deviate = -special.ndtri(np.clip(alone, 1e-300, 1.0) / 2)
    familywise = np.exp(_line(deviate, deviates, logarithms))
    return np.asarray(np.where(np.isnan(alone), np.nan, familywise))


def alone_p(alpha: float, comparisons: int, correlation: float) -> float:
    """The p-value of one comparison alone at which `familywise_p` is `alpha`: its inverse."""
    if comparisons == 1:
        return alpha
    deviates, logarithms = _table(comparisons, round(float(correlation), 4))
    deviate = np.interp(-np.log(alpha), -logarithms, deviates)
    return float(2 * special.ndtr(-deviate))


def sidak(p: ArrayLike, families: float) -> np.ndarray:
    """Sidak's correction (1967) of p-values that hold within a family, for so many families.

    With 1 / families it is its own inverse: from the level of all families to that of one.
    """
    p = np.asarray(p, float)
    below = np.minimum(p, 1 - 1e-12)
    return np.asarray(np.where(p >= 1, 1.0, -np.expm1(families * np.log1p(-below))))


def dunnett(t: ArrayLike, df: ArrayLike, comparisons: int, correlation: float) -> np.ndarray:
    """As `familywise_p`, of Student's t with one standard error for all comparisons (multivariate
    t)."""
    t, df = np.broadcast_arrays(np.abs(np.asarray(t, float)), np.asarray(df, float))
    places, weights = np.polynomial.legendre.leggauss(_SCALES)
    # Quantiles of the standard error over its expectation, by Wilson and Hilferty (1931).
    part = 2 / (9 * df[..., None])
    cube = 1 - part + special.ndtri((places + 1) / 2) * np.sqrt(part)
    scale = np.sqrt(np.maximum(cube, 1e-3) ** 3)
    deviates, logarithms = _table(comparisons, round(float(correlation), 4))
    beyond = np.exp(_line(t[..., None] * scale, deviates, logarithms))
    return np.asarray(beyond @ (weights / 2))


def _all_inside(deviate: np.ndarray, comparisons: int, correlation: float) -> np.ndarray:
    """The chance that no deviate of `comparisons` is beyond this one."""
    shared = np.sqrt(correlation) * _NODES
    alone = np.sqrt(1 - correlation)
    above = (deviate[..., None] + shared) / alone
    below = (-deviate[..., None] + shared) / alone
    return np.asarray((special.ndtr(above) - special.ndtr(below)) ** comparisons @ _WEIGHTS)


@cache
def _table(comparisons: int, correlation: float) -> tuple[np.ndarray, np.ndarray]:
    """Deviates, and the logarithms of their `familywise_p`, strictly falling."""
    p = 1 - _all_inside(_DEVIATES, comparisons, correlation)
    # Far out, where 1 - p rounds, Bonferroni's bound is exact to many digits.
    bound = np.minimum(comparisons * 2 * special.ndtr(-_DEVIATES), 1.0)
    p = np.where(bound < 1e-9, bound, np.maximum(p, 1e-300))
    return _DEVIATES, np.minimum.accumulate(np.log(p))


def _line(x: np.ndarray, places: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.asarray(np.interp(np.minimum(x, places[-1]), places, values))
