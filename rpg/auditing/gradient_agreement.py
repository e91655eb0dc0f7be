"""Agreement between an estimated gradient and its target, from blocks of gradients, without the
bias of their noise.

Two noisy vectors are never parallel, so the cosine of two averages depends on the number of samples
as much as on the gradients. But the product of two *independent* estimates is unbiased: products
between blocks of different samples are averaged, and the product of a block with itself is left
out.
"""

from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
Array = NDArray[np.float64]
WIDE = 0.5  # an interval of a cosine that is wider says nothing that one would act on


class Agreement(NamedTuple):
    """Estimates about two gradients, each with a bootstrap interval over blocks: (estimate, low,
    high).

    cosine: between their expectations. bias: |expectation - target| / |target|. noise: the standard
    deviation of a block, over |target|. NaN if the blocks are too few or too noisy to distinguish a
    gradient from zero.
    """

    cosine: tuple[float, float, float]
    bias: tuple[float, float, float]
    noise: tuple[float, float, float]

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

    estimate = _point(*grams, np.ones(len(blocks)), np.ones(len(targets)))
    resampled = []
    for _ in range(draws):
        resampled.append(_point(*grams, redrawn(len(blocks)), redrawn(len(targets))))
    cosines, biases, noises = np.array(resampled).T

    # An estimate of products of different samples may lie outside of what a cosine can be.
    cosine, bias, noise = estimate
    low, high = _interval(cosines)
    cosine, low, high = np.clip((cosine, low, high), -1.0, 1.0).tolist()
    return Agreement(
        cosine=(cosine, low, high),
        bias=(bias, *_interval(biases)),
        noise=(noise, *_interval(noises)),
    )


def _interval(resampled: Array) -> tuple[float, float]:
    """The percentile interval of a bootstrap; NaN where fewer than half of its draws are finite."""
    finite = resampled[np.isfinite(resampled)]
    if len(finite) <= len(resampled) / 2:
        return nan, nan
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(finite, (tail, 1 - tail))
    return float(low), float(high)


def _point(
    block_gram: Array, cross: Array, target_gram: Array, a: Array, b: Array
) -> tuple[float, float, float]:
    """(cosine, bias, noise) with blocks counted `a` and targets counted `b` times."""
    size = _squared(block_gram, a)
    target = _squared(target_gram, b)
    product = float(a @ cross @ b / (a.sum() * b.sum()))
    if target <= 0:
        return nan, nan, nan
    cosine = product / (size * target) ** 0.5 if size > 0 else nan
    squared_distance = max(size - 2 * product + target, 0.0)
    # The variance over all coordinates: the mean squared length less the squared mean.
    mean_squared_length = float(a @ np.diag(block_gram) / a.sum())
    variance = max(mean_squared_length - size, 0.0)
    return cosine, squared_distance**0.5 / target**0.5, variance**0.5 / target**0.5


def _squared(gram: Array, counts: Array) -> float:
    """|expectation|^2: the mean product of two different blocks."""
    pairs = np.outer(counts, counts)
    np.fill_diagonal(pairs, 0)
    total = pairs.sum()
    return float((gram * pairs).sum() / total) if total else float("nan")
