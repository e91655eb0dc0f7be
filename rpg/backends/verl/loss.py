"""The whole actor loss of a verl worker: rpg.policy_loss on what verl's engine hands to a loss function.

Shapes: B responses of a micro-batch (rows), T response tokens of its longest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import no_padding_2_padding

from rpg.catalogue import Algorithm
from rpg.losses.aggregation import Counts, aggregate
from rpg.losses.policy_loss import policy_loss

_OPTIONAL = ("ref_log_prob", "rollout_is_weights")


@dataclass(frozen=True)
class ActorLoss:
    """verl's contract: called with (model_output, data, dp_group), returns (scalar, metrics).

    A loss function registered with verl never sees reference log-probabilities, and verl adds its own KL to it; this one
    replaces the whole loss (`TrainingWorker.set_loss_fn`). The metrics are `{"rpg": (metrics, weight)}` of each micro-batch:
    verl cannot average over tokens, `update` does.
    """

    algorithm: Algorithm
    horizon: int
    """Response budget in tokens."""
    entropy_coeff: float = 0.0
    """Of the entropy bonus, for which the engine has to return the entropies (`calculate_entropy`)."""

    def __call__(
        self,
        model_output: Mapping[str, Any],
        data: TensorDict,
        dp_group: Any = None,  # noqa: ARG002 (verl passes it)
    ) -> tuple[Tensor, dict[str, tuple[dict[str, float], float]]]:
        log_prob = no_padding_2_padding(model_output["log_probs"], data)  # (B, T)
        optional = [name for name in _OPTIONAL if name in data.keys()]  # noqa: SIM118 (a TensorDict refuses `in`)
        fields = data.select("response_mask", "old_log_probs", "advantages", *optional).to_padded_tensor()
        tokens, sequences = tu.get(data, "mini_batch_tokens"), tu.get(data, "mini_batch_sequences")
        reference = fields.get("ref_log_prob", None)
        if reference is None and self.algorithm.needs_reference:
            reference = fields["old_log_probs"]  # just renewed: the reference is the sampling policy
        counts = Counts(tokens, sequences, self.horizon)
        out = policy_loss(
            self.algorithm,
            log_prob=log_prob,
            old_log_prob=fields["old_log_probs"],
            advantages=fields["advantages"],
            response_mask=fields["response_mask"],
            ref_log_prob=reference,
            rollout_weights=fields.get("rollout_is_weights", None),
            counts=counts,
            optimizer_step=tu.get(data, "optimizer_step"),
        )
        loss, metrics = out.loss, out.metrics
        if self.entropy_coeff:
            entropy = no_padding_2_padding(model_output["entropy"], data)
            mask, mode = fields["response_mask"], self.algorithm.loss_agg_mode
            loss = loss - self.entropy_coeff * aggregate(entropy, mask, mode, counts)
            held = torch.where(mask != 0, entropy.detach(), 0)
            metrics = metrics | {"policy_entropy": float(held.sum() / (mask != 0).sum().clamp(min=1))}
        # FSDP takes the mean of the gradient over data-parallel workers; the counts make a sum of it right.
        return loss * tu.get(data, "dp_size"), {"rpg": (metrics, out.weight)}
