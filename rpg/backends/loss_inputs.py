"""What the loss of a (micro-)batch reads beside the log-probabilities that are trained."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.catalogue import Algorithm
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import LossOutput, policy_loss


@dataclass(frozen=True)
class LossInputs:
    """Arguments of :func:`rpg.losses.policy_loss.policy_loss`, by their names."""

    old_log_prob: Tensor
    ref_log_prob: Tensor | None
    advantages: Tensor
    response_mask: Tensor
    rollout_weights: Tensor | None = None
    counts: Counts | None = None

    def loss(
        self, algorithm: Algorithm, log_prob: Tensor, token_kl: Tensor | None = None
    ) -> LossOutput:
        return policy_loss(
            algorithm,
            log_prob=log_prob,
            old_log_prob=self.old_log_prob,
            advantages=self.advantages,
            response_mask=self.response_mask,
            ref_log_prob=self.ref_log_prob,
            rollout_weights=self.rollout_weights,
            token_kl=token_kl,
            counts=self.counts,
        )

    def slope(self, algorithm: Algorithm, log_prob: Tensor) -> Tensor:
        """The derivative of the loss with respect to `log_prob` (N, T), a leaf."""
        leaf = log_prob.requires_grad_()
        return torch.autograd.grad(self.loss(algorithm, leaf).loss, leaf)[0]
