"""Estimates of the memory that a training of the embedded trainer needs, by arithmetic; docs/trainer.md has measurements.

Weights, gradients and moments are float32; a model in bfloat16 on a GPU also has rounded weights
(rpg.backends.local.master_weights). What a forward pass keeps for the backward pass is about what goes into and
comes out of its linear layers (the packed implementation, rpg.models.lean); with layers computed again it is the inputs of
layers, and one layer with its gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from rpg.config.backend import LocalBackend
from rpg.config.model import TinyModel, bfloat16, lora_of
from rpg.config.run_spec import RunSpec
from rpg.planning.disk import FLOAT, HALF, MOMENTS, RESPONSE_SHARE
from rpg.planning.model_shapes import Shape, shape_of, tiny_shape

PROCESS = 0.4e9
"""A process that has imported PyTorch and transformers (on a GPU: its CUDA context, which takes more)."""
PROMPT_TOKENS = 0.5
"""Mean length of a prompt, as a fraction of the limit."""
AT_ONCE = 1.2e9
"""Upper bound for log-probabilities over a large vocabulary, which are computed in parts (docs/trainer.md)."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one training."""

    fixed: float
    """The process, weights, gradients, moments, and policies other than the trained one."""
    rollout: float
    """Keys and values of all responses of a step."""
    update: float
    """Activations kept for the backward pass."""

    @property
    def most(self) -> float:
        return self.fixed + max(self.rollout, self.update)


def memory(spec: RunSpec) -> Memory | None:
    """The memory of a run; None without the embedded trainer or if the size of the model is unknown."""
    backend, model = spec.backend, spec.model
    shape = tiny_shape(model) if isinstance(model, TinyModel) else shape_of(model)
    if not isinstance(backend, LocalBackend) or shape is None:
        return None
    t, r = spec.training, spec.rollout
    reference = spec.algorithm.needs_reference and spec.algorithm.reference.type != "old"
    rounded = r.sampler.dtype != "same"
    weight_bytes = HALF if spec.half_weights() else FLOAT  # bytes of a weight in computations
    trained = FLOAT * (1 + MOMENTS) + weight_bytes  # gradient and moments with it
    trained += FLOAT * spec.half_weights()  # the master
    trained += weight_bytes * (reference + r.staleness)
    if lora := lora_of(model):  # fixed weights; while sampling, also a copy with the adapters merged
        held = shape.parameters * weight_bytes * (2 + rounded) + shape.adapter_parameters(lora) * trained
    else:
        held = shape.parameters * (trained + weight_bytes * rounded)
    response, prompt = RESPONSE_SHARE * r.max_response_tokens, PROMPT_TOKENS * r.max_prompt_tokens
    rows = t.prompts_per_step * r.group_size
    cache = shape.cache_bytes_per_token * (1 if bfloat16(spec.model) else 2)
    at_once = min(t.micro_batch_rows, t.mini_batch_prompts * r.group_size)
    tokens = at_once * response + -(-at_once // r.group_size) * prompt
    passes = t.micro_batch_tokens or tokens_per_pass(shape, backend.device, weight_bytes)
    return Memory(
        fixed=PROCESS + held,
        rollout=rows * (prompt + response) * cache,
        update=pass_bytes(shape, min(tokens, passes), backend, weight_bytes),
    )


def with_layers_again(spec: RunSpec) -> RunSpec:
    """The same run with `backend.gradient_checkpointing`."""
    backend = spec.backend.model_copy(update={"gradient_checkpointing": True})
    return spec.model_copy(update={"backend": backend})


def tokens_per_pass(shape: Shape, device: str, number: int = FLOAT) -> int:
    """The default number of tokens per pass of the trainer (rpg.models.policy)."""
    room = 2**31 if device == "cpu" else 2**33
    return max(1, min(8192, room // (number * shape.layers * _widths(shape))))


def pass_bytes(shape: Shape, tokens: float, backend: LocalBackend, number: int = FLOAT) -> float:
    """Peak memory of a forward and backward pass over `tokens` tokens, without weights and gradients.

    `number`: bytes of a number in computations.
    """
    layer = number * _widths(shape)
    kept = shape.layers * layer
    if backend.gradient_checkpointing:
        kept = shape.layers * number * shape.hidden + layer
    if backend.offload:
        kept = layer
    logits = min(AT_ONCE, 3 * FLOAT * shape.vocabulary * tokens)
    return tokens * (kept + layer / 2) + logits


def _widths(shape: Shape) -> int:
    """Numbers per token that go into and come out of the linear layers of a block."""
    kv = shape.kv_heads * shape.head_dim
    attention = 2 * (shape.hidden + shape.attention_width) + 2 * (shape.hidden + kv)
    return attention + 3 * (shape.hidden + shape.intermediate)
