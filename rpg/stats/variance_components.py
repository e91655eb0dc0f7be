"""What the spread of single answers is made of: seeds, initial models, problems, sampling."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

SAMPLING = "sampling"
TOGETHER = "interactions"


def variance_components(
    cells: np.ndarray, samples: int, factors: Sequence[str]
) -> dict[str, float]:
    """Variances by factor, of their interactions together, and of sampling an answer; unbiased, so
    one may be below zero.

    `cells` has an axis for each of the `factors` and holds shares of right answers among `samples`;
    every factor is a random sample of at least two levels, else ValueError. Method of moments with
    the expected mean squares of the crossed design (Searle, Casella & McCulloch 1992, Variance
    Components, ch. 4; Brennan 2001, ch. 3).
    """
    if cells.ndim != len(factors) or min(cells.shape) < 2:
        raise ValueError(
            f"expected at least two levels of {', '.join(factors)}; the shape is {cells.shape}"
        )
    variances = _by_group(cells)
    result = {}
    for axis, factor in enumerate(factors):
        result[factor] = float(variances[axis,])
    mixed = float(sum(variance for group, variance in variances.items() if len(group) > 1))
    if samples == 1:  # nobody knows what would have been the same another time
        result[f"{TOGETHER} and {SAMPLING}"] = mixed
        return result
    answers = float((cells * (1 - cells)).mean()) * samples / (samples - 1)
    result[TOGETHER] = mixed - answers / samples
    result[SAMPLING] = answers
    return result


def _by_group(cells: np.ndarray) -> dict[tuple[int, ...], float]:
    """The variance of each axis and of each interaction, from the expected mean squares: those of
    larger interactions are subtracted and added in turn."""
    axes = range(cells.ndim)
    groups: list[tuple[int, ...]] = []
    for size in range(1, cells.ndim + 1):
        groups.extend(combinations(axes, size))
    squares = {frozenset(group): _mean_square(cells, group) for group in groups}
    variances = {}
    for group in groups:
        inside = frozenset(group)
        total = 0.0
        for larger, square in squares.items():
            if larger >= inside:
                sign = (-1) ** len(larger - inside)
                total += sign * square
        repeats = [cells.shape[axis] for axis in axes if axis not in inside]
        variances[group] = float(total / np.prod(repeats))
    return variances


def _mean_square(cells: np.ndarray, group: tuple[int, ...]) -> float:
    """Mean square of the interaction of the axes in `group`."""
    others = tuple(axis for axis in range(cells.ndim) if axis not in group)
    effect = cells.mean(axis=others, keepdims=True)
    for axis in group:
        effect = effect - effect.mean(axis=axis, keepdims=True)
    repeated = cells.size / effect.size
    freedom = np.prod([cells.shape[axis] - 1 for axis in group])
    return float(repeated * (effect**2).sum() / freedom)
