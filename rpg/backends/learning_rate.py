"""The learning rate of each optimizer step, the same on both back ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rpg.config.training import Schedule


def rate_factor(schedule: Schedule, warmup: int, step: int, total: int) -> float:
    """What the learning rate is multiplied by at optimizer step `step` (from 1) of `total`.

    Up to step `warmup` it rises linearly and reaches 1 there; after that it is transformers' schedule of that name,
    which begins at 1 and would be 0 one step after the last.
    """
    if step <= warmup:
        return step / warmup
    return 1.0 if schedule == "constant" else _falling(schedule, warmup, total)(min(step, total) - 1)


@lru_cache(maxsize=8)
def _falling(schedule: Schedule, warmup: int, total: int) -> Callable[[int], float]:
    import torch
    from transformers import get_scheduler

    nothing = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    made = get_scheduler(schedule, nothing, num_warmup_steps=warmup, num_training_steps=total)
    step: Callable[[int], float] = made.lr_lambdas[0]
    return step
