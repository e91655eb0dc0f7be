"""The trainer's own decoder as an engine."""

from collections.abc import Callable, Iterator, Sequence
from itertools import compress, groupby
from operator import not_
from pathlib import Path
from typing import Any

import torch

from rpg.evaluation.engines.protocol import Completion, Request
from rpg.models import seeds
from rpg.models.conversations import Conversations, Talk
from rpg.models.decoding import Samples
from rpg.models.model_loading import load_pretrained, put_weights, shape_of
from rpg.models.policy import Policy
from rpg.models.tokenizer import encode_prompts
from rpg.models.truncated_sampling import Sampling


class LocalEngine:
    """Decodes `rows` responses at a time; prompts that several of them share are computed once."""

    def __init__(
        self, sampling: Sampling, device: str = "cpu", bfloat16: bool = False, rows: int = 512
    ):
        self.sampling, self.device, self.bfloat16, self.rows = sampling, device, bfloat16, rows
        self.policy: Policy | None = None
        self.observe: Callable[[Sequence[Request], Samples], None] | None = None
        """Is told of samples of the loaded model before they are handed out."""
        self.conversations: Conversations | None = None
        """With whose environments the model takes turns."""
        self._shape: tuple[bytes, ...] | None = None

    def load(self, model: str | Path, revision: str | None = None) -> None:
        before, policy, shape = self._shape, self.policy, shape_of(model)
        # Frees the old weights; a load that fails leaves no model.
        self.observe = self._shape = self.policy = None
        if (
            policy is None
            or shape is None
            or shape != before
            or not put_weights(policy.model, model)
        ):
            policy = None
            weights, tokenizer = load_pretrained(model, revision)
            policy = Policy(weights.to(self.device), tokenizer, bfloat16=self.bfloat16)
        self.policy, self._shape = policy, shape

    def complete(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, Completion]]]:
        for start in range(0, len(requests), self.rows):
            part = requests[start : start + self.rows]
            yield [(start + i, completion) for i, completion in enumerate(self._decode(part))]

    def _decode(self, requests: Sequence[Request]) -> list[Completion]:
        policy, limit, temperature = (
            self.policy,
            self.sampling.max_response_tokens,
            self.sampling.temperature,
        )
        assert policy is not None
        groups = [
            list(group) for _, group in groupby(requests, key=lambda r: (r.prompt, r.columns))
        ]
        if len({len(group) for group in groups}) > 1:  # some samples of a problem exist already
            groups = [[request] for request in requests]
        talking, longest = self.conversations, self.sampling.max_prompt_tokens
        prompts = [group[0].prompt for group in groups]
        drawn = (
            torch.cat([seeds.uniforms(1, limit, *r.key) for r in requests]) if temperature else None
        )
        how: dict[str, Any] = {
            "group_size": len(groups[0]),
            "max_new_tokens": limit,
            "uniforms": drawn,
        }
        how |= {"temperature": temperature or 1.0, "restriction": self.sampling.restriction}
        talks: list[Talk] = []
        if talking is None:
            samples = policy.sample(encode_prompts(policy.tokenizer, prompts, longest), **how)
        else:
            columns, keys = [group[0].columns for group in groups], [str(r.key) for r in requests]
            samples, talks = talking.sample(
                policy, prompts, columns, keys, max_prompt_tokens=longest, **how
            )
        if self.observe is not None:
            self.observe(requests, samples)
        if talks:
            policy_tokens = [list(compress(talk.tokens, map(not_, talk.heard))) for talk in talks]
            return [
                Completion("".join(talk.turns), tuple(ids), talk.truncated, talk.turns, talk.earned)
                for ids, talk in zip(policy_tokens, talks, strict=True)
            ]
        lengths, cut = samples.batch.lengths.tolist(), samples.truncated.tolist()
        rows = zip(
            policy.text(samples.batch), samples.batch.tokens.tolist(), lengths, cut, strict=True
        )
        return [
            Completion(text, tuple(ids[:length]), truncated)
            for text, ids, length, truncated in rows
        ]

    def close(self) -> None:
        self.policy = None
