"""What the optimizer steps of one rollout are trained on, and in which parts.

Shapes: N responses (rows), T response tokens.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rpg.catalogue import Algorithm
from rpg.config.run_spec import RunSpec
from rpg.losses.advantages import advantages
from rpg.losses.aggregation import Counts
from rpg.losses.policy_loss import LossInputs
from rpg.models import seeds
from rpg.models.decoding import Batch


@dataclass(frozen=True)
class Experience:
    """What the optimizer steps of one rollout need; (N, T) each.

    Which policy is the old one, and what the weights are: the table above RolloutCorrection in
    rpg/catalogue/components.py.
    """

    batch: Batch
    policy_log_prob: Tensor
    """Of the trained policy before the updates."""
    sampler_log_prob: Tensor
    """Of the policy that drew the response, as the trainer computes it."""
    engine_log_prob: Tensor
    """Of the same, as the engine computed it while it drew."""
    old_log_prob: Tensor
    """Of what the ratio divides by: the first or the second of these."""
    ref_log_prob: Tensor | None
    advantages: Tensor
    row: Tensor
    """(N,) numbers of the responses within the rollout."""
    rollout_weights: Tensor | None = None
    """(N, T) or (N, 1): the loss is multiplied by them, to correct for the sampler."""
    values: Tensor | None = None
    """A critic's values before the updates."""
    targets: Tensor | None = None
    """What the critic is to learn."""
    lm_weights: Tensor | None = None
    """(N, T) of losses.advantages.positive_lm_weights."""
    rewards: Tensor | None = None
    """(N, 1), where advantages follow the policy from update to update (advantage target)."""

    def rows(self, index: Tensor) -> "Experience":
        """The responses of these numbers, as wide as the longest of them."""
        batch = self.batch.rows(index)
        width = batch.tokens.shape[1]
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        parts = {name: x[index, :width] for name, x in tensors.items() if x.ndim > 1}
        return replace(self, batch=batch, row=self.row[index], **parts)

    def inputs(self, counts: Counts) -> LossInputs:
        return LossInputs(
            old_log_prob=self.old_log_prob,
            ref_log_prob=self.ref_log_prob,
            advantages=self.advantages,
            response_mask=self.batch.mask,
            rollout_weights=self.rollout_weights,
            counts=counts,
        )

    def towards_target(self, algorithm: Algorithm, log_prob: Tensor) -> "Experience":
        """With the advantages of a policy that has these log-probabilities (advantage target)."""
        assert self.rewards is not None
        renewed = advantages(
            algorithm,
            rewards=self.rewards[:, 0],
            group=self.batch.prompt_of,
            response_mask=self.batch.mask,
            old_log_prob=self.old_log_prob,
            ref_log_prob=self.ref_log_prob,
            log_prob=log_prob,
        )
        return replace(self, advantages=renewed)


def mini_batches(spec: RunSpec, step: int, experience: Experience) -> list[Tensor]:
    """The responses of each mini-batch of each epoch, whole groups in a random order."""
    size = spec.rollout.group_size
    device = experience.old_log_prob.device
    groups = len(experience.batch) // size
    parts = []
    for epoch in range(spec.training.epochs):
        order = seeds.permutation(groups, spec.seed, "mini-batches", step, epoch)
        for chosen in torch.split(order.to(device), spec.training.mini_batch_prompts):
            first_rows = chosen.sort().values[:, None] * size
            parts.append((first_rows + torch.arange(size, device=device)).flatten())
    return parts
