"""Agreement between an estimated gradient and its target, from blocks of gradients, without the
bias of their noise.

Two noisy vectors are never parallel, so the cosine of two averages depends on the number of samples
as much as on the gradients. But the product of two *independent* estimates is unbiased: products
between blocks of different samples are averaged, and the product of a block with itself is left
out.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
Array = NDArray[np.float64]
WIDE = 0.5  # an interval of a cosine that is wider says nothing that one would act on


class Agreement(NamedTuple):
    """Estimates about two gradients, each with a bootstrap interval over blocks: (estimate, low,
    high).

    cosine: between their expectations. bias: |expectation - target| / |target|. NaN if the blocks
    are too few or too noisy to distinguish a gradient from zero.
    """

    cosine: tuple[float, float, float]
    bias: tuple[float, float, float]

    @property
    def needs_more_samples(self) -> bool:
        """Whether the cosine's interval is too wide to say where the gradient points."""
        _, low, high = self.cosine
        return not high - low <= WIDE


def agreement(blocks: Array, targets: Array, draws: int = 400) -> Agreement:
    """`blocks` (B, D) estimate a gradient; `targets` (C, D), from other samples, estimate its
    target.

    Raises ValueError for fewer than two of either.
    """
    if len(blocks) < 2 or len(targets) < 2:
        given = f"{len(blocks)} blocks and {len(targets)} targets"
        raise ValueError(f"{given}: at least 2 of each, of different samples")
    grams = (blocks @ blocks.T, blocks @ targets.T, targets @ targets.T)
    rng = np.random.default_rng(0)

    def redrawn(count: int) -> Array:
        return np.bincount(rng.integers(count, size=count), minlength=count).astype(float)

    sizes = len(blocks), len(targets)
    points = [_point(*grams, *map(np.ones, sizes))]
    points += [_point(*grams, *map(redrawn, sizes)) for _ in range(draws)]
    values = np.array(points)
    tail = (1 - LEVEL) / 2

    def interval(column: int) -> tuple[float, float, float]:
        finite = values[1:, column][np.isfinite(values[1:, column])]
        low, high = (
            np.quantile(finite, (tail, 1 - tail)) if len(finite) > draws / 2 else (np.nan, np.nan)
        )
        return float(values[0, column]), float(low), float(high)

    # An estimate of products of different samples may lie outside of what a cosine can be.
    cosine, low, high = np.clip(interval(0), -1.0, 1.0)
    return Agreement((float(cosine), float(low), float(high)), interval(1))


def _point(
    block_gram: Array, cross: Array, target_gram: Array, a: Array, b: Array
) -> tuple[float, float]:
    """(cosine, bias) with blocks counted `a` and targets counted `b` times."""
    size = _squared(block_gram, a)
    target = _squared(target_gram, b)
    product = float(a @ cross @ b / (a.sum() * b.sum()))
    if target <= 0:
        return float("nan"), float("nan")
    cosine = product / (size * target) ** 0.5 if size > 0 else float("nan")
    return cosine, max(size - 2 * product + target, 0.0) ** 0.5 / target**0.5


def _squared(gram: Array, counts: Array) -> float:
    """|expectation|^2: the mean product of two different blocks."""
    pairs = np.outer(counts, counts)
    np.fill_diagonal(pairs, 0)
    total = pairs.sum()
    return float((gram * pairs).sum() / total) if total else float("nan")
