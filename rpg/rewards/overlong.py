"""The soft punishment of overlong responses."""

from __future__ import annotations


def overlong_punishment(tokens: int, limit: int, buffer_fraction: float, factor: float) -> float:
    """Soft overlong punishment, 0 or negative (DAPO, arXiv 2503.14476, eq. 13; paper App. H).

    Zero up to `limit - buffer` tokens, where the buffer is `buffer_fraction * limit`, then linear down to -factor at
    `limit`.

    Raises:
        ValueError: limit < 1 or buffer_fraction outside (0, 1].
    """
    if limit < 1 or not 0 < buffer_fraction <= 1:
        raise ValueError(
            f"limit {limit} must be positive and buffer_fraction {buffer_fraction} within (0, 1]"
        )
    buffer = buffer_fraction * limit
    return -factor * min(max(tokens - (limit - buffer), 0.0) / buffer, 1.0)
