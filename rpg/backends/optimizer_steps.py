"""What the optimizer steps of both back ends share: learning rate, means of metrics, schedule of
the reference policy."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch

from rpg.catalogue import Algorithm
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


class Meter:
    """Means of the loss's metrics over micro-batches, those of ratios over whole optimizer steps,
    weighted by tokens."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weight = self._loss = self._ratio_max = 0.0
        self._ratios = defaultdict[int, list[list[float]]](list)

    def add(self, metrics: dict[str, float], weight: float, step: int = 0) -> None:
        """Of a micro-batch of optimizer step number `step`."""
        metrics = dict(metrics)
        count = metrics.pop("ratio_count", 0.0)
        if count:
            mean = metrics.pop("ratio_mean")
            ess = metrics.pop("ess")
            self._ratios[step].append(
                [weight, count, count * mean, count * mean**2 / ess if ess else 0.0]
            )
        self._loss += metrics.pop("loss")  # already divided by the counts of the mini-batch
        self._ratio_max = max(self._ratio_max, metrics.pop("ratio_max", 0.0))
        self._weight += weight
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * weight

    def metrics(
        self, norms: list[float], rate: float, more: Mapping[str, float] = {}
    ) -> dict[str, float]:
        """With the gradient norm of each optimizer step, the last learning rate, and what else was
        measured."""
        sums = defaultdict(float, self._sums)
        for passes in self._ratios.values():
            weight, count, ratio, squared = map(sum, zip(*passes, strict=True))
            sums["ratio_mean"] += weight * ratio / count
            sums["ess"] += weight * ratio**2 / (count * squared) if squared else 0.0
        means = {name: value / max(self._weight, 1.0) for name, value in sums.items()}
        gradient = {
            "grad_norm": sum(norms) / len(norms),
            "grad_norm_max": max(norms),
            "learning_rate": rate,
        }
        loss = {"loss": self._loss / len(norms), "ratio_max": self._ratio_max}
        return {**loss, **means, **more, **gradient}


class ReferenceSchedule:
    """When the reference policy is replaced by the current one: the state of a run's reference,
    without any weights.

    All schedules do so between rollouts only: a reference does not change during the updates on
    one. Except for a moving average and another model, it is a policy that sampled a rollout.

    Attributes:
        needed: whether there is a reference other than the policy that sampled the rollout.
        renewed_at: optimizer step at which the reference was last renewed.
        average: moving average of the token KL(policy || reference) since then, nats (schedule
            `kl_above`).
    """

    def __init__(self, algorithm: Algorithm):
        self.needed = algorithm.needs_reference
        self.schedule = algorithm.reference
        self.renewed_at = 0
        self.average = 0.0

    def renew_if_due(self, optimizer_step: int) -> bool:
        """Between two rollouts: whether the current policy becomes the reference."""
        due = (
            not self.needed
            or (
                self.schedule.type == "every_k"
                and optimizer_step - self.renewed_at >= self.schedule.k
            )
            or (self.schedule.type == "kl_above" and self.average > self.schedule.kappa)
        )
        if due:
            self.renewed_at = optimizer_step
            self.average = 0.0
        return due

    def observe(self, token_kl: float) -> None:
        """Take the mean KL(policy || reference) per token of one optimizer step into the
        average."""
        if self.schedule.type == "kl_above":
            decay = self.schedule.decay
            self.average = decay * self.average + (1 - decay) * token_kl

    def age(self, optimizer_step: int) -> int:
        """Optimizer steps since the reference was renewed."""
        return optimizer_step - self.renewed_at
