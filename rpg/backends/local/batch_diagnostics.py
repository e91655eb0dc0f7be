"""Diagnostics of one mini-batch: the spread of its ratios, the KL's share of its gradient and,
where the run asks for it, the agreement of its gradient with the exact one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rpg.catalogue import AdvantageKL, Algorithm, LossKL, ObjectiveKL
from rpg.catalogue.lookup import divergence_of, exact_loss
from rpg.losses.policy_loss import LossInputs

QUANTILES = {"ratio_p01": 0.01, "ratio_p50": 0.5, "ratio_p99": 0.99}


class Diagnostics:
    """Gets the micro-batches of one optimizer step; costs two more losses, but no forward or
    backward pass.

    With `parameters` it costs one more backward pass, for the exact gradient of the loss's
    objective on the same responses, unclipped and with the sampler's own log-probabilities. (A KL
    in the reward is part of the advantages in both.) `masters` hold the loss's own gradient, where
    the `parameters` do not.
    """

    def __init__(
        self, algo: Algorithm, parameters: Sequence[Tensor] = (), masters: Sequence[Tensor] = ()
    ):
        self.algorithm = algo
        self._parameters = parameters
        self._masters = masters or parameters
        self._sums = [torch.zeros_like(p, dtype=torch.float32) for p in parameters]
        has_kl = isinstance(algo.kl, LossKL | ObjectiveKL | AdvantageKL) and algo.beta > 0
        if algo.reads_distributions:  # which are not at hand here
            has_kl = False
        self._without = algo.model_copy(update={"beta": 0.0}) if has_kl else None
        self._log_ratios: list[Tensor] = []
        self._kl = 0.0
        self._rest = 0.0

    def add_exact(
        self,
        log_prob: Tensor,
        sampler_log_prob: Tensor,
        inputs: LossInputs,
        extra_loss: Tensor | None,
    ) -> None:
        """Add a micro-batch's part of the exact gradient, before the backward pass that frees
        `log_prob`'s graph.

        `sampler_log_prob`: under the policy that sampled. `extra_loss` (of an entropy, of a
        divergence of whole distributions) is part of the objective, with the loss's sign.
        """
        if not self._parameters:
            return
        reference = inputs.ref_log_prob
        if reference is None:  # the reference is the old policy
            reference = inputs.old_log_prob
        unbiased = replace(
            inputs, old_log_prob=sampler_log_prob, ref_log_prob=reference, rollout_weights=None
        )
        algo = self.algorithm
        weights = self._parameters
        divergence = "none" if algo.kl.type in ("reward", "distribution") else divergence_of(algo)
        own: dict[str, Any] = {"loss_agg_mode": algo.loss_agg_mode, "reference": algo.reference}
        if algo.surrogate == "rpg":  # its objective may be that of prefixes or whole responses
            own["ratio"] = algo.ratio
        target = exact_loss(divergence, algo.beta, **own)
        outputs = [log_prob]
        slopes = [unbiased.slope(target, log_prob.detach())]
        if extra_loss is not None:
            outputs = [*outputs, extra_loss]
            slopes = [*slopes, torch.ones_like(extra_loss)]
        add_gradients(self._sums, weights, outputs, slopes)

    def add(self, log_prob: Tensor, inputs: LossInputs) -> None:
        """Add a micro-batch: `log_prob` (N, T) and what else the loss reads."""
        log_prob = log_prob.detach()
        self._log_ratios.append((log_prob - inputs.old_log_prob)[inputs.response_mask])
        if self._without is not None:
            with_kl = inputs.slope(self.algorithm, log_prob)
            without_kl = inputs.slope(self._without, log_prob)
            self._kl += float((with_kl - without_kl).square().sum())
            self._rest += float(without_kl.square().sum())

    def metrics(self) -> dict[str, float]:
        """After the loss's backward pass: quantiles of the token ratios; the KL's share |g - r| /
        (|g - r| + |r|) for the gradients g with and r without it, with respect to the tokens'
        log-probabilities; and, with `parameters`, cosine and relative bias |g - e| / |e| with
        respect to the exact gradient e.
        """
        ratios = torch.cat(self._log_ratios).exp()
        levels = ratios.new_tensor(list(QUANTILES.values()))
        metrics = dict(zip(QUANTILES, torch.quantile(ratios, levels).tolist(), strict=True))
        if self._without is not None:
            kl = self._kl**0.5
            rest = self._rest**0.5
            metrics["kl_gradient_share"] = kl / (kl + rest) if kl + rest > 0 else 0.0
        if not self._parameters:
            return metrics
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._masters]
        product = sum(float((a * b).sum()) for a, b in zip(gradients, self._sums, strict=True))
        size = _norm(gradients)
        exact_size = _norm(self._sums)
        if not size or not exact_size:
            return metrics
        distance = _norm([a - b for a, b in zip(gradients, self._sums, strict=True)])
        metrics["gradient_cosine"] = product / (size * exact_size)
        metrics["gradient_bias"] = distance / exact_size
        return metrics


def _norm(gradient: Sequence[Tensor]) -> float:
    """The norm of all parts of a gradient together."""
    return float(sum(float(part.square().sum()) for part in gradient) ** 0.5)


def add_gradients(
    sums: Sequence[Tensor],
    weights: Sequence[Tensor],
    outputs: Sequence[Tensor],
    slopes: Sequence[Tensor],
) -> None:
    """Add the gradients of `weights` that follow from those of `outputs`, whose graph stays."""
    gradients = torch.autograd.grad(outputs, weights, slopes, retain_graph=True, allow_unused=True)
    for total, gradient in zip(sums, gradients, strict=True):
        if gradient is not None:
            total += gradient
