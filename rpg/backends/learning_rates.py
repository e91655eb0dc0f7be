"""The learning rate at each optimizer step: warm-up and decay, the same on both back ends."""

from collections.abc import Callable
from functools import lru_cache

import torch

from rpg.config.training import Schedule


def rate_factor(schedule: Schedule, warmup: int, step: int, total: int) -> float:
    """The factor of the learning rate at optimizer step `step` (from 1) of `total`.

    It rises linearly to 1 at step `warmup`; after that it is transformers' schedule of that name,
    which begins at 1 and would reach 0 one step after the last.
    """
    if step <= warmup:
        return step / warmup
    return 1.0 if schedule == "constant" else _decay(schedule, warmup, total)(min(step, total) - 1)


@lru_cache(maxsize=8)
def _decay(schedule: Schedule, warmup: int, total: int) -> Callable[[int], float]:
    from transformers import get_scheduler  # noqa: PLC0415 (with it PEFT, which few processes need)

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)  # it wants one
    scheduler = get_scheduler(
        schedule, optimizer, num_warmup_steps=warmup, num_training_steps=total
    )
    factor: Callable[[int], float] = scheduler.lr_lambdas[0]
    return factor
