"""What one mini-batch is looked at for beside its loss: the spread of its ratios, and how much of its gradient is the
KL's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rpg.catalogue import Algorithm, LossKL, ObjectiveKL
from rpg.losses.policy_loss import policy_loss

QUANTILES = {"ratio_p01": 0.01, "ratio_p50": 0.5, "ratio_p99": 0.99}


class Probe:
    """Fed with the micro-batches of one optimizer step; costs two further losses, no forward or backward pass."""

    def __init__(self, algorithm: Algorithm):
        self.algorithm = algorithm
        has_kl = isinstance(algorithm.kl, LossKL | ObjectiveKL) and algorithm.beta > 0
        self._without = algorithm.model_copy(update={"beta": 0.0}) if has_kl else None
        self._log_ratios: list[Tensor] = []
        self._kl = self._rest = 0.0

    def add(self, log_prob: Tensor, inputs: dict[str, Any]) -> None:
        """`log_prob` (N, T) and the other arguments of `policy_loss`."""
        log_prob, mask = log_prob.detach(), inputs["response_mask"]
        self._log_ratios.append((log_prob - inputs["old_log_prob"])[mask])
        if self._without is not None:
            whole, rest = (_slope(algo, log_prob, inputs) for algo in (self.algorithm, self._without))
            self._kl += float((whole - rest).square().sum())
            self._rest += float(rest.square().sum())

    def metrics(self) -> dict[str, float]:
        """Quantiles of the token ratios; and the KL's share, |g - r| / (|g - r| + |r|) for the gradients g with and r
        without it, with respect to the tokens' log-probabilities.
        """
        ratios = torch.cat(self._log_ratios).exp()
        levels = ratios.new_tensor(list(QUANTILES.values()))
        found = dict(zip(QUANTILES, torch.quantile(ratios, levels).tolist(), strict=True))
        if self._without is not None:
            kl, rest = self._kl**0.5, self._rest**0.5
            found["kl_gradient_share"] = kl / (kl + rest) if kl + rest > 0 else 0.0
        return found


def _slope(algorithm: Algorithm, log_prob: Tensor, inputs: dict[str, Any]) -> Tensor:
    leaf = log_prob.requires_grad_()
    return torch.autograd.grad(policy_loss(algorithm, log_prob=leaf, **inputs).loss, leaf)[0]
