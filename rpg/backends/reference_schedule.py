"""When the reference policy of the KL term is renewed: the bookkeeping both back ends share, without any weights.

All schedules renew between rollouts only, so a reference is always a policy that sampled a rollout, and within a rollout
it does not change under the loss.
"""

from __future__ import annotations

from rpg.catalogue import Algorithm


class ReferenceSchedule:
    """The reference of one run as two numbers.

    Attributes:
        needed: whether there is a reference apart from the policy that sampled the rollout.
        renewed_at: optimizer steps done when the reference was last renewed.
        average: moving average of the token KL(policy || reference) since then, nats (schedule `kl_above`).
    """

    def __init__(self, algorithm: Algorithm):
        self.needed = algorithm.needs_reference
        self.schedule = algorithm.reference
        self.renewed_at, self.average = 0, 0.0

    def renew_if_due(self, optimizer_step: int) -> bool:
        """Between two rollouts: whether the policy that samples the next one becomes the reference."""
        kind = self.schedule
        due = (
            not self.needed
            or (kind.type == "every_k" and optimizer_step - self.renewed_at >= kind.k)
            or (kind.type == "kl_above" and self.average > kind.kappa)
        )
        if due:
            self.renewed_at, self.average = optimizer_step, 0.0
        return due

    def observe(self, token_kl: float) -> None:
        """One optimizer step's mean KL(policy || reference) per token."""
        if self.schedule.type == "kl_above":
            decay = self.schedule.decay
            self.average = decay * self.average + (1 - decay) * token_kl

    def age(self, optimizer_step: int) -> int:
        """Optimizer steps since the reference was renewed."""
        return optimizer_step - self.renewed_at
