"""Means of a loss's metrics."""

from __future__ import annotations


class Meter:
    """Means of the loss's metrics over micro-batches and optimizer steps, weighted by tokens."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weight = self._loss = 0.0
        self._ratio_max = 0.0

    def add(self, metrics: dict[str, float], weight: float) -> None:
        metrics = dict(metrics)
        self._loss += metrics.pop("loss")  # already divided by the counts of the mini-batch
        self._ratio_max = max(self._ratio_max, metrics.pop("ratio_max"))
        self._weight += weight
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * weight

    def means(self, optimizer_steps: int) -> dict[str, float]:
        result = {name: value / max(self._weight, 1.0) for name, value in self._sums.items()}
        return {"loss": self._loss / optimizer_steps, "ratio_max": self._ratio_max, **result}
