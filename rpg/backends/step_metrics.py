"""The metrics of one training step, from those of its micro-batches; the same on both back ends."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class _Ratios:
    """Sums over the importance ratios of one optimizer step."""

    weight: float = 0.0
    """Tokens of its micro-batches."""
    count: float = 0.0
    """Ratios: of tokens, or of whole responses."""
    ratio: float = 0.0
    squared: float = 0.0

    def add(self, weight: float, count: float, mean: float, ess: float) -> None:
        """The ratios of a micro-batch; `ess` is mean^2 / mean of squares."""
        self.weight += weight
        self.count += count
        self.ratio += count * mean
        if ess:
            self.squared += count * mean**2 / ess

    @property
    def weighted_mean(self) -> float:
        return self.weight * self.ratio / self.count

    @property
    def weighted_ess(self) -> float:
        if not self.squared:
            return 0.0
        return self.weight * self.ratio**2 / (self.count * self.squared)


class Meter:
    """Turns the loss metrics of micro-batches into the metrics of a training step.

    A metric is its mean over the step's tokens: micro-batches are weighted by their tokens. Four
    are made otherwise. `loss` is the sum over a mini-batch, since the parts are already divided by
    its counts, then the mean over optimizer steps. `ratio_max` is the largest. `ratio_mean` and
    `ess` are those of all ratios of an optimizer step together, then the mean over optimizer steps
    weighted by tokens.
    """

    def __init__(self) -> None:
        self._sums = defaultdict[str, float](float)
        self._weight = 0.0
        self._loss = 0.0
        self._ratio_max = 0.0
        self._ratios = defaultdict[int, _Ratios](_Ratios)

    def add(self, metrics: dict[str, float], weight: float, step: int = 0) -> None:
        """Metrics of a micro-batch with `weight` tokens, of optimizer step number `step`."""
        metrics = dict(metrics)
        self._loss += metrics.pop("loss")
        self._ratio_max = max(self._ratio_max, metrics.pop("ratio_max", 0.0))
        count = metrics.pop("ratio_count", 0.0)
        if count:
            mean = metrics.pop("ratio_mean")
            ess = metrics.pop("ess")
            self._ratios[step].add(weight, count, mean, ess)
        self._weight += weight
        for name, value in metrics.items():
            self._sums[name] += value * weight

    def metrics(
        self, norms: list[float], rate: float, more: Mapping[str, float] = {}
    ) -> dict[str, float]:
        """`norms`: the gradient norm of each optimizer step; `rate`: the last learning rate;
        `more`: what else was measured, which replaces a mean of the same name."""
        sums = defaultdict[str, float](float, self._sums)
        for ratios in self._ratios.values():
            sums["ratio_mean"] += ratios.weighted_mean
            sums["ess"] += ratios.weighted_ess
        metrics = {"loss": self._loss / len(norms), "ratio_max": self._ratio_max}
        metrics |= {name: total / max(self._weight, 1.0) for name, total in sums.items()}
        metrics |= more
        metrics["grad_norm"] = sum(norms) / len(norms)
        metrics["grad_norm_max"] = max(norms)
        metrics["learning_rate"] = rate
        return metrics
