"""The critic of a run whose advantages are of type gae: a second model that predicts the return at
every response token.

It begins as a copy of the policy with a head of zeros, has an optimizer of its own, and is part of
every checkpoint.

Shapes: N responses (rows), T response tokens.
"""

from collections import defaultdict
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from rpg.backends.local.optimizers import Optimizer, round_into
from rpg.catalogue import GAE
from rpg.config.run_spec import RunSpec
from rpg.losses.advantages import value_loss
from rpg.losses.aggregation import Counts
from rpg.models.decoding import Batch
from rpg.models.micro_batches import Limits, in_passes
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy


class Critic:
    """A value model, trained in place."""

    def __init__(self, spec: RunSpec, policy: Policy):
        """Raises ModelError: the trainer has no implementation of its own of the policy's model,
        whose states it needs."""
        assert isinstance(spec.algorithm.advantage, GAE)
        if not policy.lean:
            raise ModelError(
                "algorithm.advantage gae: a critic needs a model of type Llama, Mistral, "
                "Qwen2 or Qwen3, not "
                f"{type(policy.model).__name__}; choose another advantage, e.g. {{type: group}}"
            )
        self.setting = spec.algorithm.advantage
        self.spec = spec
        self.policy = policy.frozen_copy()
        self.policy.recompute = policy.recompute
        model = self.policy.model.requires_grad_(True)
        self.head = nn.Linear(model.config.hidden_size, 1, bias=False, device=policy.device)
        nn.init.zeros_(self.head.weight)
        model.value_head = self.head
        settings = spec.training.optimizer
        if self.setting.critic_learning_rate:
            settings = settings.model_copy(
                update={"learning_rate": self.setting.critic_learning_rate}
            )
        self.optimizer = Optimizer(
            model, settings, spec.training.optimizer_steps, spec.half_weights()
        )
        self.updates = 0

    def values(self, batch: Batch) -> Tensor:
        """(N, T): the value before each response token, zero after a row's last token;
        differentiable."""
        scored = self.policy.scored(batch, 1.0, states=True)
        assert scored.states is not None
        with self.policy.arithmetic():
            return batch.placed(F.linear(scored.states, self.head.weight)[:, 0].float())

    def score(self, batch: Batch, limits: Limits) -> Tensor:
        """:meth:`values` without a gradient, one pass at a time."""
        return in_passes(self.values, batch, limits)

    def update(
        self, batch: Batch, old_values: Tensor, targets: Tensor, limits: Limits
    ) -> dict[str, float]:
        """One optimizer step on a mini-batch; `old_values` (before the step's updates),
        `targets` (N, T). Raises FloatingPointError: an infinite gradient."""
        self.optimizer.update_mode()
        self.optimizer.zero_grad()
        counts = Counts.of(batch.mask)
        total = 0.0
        mask = batch.mask
        for rows in limits.split(batch, range(len(batch))):
            part = batch.rows(rows)
            width = slice(part.tokens.shape[1])
            loss = value_loss(
                self.values(part),
                old_values=old_values[rows, width],
                targets=targets[rows, width],
                response_mask=part.mask,
                clip=self.setting.value_clip,
                counts=counts,
            )
            loss.backward()
            total += float(loss.detach())
        self.updates += 1
        self.optimizer.step(self.updates, self.spec.training.max_grad_norm)
        self.optimizer.rollout_mode()
        wanted = targets[mask]
        errors = (targets - old_values)[mask]
        metrics = {"value_loss": total}
        spread = float(wanted.var(correction=0))
        if spread > 1e-6:  # of targets that are all the same nothing can be explained
            metrics["value_explained"] = 1 - float(errors.var(correction=0)) / spread
        return metrics

    def tensors(self) -> dict[str, Tensor]:
        """Weights and optimizer state, for a checkpoint."""
        weights = {
            f"weights/{name}": value.contiguous()
            for name, value in self.optimizer.weights().items()
        }
        return weights | {
            f"optimizer/{name}": value for name, value in self.optimizer.tensors().items()
        }

    def numbers(self) -> dict[str, Any]:
        return {"updates": self.updates, "optimizer": self.optimizer.numbers()}

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Restore :meth:`tensors` and :meth:`numbers`."""
        optimizer = self.optimizer
        round_into(optimizer.masters, [tensors[f"weights/{name}"] for name in optimizer.names])
        state = {
            k.removeprefix("optimizer/"): v
            for k, v in tensors.items()
            if k.startswith("optimizer/")
        }
        round_into(optimizer.parameters, optimizer.masters)
        optimizer.load(state, numbers["optimizer"])
        self.updates = numbers["updates"]


def means(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the updates that have it."""
    values = defaultdict[str, list[float]](list)
    for row in rows:
        for name, value in row.items():
            values[name].append(value)
    return {name: sum(of_name) / len(of_name) for name, of_name in values.items()}
