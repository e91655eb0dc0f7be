"""The trainer's own decoder as an engine."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import torch
from transformers import PreTrainedModel

from rpg.evaluation.engines.protocol import Completion, Request
from rpg.models import seeds
from rpg.models.beside_base import is_beside_base, load_beside_base
from rpg.models.conversations import Conversations, Talk
from rpg.models.decoding import Samples, SamplingPlan, ignore_progress
from rpg.models.four_bit import halve_weights
from rpg.models.lora import has_adapters, put_adapters, separate
from rpg.models.model_loading import load_pretrained, put_weights, shape_of
from rpg.models.policy import Policy
from rpg.models.tokenizer import encode_prompts
from rpg.models.truncated_sampling import Sampling


class LocalEngine:
    """Decodes `rows` responses at a time; prompts that several of them share are computed once."""

    def __init__(
        self, sampling: Sampling, device: str = "cpu", bfloat16: bool = False, rows: int = 512
    ):
        self.sampling = sampling
        self.device = device
        self.bfloat16 = bfloat16
        self.rows = rows
        self.tell: Callable[[int, int], None] = ignore_progress
        self.policy: Policy | None = None
        self.conversations: Conversations | None = None
        """With whose environments the model takes turns."""
        self._shape: tuple[bytes, ...] | None = None

    def load(self, model: str | Path, revision: str | None = None) -> None:
        before = self._shape
        policy = self.policy
        shape = shape_of(model)
        self._shape = self.policy = None  # a load that fails leaves no model
        same_shape = policy is not None and shape is not None and shape == before
        if policy is None or not same_shape or not self._replaced(policy.model, model):
            policy = None  # frees the old weights
            policy = self._loaded(model, revision)
        self.policy = policy
        self._shape = shape

    def _loaded(self, model: str | Path, revision: str | None) -> Policy:
        """The model as it computes here. Adapters stay beside their base where merging would round
        them, and where they were trained beside 4 bits."""
        if is_beside_base(model):
            weights, tokenizer = load_beside_base(model)
            if self.bfloat16 and self.device == "cuda":  # as in training
                halve_weights(weights)
        else:
            weights, tokenizer = load_pretrained(model, revision)
            if self.bfloat16 and has_adapters(model):
                separate(weights, model)
        return Policy(weights.to(self.device), tokenizer, bfloat16=self.bfloat16)

    def _replaced(self, loaded: PreTrainedModel, model: str | Path) -> bool:
        """Whether the weights of a checkpoint of the same shapes could be put into the loaded
        model."""
        if is_beside_base(model):
            put_adapters(loaded, model)
            return True
        if not put_weights(loaded, model):
            return False
        if self.bfloat16 and has_adapters(model):
            separate(loaded, model)
        return True

    def complete(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, Completion]]]:
        for start in range(0, len(requests), self.rows):
            part = requests[start : start + self.rows]
            yield [(start + i, completion) for i, completion in enumerate(self._decode(part))]

    def _decode(self, requests: Sequence[Request]) -> list[Completion]:
        """The responses to `requests`, drawn together."""
        policy = self.policy
        assert policy is not None
        groups = _groups(requests)
        prompts = [group[0].prompt for group in groups]
        temperature = self.sampling.temperature
        limit = self.sampling.max_response_tokens
        uniforms = None
        if temperature:
            uniforms = torch.cat([seeds.uniforms(1, limit, *r.key) for r in requests])
        plan = SamplingPlan(
            group_size=len(groups[0]),
            max_new_tokens=limit,
            uniforms=uniforms,
            temperature=temperature or 1.0,
            restriction=self.sampling.restriction,
            tell=self.tell,
        )
        longest = self.sampling.max_prompt_tokens
        if self.conversations is None:
            encoded = encode_prompts(policy.tokenizer, prompts, longest)
            return _responses(policy, policy.sample(encoded, plan))
        columns = [group[0].columns for group in groups]
        keys = [str(request.key) for request in requests]
        samples, talks = self.conversations.sample(
            policy, prompts, columns, keys, plan, max_prompt_tokens=longest
        )
        prompt_of = samples.batch.prompt_of.tolist()
        encoded = [samples.batch.prompts[prompt] for prompt in prompt_of]
        return [_conversation(*pair) for pair in zip(talks, encoded, strict=True)]

    def close(self) -> None:
        self.policy = None


def _groups(requests: Sequence[Request]) -> list[list[Request]]:
    """Requests of equal size for one prompt each. Where some samples of a problem exist already,
    every request is a group of its own."""
    groups = [list(group) for _, group in groupby(requests, key=lambda r: (r.prompt, r.columns))]
    if len({len(group) for group in groups}) > 1:
        return [[request] for request in requests]
    return groups


def _responses(policy: Policy, samples: Samples) -> list[Completion]:
    texts = policy.text(samples.batch)
    tokens = samples.batch.tokens.tolist()
    lengths = samples.batch.lengths.tolist()
    truncated = samples.truncated.tolist()
    return [
        Completion(text, tuple(ids[:length]), cut)
        for text, ids, length, cut in zip(texts, tokens, lengths, truncated, strict=True)
    ]


def _conversation(talk: Talk, prompt: Sequence[int]) -> Completion:
    return Completion(
        text="".join(talk.turns),
        ids=tuple(talk.tokens),
        truncated=talk.truncated,
        turns=talk.turns,
        earned=talk.earned,
        heard=tuple(place for place, heard in enumerate(talk.heard) if heard),
        prompt_ids=tuple(prompt),
    )
