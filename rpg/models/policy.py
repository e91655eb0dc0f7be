"""A causal language model as the trainer sees it: it samples responses and scores them."""

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import Conv1D

from rpg.models import generic_model, lean
from rpg.models.block_decoding import BlockEngine
from rpg.models.decoding import Batch, Engine, Samples, SamplingPlan, Scored, generate
from rpg.models.four_bit import four_bit_layers
from rpg.models.lean import longest, supports
from rpg.models.lean_decoding import LeanEngine
from rpg.models.model_loading import ModelError
from rpg.models.special_tokens import stop_tokens
from rpg.models.tokenizer import Stopper


class Policy:
    """A model with its tokenizer, run by the lean implementation if that supports the model.

    With `bfloat16` the arithmetic is autocast, unless the weights are bfloat16 themselves. Sampling
    and scoring then round differently: the sampler's log-probabilities are not those of
    `log_probs`.

    Attributes:
        exact_samples: whether they are, up to rounding.
        recompute: the backward pass computes each layer again instead of saving activations; the
            bits are the same.
    """

    recompute = False

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        bfloat16: bool = False,
        lean: bool = True,
    ):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.bfloat16 = bfloat16
        self.exact_samples = not bfloat16
        self.lean = lean and supports(model)
        self.stop = stop_tokens(tokenizer, getattr(model, "generation_config", None))

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @property
    def tokens_per_pass(self) -> int:
        """Tokens whose saved activations take about 2 GiB (8 on a GPU; half of that with autocast);
        at most 8,192. As in rpg.planning.space.
        """
        layers = [m for m in self.model.modules() if isinstance(m, nn.Linear | Conv1D)]
        # Inputs and outputs of linear layers, without the output layer's, which are not saved
        # (chunked_log_prob.py).
        sizes = [sum(m.weight.shape) for m in layers if m is not self.model.get_output_embeddings()]
        packed = [layer for _, layer in four_bit_layers(self.model)]
        sizes += [layer.in_features + layer.out_features for layer in packed]
        if (
            self.device.type != "cpu" and self.lean
        ):  # keys and values are copied for each query head
            of = lean.Sizes.of(self.model)
            sizes.append(2 * self.model.config.num_hidden_layers * of.heads * of.head)
        room = 2**31 if self.device.type == "cpu" else 2**33
        per_token: int = self.model.dtype.itemsize * sum(sizes)
        return max(1, min(8192, room // per_token))

    def _lean(self, tokens: int) -> bool:
        return self.lean and tokens <= longest(self.model)

    def arithmetic(self) -> contextlib.AbstractContextManager[None]:
        """The context in which its products are computed."""
        if self.bfloat16 and self.model.dtype == torch.float32:
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def sample(self, prompts: Sequence[Sequence[int]], plan: SamplingPlan) -> Samples:
        """`plan.group_size` responses to each prompt; see decoding.generate."""
        rows = len(prompts) * plan.group_size
        slots = max(map(len, prompts)) + plan.max_new_tokens
        if plan.rows_at_once:
            rows = min(rows, plan.rows_at_once)
        strings = plan.restriction.stop
        stopper = Stopper(self.tokenizer, strings) if strings else None
        engine: Engine
        with self.arithmetic():
            if not self._lean(slots):
                engine = generic_model.CacheEngine(self.model)
            elif self.device.type == "cuda":
                engine = BlockEngine(self.model)
                if not plan.rows_at_once:
                    rows = min(rows, engine.rows_that_fit(slots))
            else:
                engine = LeanEngine(self.model, rows)
            plan = replace(plan, rows_at_once=rows)
            return generate(engine, prompts, plan, stop=self.stop, stopper=stopper)

    def log_probs(self, batch: Batch, temperature: float) -> Tensor:
        """Log-probabilities of a batch's response tokens, (N, T), zero after a row's last token;
        differentiable.

        They are normalised over the tokens that could be sampled, if the batch says which.
        """
        return self.scored(batch, temperature).log_prob

    def scored(
        self, batch: Batch, temperature: float, *, entropy: bool = False, states: bool = False
    ) -> Scored:
        """:meth:`log_probs`, and on request the entropies of these distributions and what they
        follow from; differentiable.

        The states of a model without a lean implementation are logits, (response tokens,
        vocabulary). Raises ModelError: it has none, and layers are to be recomputed.
        """
        with self.arithmetic():
            if self._lean(int(batch.total_lengths().max())):
                how = {"entropy": entropy, "states": states, "recompute": self.recompute}
                return lean.scored(self.model, batch, temperature, **how)
            if self.recompute:
                raise ModelError(
                    "backend.gradient_checkpointing: only layers of Llama, Mistral (within "
                    "its window), Qwen2 and Qwen3 can "
                    f"be recomputed, not those of {type(self.model).__name__}; leave it "
                    "false, and on a GPU set "
                    "backend.offload: true"
                )
            return generic_model.scored(
                self.model, batch, temperature, entropy=entropy, states=states
            )

    def text(self, batch: Batch) -> list[str]:
        """The responses as text, without special tokens."""
        ids = [
            row[:n] for row, n in zip(batch.tokens.tolist(), batch.lengths.tolist(), strict=True)
        ]
        texts: list[str] = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return texts

    def frozen_copy(self, share: bool = False) -> "Policy":
        """A copy of the policy that is not trained; with `share` it uses the same tensors for
        untrained weights."""
        shared: dict[int, Tensor] = {}
        if share:
            shared = {id(p): p for p in self.model.parameters() if not p.requires_grad}
            shared |= {id(buffer): buffer for buffer in self.model.buffers()}
        model = copy.deepcopy(self.model, shared).requires_grad_(False)
        return Policy(model, self.tokenizer, bfloat16=self.bfloat16, lean=self.lean)
