"""The policy that samples: the one in training, one of some rollouts before, or a rounded copy of
either."""

from collections.abc import Mapping

import torch
from torch import Tensor

from rpg.config.training import Rollout
from rpg.models.policy import Policy

Weights = Mapping[str, Tensor]


class Sampler:
    """Keeps as many past policies as `rollout.staleness` says.

    Attributes:
        past: (rollout steps done, weights) of the policies before the current one, oldest first.
            Their number is the age of the policy that samples next, in rollouts.
        is_policy: whether the policy in training itself samples, at every step.
        exact_samples: whether samples have the log-probabilities that the trainer computes, up to
            rounding; vLLM computes its own.
    """

    def __init__(self, rollout: Rollout):
        self.staleness = rollout.staleness
        self.dtype = rollout.sampler.dtype
        self.exact_samples = rollout.engine.type == "local"
        self.is_policy = not self.staleness and self.dtype == "same"
        self.past: list[tuple[int, Weights]] = []
        self._copy: Policy | None = None

    def policy(self, current: Policy) -> Policy:
        """The policy that the next rollout is sampled from; valid until the next call."""
        if self.is_policy:
            return current
        if self._copy is None:
            self._copy = current.frozen_copy()
        weights: dict[str, Tensor] = dict(current.model.named_parameters())
        if self.past:
            _, oldest = self.past[0]
            weights |= oldest
        with torch.no_grad():
            for name, parameter in self._copy.model.named_parameters():
                parameter.copy_(rounded(weights[name], self.dtype))
        return self._copy

    def keep(self, current: Policy, step: int) -> None:
        """The policy that rollout step `step` (from 1) is about to update becomes a past one."""
        if self.staleness:
            parameters = current.model.named_parameters()
            weights = {
                name: value.detach().clone() for name, value in parameters if value.requires_grad
            }
            self.past.append((step - 1, weights))
            del self.past[: -self.staleness]


def rounded(weight: Tensor, dtype: str) -> Tensor:
    """A weight rounded to `rollout.sampler.dtype`, in its original dtype."""
    if dtype == "bfloat16":
        return weight.bfloat16().to(weight.dtype)
    if dtype == "float16":
        return weight.half().to(weight.dtype)
    if dtype == "int8" and weight.ndim > 1:  # vectors (norms, biases) are few and stay exact
        scale = weight.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
        return (weight / scale).round() * scale
    return weight
