"""Hugging Face `generate` as an engine: for any causal model, and to check the local decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)

from rpg.evaluation.engines.protocol import Completion, Request, Sampling
from rpg.models import seeds
from rpg.models.decoding import draw
from rpg.models.model_loading import load_pretrained, put_weights, shape_of
from rpg.models.tokenizer import Stopper, encode_prompts, stop_tokens
from rpg.models.truncated_sampling import Restriction


class _DrawFromUniforms(LogitsProcessor):  # type: ignore[misc]  # transformers is not followed
    """Allows only one token per row: the one that the row's random numbers select.

    `generate` has one generator for the whole batch, with which a sample would depend on the other rows.
    """

    def __init__(self, uniforms: Tensor, temperature: float, prompt_width: int, restriction: Restriction):
        self.uniforms, self.temperature, self.prompt_width = uniforms, temperature, prompt_width
        self.restriction = restriction

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        logits = scores.float() / self.temperature
        if self.restriction.truncates:
            logits = logits.masked_fill(~self.restriction.kept(logits), -torch.inf)
        token, _, _ = draw(logits, self.uniforms[:, input_ids.shape[1] - self.prompt_width], 1.0)
        return torch.full_like(scores, float("-inf")).scatter(1, token[:, None], 0.0)


class _AtText(StoppingCriteria):  # type: ignore[misc]  # as above
    """Ends a response at a stop string."""

    def __init__(self, stopper: Stopper, prompt_width: int, min_tokens: int):
        self.stopper, self.prompt_width, self.min_tokens = stopper, prompt_width, min_tokens

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:  # noqa: ARG002 (of transformers)
        responses = input_ids[:, self.prompt_width :]
        if responses.shape[1] < self.min_tokens:
            return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        return torch.tensor(self.stopper(responses.tolist()), device=input_ids.device)


class HuggingFaceEngine:
    """`model.generate`, `rows` responses at a time."""

    def __init__(self, sampling: Sampling, device: str = "cpu", bfloat16: bool = False, rows: int = 64):
        self.sampling, self.device, self.rows = sampling, device, rows
        self.dtype = torch.bfloat16 if bfloat16 else torch.float32
        self.model: PreTrainedModel | None = None
        self.tokenizer: PreTrainedTokenizerBase | None = None
        self._shape: tuple[bytes, ...] | None = None

    def load(self, model: str | Path, revision: str | None = None) -> None:
        before, previous, shape = self._shape, self.model, shape_of(model)
        self._shape = self.model = None  # frees the old weights; a load that fails leaves no model
        if previous is not None and shape is not None and shape == before and put_weights(previous, model):
            self.model, self._shape = previous, shape
            return
        previous = None
        loaded, self.tokenizer = load_pretrained(model, revision)
        self.model, self._shape = loaded.to(self.device, self.dtype), shape
        self.stop = stop_tokens(self.tokenizer, loaded.generation_config)
        # A model's own generation settings (top-k, penalties) would change what is measured: `generate` uses them for
        # whatever a request leaves open.
        loaded.generation_config = GenerationConfig()

    def complete(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, Completion]]]:
        for start in range(0, len(requests), self.rows):
            part = requests[start : start + self.rows]
            yield [(start + i, completion) for i, completion in enumerate(self._generate(part))]

    def _generate(self, requests: Sequence[Request]) -> list[Completion]:
        limit, temperature = self.sampling.max_response_tokens, self.sampling.temperature
        assert self.model is not None and self.tokenizer is not None
        prompts = [request.prompt for request in requests]
        encoded = encode_prompts(self.tokenizer, prompts, self.sampling.max_prompt_tokens)
        width, pad = max(map(len, encoded)), self.stop[0]
        ids = torch.full((len(encoded), width), pad)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(encoded):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        restriction = self.sampling.restriction
        processors, criteria = LogitsProcessorList(), StoppingCriteriaList()
        stopper = Stopper(self.tokenizer, restriction.stop) if restriction.stop else None
        if stopper is not None:
            criteria.append(_AtText(stopper, width, restriction.min_tokens))
        if (least := restriction.min_tokens) > 0:
            processors.append(MinNewTokensLengthLogitsProcessor(width, least, self.stop, device=self.device))
        if temperature != 0:
            uniforms = torch.cat([seeds.uniforms(1, limit, *r.key) for r in requests]).to(self.device)
            processors.append(_DrawFromUniforms(uniforms, temperature, width, restriction))
        config = GenerationConfig(
            max_new_tokens=limit, do_sample=False, eos_token_id=self.stop, pad_token_id=pad, use_cache=True
        )
        with torch.inference_mode():
            out = self.model.generate(
                ids.to(self.device),
                attention_mask=mask.to(self.device),
                generation_config=config,
                logits_processor=processors,
                stopping_criteria=criteria,
            )
        ended = [self._until_stop(row, stopper) for row in out[:, width:].tolist()]
        texts = self.tokenizer.batch_decode([row for row, _ in ended], skip_special_tokens=True)
        parts = zip(texts, ended, strict=True)
        return [Completion(text, tuple(row), not complete) for text, (row, complete) in parts]

    def _until_stop(self, row: list[int], stopper: Stopper | None) -> tuple[list[int], bool]:
        """A response without its padding, and whether something other than the limit ended it."""
        first = self.sampling.restriction.min_tokens
        for end, token in enumerate(row, 1):
            if token in self.stop or (stopper is not None and end >= first and stopper([row[:end]])[0]):
                return row[:end], True
        return row, False

    def close(self) -> None:
        self.model = self.tokenizer = None
