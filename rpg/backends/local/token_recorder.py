"""What the loss did to every token of a few responses of a rollout, for rpg.store.token_records.

Shapes: N responses (rows), T response tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rpg.backends.local.rollout import Graded
from rpg.catalogue import Algorithm
from rpg.config.training import TokenRecords
from rpg.losses.policy_loss import token_terms


class Recorder:
    """Gets the micro-batches of one rollout's updates; of a response that is used in several epochs, the last use stays.

    `text` makes text of token ids.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        records: TokenRecords,
        graded: Graded,
        size: int,
        text: Callable[[Sequence[int]], str],
    ):
        self._algorithm, self._graded, self._size, self._text = algorithm, graded, size, text
        self._rows: dict[int, dict[str, Any]] = {}
        batch = graded.samples.batch
        self._prompts = [batch.prompts[number] for number in batch.prompt_of.tolist()]
        lengths = batch.lengths.view(-1, size).sum(-1).tolist()
        # In an order that depends on the prompts alone: variants that were given the same ones keep the same.
        order = sorted(range(len(lengths)), key=lambda group: digest(self._prompts[group * size]))
        self.groups: list[int] = []
        left = records.most_tokens
        for group in order:
            if len(self.groups) < records.groups and lengths[group] <= left:
                self.groups.append(group)
                left -= lengths[group]

    def add(
        self,
        row: Tensor,
        log_prob: Tensor,
        slope: Tensor,
        drawn: Tensor,
        token_kl: Tensor | None,
        inputs: dict[str, Any],
    ) -> None:
        """A micro-batch: row (N,) numbers within the rollout; log_prob, slope (d loss / d log_prob, as it was followed) and
        drawn (log-probabilities under the policy that sampled) (N, T); token_kl (N, T): the KL over the whole distribution,
        where the loss has one (whose gradient is not in `slope`); `inputs` of the loss.
        """
        chosen = torch.isin(row // self._size, torch.tensor(self.groups, device=row.device)).nonzero()[:, 0]
        if not len(chosen):
            return
        names = ("old_log_prob", "advantages", "response_mask", "ref_log_prob")
        terms = token_terms(self._algorithm, log_prob=log_prob, **{name: inputs[name] for name in names})
        old, reference = inputs["old_log_prob"], inputs["ref_log_prob"]
        values = {
            "policy": log_prob, "old": old, "sampler": drawn, "reference": old if reference is None else reference,
            "ratio": terms.ratio, "clipped": terms.clipped, "advantage": inputs["advantages"],
            "kl": terms.kl if token_kl is None else token_kl.detach(),
            "slope": slope,
        }  # fmt: skip
        batch, rewards = self._graded.samples.batch, self._graded.rewards
        for place in chosen.tolist():
            number = int(row[place])
            length = int(batch.lengths[number])
            ids = batch.tokens[number, :length].tolist()
            prompt = self._prompts[number]
            self._rows[number] = {
                "prompt_digest": digest(prompt), "prompt": self._text(prompt), "sample": number % self._size,
                "reward": float(rewards[number]), "optimizer_step": inputs["optimizer_step"] + 1, "ids": ids,
                "tokens": [self._text([token]) for token in ids],
                **{name: value[place, :length].tolist() for name, value in values.items()},
            }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        return [self._rows[number] for number in sorted(self._rows)]


def digest(prompt: Sequence[int]) -> str:
    return hashlib.sha256(repr(list(prompt)).encode()).hexdigest()[:12]
