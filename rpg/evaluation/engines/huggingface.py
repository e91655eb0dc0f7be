"""Hugging Face `generate` as an engine: for any causal model, and as a second opinion on the local decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from rpg.evaluation.engines.protocol import Completion, Request, Sampling
from rpg.models import seeds
from rpg.models.decoding import draw
from rpg.models.loading import load_pretrained, put_weights, shape_of
from rpg.models.tokenizer import encode_prompts, stop_tokens


class _DrawFromUniforms(LogitsProcessor):
    """Leaves one token per row possible: the one that the row's own random numbers choose.

    `generate` has one generator for the whole batch, with which a sample would depend on the rows beside it.
    """

    def __init__(self, uniforms: Tensor, temperature: float, prompt_width: int):
        self.uniforms, self.temperature, self.prompt_width = uniforms, temperature, prompt_width

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        token, _, _ = draw(scores, self.uniforms[:, input_ids.shape[1] - self.prompt_width], self.temperature)
        return torch.full_like(scores, float("-inf")).scatter(1, token[:, None], 0.0)


class HuggingFaceEngine:
    """`model.generate`, `rows` responses at a time."""

    def __init__(self, sampling: Sampling, device: str = "cpu", bfloat16: bool = False, rows: int = 64):
        self.sampling, self.device, self.rows = sampling, device, rows
        self.dtype = torch.bfloat16 if bfloat16 else torch.float32
        self.model = self.tokenizer = None
        self._shape: tuple[bytes, ...] | None = None

    def load(self, model: str | Path, revision: str | None = None) -> None:
        before, own, shape = self._shape, self.model, shape_of(model)
        self._shape = self.model = (
            None  # a load that fails leaves nothing behind, and the old weights make room
        )
        if own is not None and shape is not None and shape == before and put_weights(own, model):
            self.model, self._shape = own, shape
            return
        own = None
        self.model, self.tokenizer = load_pretrained(model, revision)
        self.model.to(self.device, self.dtype)
        self._shape = shape
        self.stop = stop_tokens(self.tokenizer, self.model)
        # A model's own generation settings (top-k, penalties) would change what is measured; `generate` fills
        # what a request leaves open from them.
        self.model.generation_config = GenerationConfig()

    def complete(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, Completion]]]:
        for start in range(0, len(requests), self.rows):
            part = requests[start : start + self.rows]
            yield [(start + i, completion) for i, completion in enumerate(self._generate(part))]

    def _generate(self, requests: Sequence[Request]) -> list[Completion]:
        limit, temperature = self.sampling.max_response_tokens, self.sampling.temperature
        encoded = encode_prompts(
            self.tokenizer, [r.prompt for r in requests], self.sampling.max_prompt_tokens
        )
        width, pad = max(map(len, encoded)), self.stop[0]
        ids = torch.full((len(encoded), width), pad)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(encoded):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        processors = LogitsProcessorList()
        if temperature != 0:
            uniforms = torch.cat([seeds.uniforms(1, limit, *r.key) for r in requests]).to(self.device)
            processors.append(_DrawFromUniforms(uniforms, temperature, width))
        config = GenerationConfig(
            max_new_tokens=limit, do_sample=False, eos_token_id=self.stop, pad_token_id=pad, use_cache=True
        )
        with torch.inference_mode():
            out = self.model.generate(
                ids.to(self.device),
                attention_mask=mask.to(self.device),
                generation_config=config,
                logits_processor=processors,
            )
        rows = [self._until_stop(row) for row in out[:, width:].tolist()]
        texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        return [
            Completion(text, tuple(row), row[-1] not in self.stop)
            for text, row in zip(texts, rows, strict=True)
        ]

    def _until_stop(self, row: list[int]) -> list[int]:
        end = next((i + 1 for i, token in enumerate(row) if token in self.stop), len(row))
        return row[:end]

    def close(self) -> None:
        self.model = self.tokenizer = None
