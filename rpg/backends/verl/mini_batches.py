"""Which rows of a rollout make up each mini-batch, on which worker. Pure functions.

The mini-batches are whole groups in the order in which the embedded trainer would draw them in its first epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpg.backends.verl.job_settings import JobSettings
from rpg.models import seeds


def arrange(
    settings: JobSettings, step: int, groups: int, lengths: Sequence[int], workers: int
) -> tuple[list[int], list[int]]:
    """(order of rows, rows of each mini-batch on one worker).

    lengths: tokens of each row; rows come by groups, then any padding that makes their number a multiple of `workers`.
    verl gives each worker an equal slice of the ordered rows, so all mini-batches of worker 0 come first, then those of
    worker 1. Within a mini-batch the workers get about the same number of tokens.
    """
    size = settings.group_size
    drawn = seeds.permutation(groups, settings.seed, "mini-batches", step, 0).tolist()
    shares: list[list[list[int]]] = [[] for _ in range(workers)]
    for start in range(0, groups, settings.mini_batch_prompts):
        chosen = sorted(drawn[start : start + settings.mini_batch_prompts])
        rows = [group * size + i for group in chosen for i in range(size)]
        if start + settings.mini_batch_prompts >= groups:
            rows += range(groups * size, len(lengths))
        for worker, part in enumerate(_deal(rows, lengths, workers)):
            shares[worker].append(part)
    order = [row for share in shares for part in share for row in part]
    return order, [len(part) for part in shares[0]]


def mini_batch_order(settings: JobSettings, step: int, epoch: int, mini_batches: int) -> list[int]:
    """The order of the mini-batches in an epoch (from 0); they stay the same, since rows do not change workers."""
    if epoch == 0:
        return list(range(mini_batches))
    order: list[int] = seeds.permutation(
        mini_batches, settings.seed, "mini-batch order", step, epoch
    ).tolist()
    return order


def _deal(rows: list[int], lengths: Sequence[int], workers: int) -> list[list[int]]:
    """As many rows for each worker and about as many tokens: dealt longest first, in alternating directions."""
    if workers == 1:
        return [rows]
    hands: list[list[int]] = [[] for _ in range(workers)]
    for place, row in enumerate(sorted(rows, key=lambda r: -lengths[r])):
        lap, seat = divmod(place, workers)
        hands[seat if lap % 2 == 0 else workers - 1 - seat].append(row)
    return [sorted(hand) for hand in hands]
