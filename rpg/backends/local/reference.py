"""The reference policy of the KL term: its weights and its log-probabilities."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rpg.backends.local.next_tokens import next_token_kl
from rpg.backends.reference_schedule import ReferenceSchedule
from rpg.catalogue import Algorithm, DistributionKL, EMAReference
from rpg.models.decoding import Batch, Scored
from rpg.models.lora import adapted, adapters
from rpg.models.micro_batches import Limits, score
from rpg.models.model_loading import ModelError
from rpg.models.policy import Policy
from rpg.models.teacher import weights_digest


class Reference(ReferenceSchedule):
    """The reference of one run. For `old`, and for algorithms without a KL, nothing is kept or
    computed.

    Attributes:
        policy: a copy with the reference's weights; None while the reference is the policy that the
            next rollout updates.
        digest: of a teacher's weights (rpg.models.teacher), which every checkpoint names.
    """

    def __init__(self, algorithm: Algorithm, teacher: Policy | None = None):
        super().__init__(algorithm)
        self.policy, self.digest = teacher, teacher and weights_digest(teacher.model)
        self.kl = algorithm.kl

    def begin_rollout(self, optimizer_step: int) -> None:
        """Renew the reference if that is due: until :meth:`begin_updates` it is then the policy
        itself."""
        if self.renew_if_due(optimizer_step):
            self.policy = None

    def log_probs(
        self, batch: Batch, temperature: float, limits: Limits, recorded: bool = False
    ) -> Tensor | None:
        """(N, T) under the reference, one pass at a time; None where the reference is the policy
        itself, and where its whole distributions are asked for later (:meth:`token_kl`) and nothing
        is `recorded`."""
        if self.policy is None or (isinstance(self.kl, DistributionKL) and not recorded):
            return None
        return score(self.policy, batch, temperature, limits)

    def token_kl(
        self, policy: Policy, ours: Scored, batch: Batch, temperature: float
    ) -> tuple[Tensor, dict[str, float]]:
        """The divergence at every token of `batch`, which `policy` scored as `ours`, (N, T),
        differentiable where it is part of the loss; and metrics."""
        assert self.policy is not None
        in_loss = isinstance(self.kl, DistributionKL)
        setting = self.kl if isinstance(self.kl, DistributionKL) else DistributionKL()
        with torch.no_grad():
            theirs = self.policy.scored(batch, temperature, states=True)
        with policy.arithmetic(), torch.set_grad_enabled(in_loss):
            token_kl, metrics = next_token_kl(setting, ours, theirs, temperature)
        return batch.placed(token_kl), metrics

    def begin_updates(self, policy: Policy) -> None:
        """The policy is about to change: keep its weights if it is the reference."""
        if self.needed and self.policy is None:
            self.policy = policy.frozen_copy(share=True)

    def end_updates(self, policy: Policy) -> None:
        """All updates on a rollout are done: a moving average takes the policy in."""
        if self.needed and isinstance(self.schedule, EMAReference):
            assert self.policy is not None
            averaged = dict(self.policy.model.named_parameters())
            with torch.no_grad():
                for name, value in policy.model.named_parameters():
                    if value.requires_grad:
                        averaged[name].lerp_(value, 1 - self.schedule.decay)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
        """(numbers, weights) for a checkpoint; weights of a teacher or the initial policy have
        their own files."""
        numbers: dict[str, Any] = {"renewed_at": self.renewed_at, "average": self.average}
        if self.digest:
            return numbers | {"weights": "teacher", "digest": self.digest}, None
        if self.policy is None:
            return numbers | {"weights": "policy"}, None
        if self.renewed_at == 0 and not isinstance(self.schedule, EMAReference):
            return numbers | {"weights": "initial"}, None
        model = self.policy.model
        own = adapters(model) if adapted(model) else dict(model.named_parameters())
        return numbers | {"weights": "own"}, {
            name: x.detach().contiguous() for name, x in own.items()
        }

    def restore(
        self,
        numbers: dict[str, Any],
        weights: dict[str, Tensor] | None,
        policy: Policy,
        initial: Callable[[], Policy],
    ) -> None:
        """Back to a :meth:`state`. A copy of `policy`, the trained one, gets the weights; `initial`
        makes the initial policy, if it is needed. Raises ModelError: the teacher is another one
        than that of the run so far.
        """
        self.renewed_at, self.average = numbers["renewed_at"], numbers["average"]
        if numbers.get("digest") != self.digest:
            raise ModelError(
                "algorithm.reference.path: the weights of the teacher (SHA-256 "
                f"{self.digest}...) are not those that this "
                f"run began with ({numbers.get('digest')}...); restore them, or start "
                "another run with another path"
            )
        if numbers["weights"] == "initial":
            self.policy = initial().frozen_copy()
        elif numbers["weights"] == "own":
            self.policy = policy.frozen_copy(share=True)
            self.policy.model.load_state_dict(
                weights or {}, strict=False
            )  # tied weights have one name only
