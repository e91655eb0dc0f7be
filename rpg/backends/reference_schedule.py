"""When the reference policy is renewed, the same on both back ends."""

from rpg.catalogue import Algorithm


class ReferenceSchedule:
    """When the reference policy is replaced by the current one: the state of a run's reference,
    without any weights.

    All schedules do so between rollouts only: a reference does not change during the updates on
    one. Except for a moving average and another model, it is the policy before some rollout's
    updates.

    Attributes:
        needed: whether the loss reads a reference other than the old policy.
        renewed_at: optimizer step at which the reference was last renewed.
        average: moving average of the token KL(policy || reference) since then, nats (schedule
            `kl_above`).
    """

    def __init__(self, algorithm: Algorithm):
        self.needed = algorithm.needs_reference
        self.schedule = algorithm.reference
        self.renewed_at = 0
        self.average = 0.0

    def renew_if_due(self, optimizer_step: int) -> bool:
        """Between two rollouts: whether the current policy becomes the reference."""
        due = (
            not self.needed
            or (
                self.schedule.type == "every_k"
                and optimizer_step - self.renewed_at >= self.schedule.k
            )
            or (self.schedule.type == "kl_above" and self.average > self.schedule.kappa)
        )
        if due:
            self.renewed_at = optimizer_step
            self.average = 0.0
        return due

    def observe(self, step_kl_to_ref: float) -> None:
        """Take the mean KL(policy || reference) per token of one optimizer step into the
        average."""
        if self.schedule.type == "kl_above":
            decay = self.schedule.decay
            self.average = decay * self.average + (1 - decay) * step_kl_to_ref

    def age(self, optimizer_step: int) -> int:
        """Optimizer steps since the reference was renewed."""
        return optimizer_step - self.renewed_at
