"""A causal language model as the trainer sees it: it samples responses and scores them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from rpg.models import huggingface, qwen3
from rpg.models.batch import Batch
from rpg.models.decoding import Samples, generate
from rpg.models.tokenizer import stop_tokens


class Policy:
    """Model, tokenizer and the way to run them: a lean implementation where there is one for the model's kind.

    With `bfloat16` the weights stay float32 and the arithmetic is autocast; sampling and scoring then round
    differently, so `exact_samples` is False and the sampler's log-probabilities are not those of `log_probs`.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        *,
        bfloat16: bool = False,
        lean: bool = True,
    ):
        self.model, self.tokenizer, self.bfloat16 = model.eval(), tokenizer, bfloat16
        self.lean = lean and not bfloat16 and qwen3.supports(model)
        self.stop = stop_tokens(tokenizer, model)

    @property
    def exact_samples(self) -> bool:
        """Whether a sample's log-probabilities equal those of :meth:`log_probs` to rounding."""
        return not self.bfloat16

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _arithmetic(self):
        if self.bfloat16:
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        max_new_tokens: int,
        uniforms: Tensor | None,
        temperature: float,
        tell: Callable[[int, int], None] = lambda finished, position: None,
    ) -> Samples:
        """`group_size` responses to each prompt; see decode.generate."""
        engine = qwen3.LeanEngine(self.model) if self.lean else huggingface.CacheEngine(self.model)
        with self._arithmetic():
            return generate(
                engine,
                prompts,
                group_size=group_size,
                max_new_tokens=max_new_tokens,
                stop=self.stop,
                uniforms=uniforms,
                temperature=temperature,
                tell=tell,
            )

    def log_probs(self, batch: Batch, temperature: float) -> Tensor:
        """Log-probabilities of a batch's response tokens, (N, T), zero behind a row's length; differentiable."""
        with self._arithmetic():
            forward = qwen3.log_probs if self.lean else huggingface.log_probs
            return forward(self.model, batch, temperature)

    def text(self, batch: Batch) -> list[str]:
        """The responses as text, without special tokens."""
        lengths = batch.lengths.tolist()
        ids = [row[:n] for row, n in zip(batch.tokens.tolist(), lengths, strict=True)]
        return self.tokenizer.batch_decode(ids, skip_special_tokens=True)

    def frozen_copy(self) -> Policy:
        """The same policy with weights of its own that nothing changes."""
        model = copy.deepcopy(self.model).requires_grad_(False)
        return Policy(model, self.tokenizer, bfloat16=self.bfloat16, lean=self.lean)
