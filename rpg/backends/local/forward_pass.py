"""The forward pass of a micro-batch, with what is differentiated beside the loss of its sampled
tokens; and its backward pass.

Shapes: N responses (rows), T response tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rpg.backends.local.experience import Experience
from rpg.backends.local.reference import Reference
from rpg.catalogue import DistributionKL
from rpg.config.run_spec import RunSpec
from rpg.losses.aggregation import Counts, aggregate
from rpg.losses.policy_loss import weighted_likelihood
from rpg.models.policy import Policy


@dataclass(frozen=True)
class Forward:
    """One forward pass over a micro-batch."""

    log_prob: Tensor
    """(N, T)."""
    token_kl_value: Tensor | None
    """(N, T): divergences of whole distributions, detached. They enter the loss by their value
    through policy_loss, and by their gradient through `extra_loss`; a centred KL is a constant of
    the advantage and has no gradient."""
    extra_loss: Tensor | None
    """A scalar that is differentiated beside the loss of the sampled tokens, since it depends on
    more than their log-probabilities: entropy, likelihood of right responses, divergences of whole
    distributions."""
    metrics: dict[str, float]

    def backward(self, slope: Tensor) -> None:
        """Add to the weights' gradients; `slope` (N, T): the loss's derivative in the
        log-probabilities."""
        outputs = list[Tensor]()
        slopes = list[Tensor]()
        if slope.any():  # not for groups without a signal, or where all is clipped
            outputs.append(self.log_prob)
            slopes.append(slope)
        if self.extra_loss is not None:
            outputs.append(self.extra_loss)
            slopes.append(torch.ones_like(self.extra_loss))
        if outputs:
            torch.autograd.backward(outputs, slopes)


def forward_pass(
    spec: RunSpec, policy: Policy, reference: Reference, micro: Experience, counts: Counts
) -> Forward:
    algorithm = spec.algorithm
    batch = micro.batch
    temperature = spec.rollout.temperature
    mode = algorithm.loss_agg_mode
    entropy_weight = spec.training.entropy_coeff
    whole = algorithm.reads_distributions
    scored = policy.scored(batch, temperature, entropy=entropy_weight > 0, states=whole)

    metrics = dict[str, float]()
    extra = list[Tensor]()
    if scored.entropy is not None:
        extra.append(-entropy_weight * aggregate(scored.entropy, batch.mask, mode, counts))
        metrics["policy_entropy"] = float(scored.entropy.detach().sum() / batch.mask.sum())
    if micro.lm_weights is not None:
        extra.append(-weighted_likelihood(scored.log_prob, micro.lm_weights, batch.mask, counts))

    token_kl_value = None
    if whole:
        token_kl, measured = reference.token_kl(policy, scored, batch, temperature)
        if isinstance(algorithm.kl, DistributionKL):
            extra.append(algorithm.beta * aggregate(token_kl, batch.mask, mode, counts))
        metrics |= measured
        token_kl_value = token_kl.detach()

    return Forward(
        log_prob=scored.log_prob,
        token_kl_value=token_kl_value,
        extra_loss=torch.stack(extra).sum() if extra else None,
        metrics=metrics,
    )
