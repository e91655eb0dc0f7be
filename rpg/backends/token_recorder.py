"""What the loss did to every token of a few responses of a rollout, for rpg.store.token_records; on
both back ends.

Shapes: N responses (rows), T response tokens.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rpg.catalogue import Algorithm
from rpg.config.training import TokenRecords
from rpg.losses.policy_loss import LossInputs, token_terms
from rpg.store.token_records import VALUES

Values = dict[int, tuple[int, Tensor]]
"""By the number of a response within the rollout: the optimizer step that used it, and the numbers
of its tokens, padded: (VALUES and last `clipped`, T), float32.
"""


@dataclass
class Recorder:
    """Which of the N responses of a rollout are recorded, and their rows once the updates are
    done."""

    records: TokenRecords
    size: int
    """Responses of a group; they stand together."""
    prompts: Sequence[Sequence[int]]
    """Token ids of each response's prompt."""
    responses: Sequence[Tensor]
    """Token ids of each response (int64, one axis)."""
    rewards: Sequence[float]
    text: Callable[[Sequence[int]], str]
    """Makes text of token ids."""
    values: Values = field(default_factory=dict)
    """What :func:`token_values` gave; of a response that is used in several epochs, the last use
    stays."""

    @cached_property
    def marks(self) -> Tensor:
        """(N,) number within the rollout of a response that is recorded, -1 for the others."""
        marks = torch.full((len(self.responses),), -1, device=self.responses[0].device)
        kept = 0
        left = self.records.most_tokens
        # In an order that depends on the prompts alone: variants that were given the same ones keep
        # the same.
        for head in sorted(
            range(0, len(marks), self.size), key=lambda row: digest(self.prompts[row])
        ):
            tokens = sum(map(len, self.responses[head : head + self.size]))
            if kept < self.records.groups and tokens <= left:
                marks[head : head + self.size] = torch.arange(head, head + self.size)
                kept = kept + 1
                left = left - tokens
        return marks

    def rows(self) -> list[dict[str, Any]]:
        rows = []
        for number, (optimizer_step, values) in sorted(self.values.items()):
            prompt = self.prompts[number]
            ids = self.responses[number].tolist()
            *lists, clipped = values[:, : len(ids)].tolist()
            rows.append(
                {
                    "prompt_digest": digest(prompt),
                    "prompt": self.text(prompt),
                    "sample": number % self.size,
                    "reward": self.rewards[number],
                    "optimizer_step": optimizer_step,
                    "ids": ids,
                    "tokens": [self.text([token]) for token in ids],
                    "clipped": list(map(int, clipped)),
                    **dict(zip(VALUES, lists, strict=True)),
                }
            )
        return rows


def token_values(
    algorithm: Algorithm,
    marks: Tensor,
    optimizer_step: int,
    loss: Tensor,
    sampler_log_prob: Tensor,
    log_prob: Tensor,
    inputs: LossInputs,
    token_kl: Tensor | None = None,
) -> Values:
    """The values of the marked rows of a micro-batch; zero where masked, as the tokens of an
    environment are.

    marks (N,) as in :class:`Recorder`; loss: the scalar that `backward` is yet to be called on;
    sampler_log_prob (N, T): under the policy that sampled; log_prob (N, T), a leaf, and
    `inputs` of the loss; token_kl (N, T): the KL over the whole distribution, where the loss has
    one (whose gradient is not in the slope).
    """
    marked = (marks >= 0).nonzero()[:, 0]
    if not len(marked):
        return {}
    terms = token_terms(
        algorithm,
        log_prob=log_prob,
        old_log_prob=inputs.old_log_prob,
        advantages=inputs.advantages,
        response_mask=inputs.response_mask,
        ref_log_prob=inputs.ref_log_prob,
        token_kl=token_kl,
    )
    reference = inputs.ref_log_prob
    values = {
        "policy": log_prob,
        "old": inputs.old_log_prob,
        "sampler": sampler_log_prob,
        "reference": inputs.old_log_prob if reference is None else reference,
        "ratio": terms["ratio"],
        "advantage": inputs.advantages,
        "kl": terms["kl"] if token_kl is None else token_kl,
        "slope": torch.autograd.grad(loss, log_prob, retain_graph=True)[0],
    }
    columns = [values[name] for name in VALUES]
    columns.append(terms["clipped"])
    counted = (inputs.response_mask != 0)[marked]
    numbers = torch.stack(
        [torch.where(counted, c.detach()[marked].float(), 0) for c in columns], 1
    ).cpu()
    rows = zip(marks[marked].tolist(), numbers, strict=True)
    return {number: (optimizer_step, row) for number, row in rows}


def digest(prompt: Sequence[int]) -> str:
    return hashlib.sha256(repr(list(prompt)).encode()).hexdigest()[:12]
