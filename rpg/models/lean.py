"""A lean forward pass for Llama, Mistral, Qwen2 and Qwen3: the function of transformers, computed
with less work.

The tokens of all sequences are packed into one tensor (only attention has padding), common prefixes
are computed once (packing.py), and few activations are saved (kernels.py). One implementation
serves all four families: their differences (biases, norms of queries and keys, scaling of
positions) are read from the modules. Weights are read from the transformers model at every call, so
nothing has to be kept in sync. Tests compare both, values and gradients.

Shapes: M packed tokens, E hidden size, H query heads, K key-value heads, D head size; P, N, T as in
decoding.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from rpg.models.chunked_log_prob import Closed, chosen_log_prob
from rpg.models.decoding import Batch, Scored
from rpg.models.kernels import GatedProduct, RMSNorm, Rotate, Taken
from rpg.models.lora import kept_apart, weight_and_bias
from rpg.models.packing import Packing
from rpg.models.truncated_sampling import among

FAMILIES = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
_ROTATIONS = {"default", "linear", "llama3", "yarn"}
"""Kinds of RoPE whose frequencies do not depend on the length of the sequence."""
GROUPED = ("cpu",)
"""Devices whose fused attention takes both a bias and grouped heads."""
_SMALL = 2**17
"""In layers with fewer MLP weights than this, projections of the same input are concatenated: a
copy is cheaper than a call."""


def supports(model: PreTrainedModel) -> bool:
    """Whether the lean implementation computes what `model` does (for sequences up to
    `longest(model)`)."""
    if type(model) not in FAMILIES:
        return False
    config = model.config
    dtypes = {p.dtype for p in model.parameters()}
    return (
        config.hidden_act == "silu"
        and not (model.training and config.attention_dropout)
        and config.rope_parameters.get("rope_type") in _ROTATIONS
        and 2 * len(model.model.rotary_emb.inv_freq) == Sizes.of(model).head
        and dtypes in ({torch.float32}, {torch.bfloat16})
    )


def longest(model: PreTrainedModel) -> float:
    """The length up to which every token attends to all before it: the sliding window, if a layer
    has one."""
    window: int | None = getattr(model.config, "sliding_window", None)
    layer_types = getattr(model.config, "layer_types", None)
    if window is None or (layer_types is not None and "sliding_attention" not in layer_types):
        return float("inf")
    return window


@dataclass(frozen=True)
class Sizes:
    """The numbers of a config that the forward pass and decoding need."""

    heads: int
    kv_heads: int
    head: int
    eps: float
    small: bool
    """Calls decide the speed, not products. Without adapters that are kept apart."""

    @classmethod
    def of(cls, model: PreTrainedModel) -> Self:
        config = model.config
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        small = config.hidden_size * config.intermediate_size < _SMALL and not kept_apart(model)
        return cls(
            config.num_attention_heads, config.num_key_value_heads, head, config.rms_norm_eps, small
        )


def scored(
    model: PreTrainedModel,
    batch: Batch,
    temperature: float,
    *,
    entropy: bool = False,
    states: bool = False,
    recompute: bool = False,
) -> Scored:
    """Log-probabilities of the response tokens, differentiable; with `entropy` also the entropies
    of the distributions, with `states` what the distributions follow from.

    With `recompute` the backward pass computes each layer again instead of saving its activations:
    with the same kernels on the same shapes, so gradients are the same bits. (Sums over smaller
    micro-batches would round differently.)
    """
    pack = Packing.of(batch)
    mask = batch.mask
    support = batch.support
    weight = model.lm_head.weight
    hidden = _hidden(model, pack, recompute)[pack.predictors]
    tokens = batch.tokens[mask]
    spread: Tensor | None = None
    if support is not None and support.index is not None:
        place, token = support.lists(mask)
        log_p, _ = chosen_log_prob(hidden, weight, pack.predictor_of[place], token, temperature)
        chosen, spread = among(place, token, log_p, tokens, entropy=entropy)
    else:
        closed = None
        if support is not None:
            early = torch.zeros(len(hidden), dtype=torch.bool, device=hidden.device)
            early[pack.predictor_of[support.early(mask)]] = True
            closed = Closed(early, torch.tensor(support.ends, device=hidden.device))
        of = pack.predictor_of
        chosen, spread = chosen_log_prob(
            hidden, weight, of, tokens, temperature, closed, entropy=entropy
        )
        spread = None if spread is None else spread[of]

    spread = None if spread is None else batch.placed(spread)
    of_tokens = (hidden[pack.predictor_of], weight) if states else ()
    return Scored(batch.placed(chosen), spread, *of_tokens)


def _hidden(model: PreTrainedModel, pack: Packing, recompute: bool) -> Tensor:
    """The last hidden states, (M, E)."""
    sizes = Sizes.of(model)
    embedding = model.model.embed_tokens
    x = F.embedding(pack.ids, embedding.weight, embedding.padding_idx)
    tables = rotary(model, int(pack.positions.max()) + 1)
    cos, sin = (table[pack.positions][:, None].to(x.dtype) for table in tables)
    for layer in model.model.layers:
        run = partial(_layer, layer, sizes, pack, cos, sin)
        x = (
            checkpoint(run, x, use_reentrant=False, preserve_rng_state=False)
            if recompute
            else run(x)
        )
    hidden: Tensor = RMSNorm.apply(x, model.model.norm.weight, sizes.eps)
    return hidden


def _layer(layer: Any, sizes: Sizes, pack: Packing, cos: Tensor, sin: Tensor, x: Tensor) -> Tensor:
    """A decoder layer of transformers, (M, E) -> (M, E)."""
    heads = sizes.heads
    kv_heads = sizes.kv_heads
    size = sizes.head
    eps = sizes.eps
    attention = layer.self_attn
    mlp = layer.mlp
    h = RMSNorm.apply(x, layer.input_layernorm.weight, eps)
    q, k, v = _projected(h, (attention.q_proj, attention.k_proj, attention.v_proj), sizes.small)
    q = q.reshape(-1, heads, size)
    k = k.reshape(-1, kv_heads, size)
    if hasattr(attention, "q_norm"):
        q = RMSNorm.apply(q, attention.q_norm.weight, eps)
        k = RMSNorm.apply(k, attention.k_norm.weight, eps)
    q = Rotate.apply(q, cos, sin)
    k = Rotate.apply(k, cos, sin)
    v = v.reshape(-1, kv_heads, size)
    x = _added(x, _attend(q, k, v.to(k.dtype), pack), attention.o_proj)
    h = RMSNorm.apply(x, layer.post_attention_layernorm.weight, eps)
    h = GatedProduct.apply(*_projected(h, (mlp.gate_proj, mlp.up_proj), sizes.small))
    return _added(x, h, mlp.down_proj)


def concatenated(modules: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """The weights and the biases of linear layers with the same input, concatenated."""
    return as_one(list(map(weight_and_bias, modules)))


def as_one(layers: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """:func:`concatenated` of weights and biases; those of one layer are no copy."""
    weights, biases = zip(*layers, strict=True)
    if len(weights) == 1:
        return weights[0], biases[0]
    return torch.cat(weights), None if biases[0] is None else torch.cat(biases)


def _projected(h: Tensor, modules: Sequence[nn.Linear], small: bool) -> Sequence[Tensor]:
    if not small:
        return [module(h) for module in modules]
    sizes = [module.out_features for module in modules]
    parts: tuple[Tensor, ...] = F.linear(h, *concatenated(modules)).split(sizes, -1)
    return parts


def _added(x: Tensor, h: Tensor, module: nn.Linear) -> Tensor:
    """x + module(h); under autocast the sum keeps the type of `x`."""
    if (
        isinstance(module, nn.Linear)
        and module.bias is None
        and not torch.is_autocast_enabled(x.device.type)
    ):
        return torch.addmm(x, h, module.weight.t())
    result: Tensor = x + module(h)
    return result


def _attend(q: Tensor, k: Tensor, v: Tensor, pack: Packing) -> Tensor:
    """Causal attention of every packed token over its own sequence: q (M, H, D), k and v (M, K, D)
    -> (M, H * D)."""
    qs = Taken.apply(q, pack.queries, pack.slots)
    ks = k[pack.keys]
    vs = v[pack.keys]
    query_counts = [block.queries.numel() for block in pack.blocks]
    key_counts = [block.keys.numel() for block in pack.blocks]
    parts = []
    for block, block_q, block_k, block_v in zip(
        pack.blocks,
        qs.split(query_counts),
        ks.split(key_counts),
        vs.split(key_counts),
        strict=True,
    ):
        rows = len(block.queries)
        out = attention(
            _by_head(block_q, rows),
            _by_head(block_k, rows),
            _by_head(block_v, rows),
            block.mask.to(q.dtype),
        )
        parts.append(out.transpose(1, 2).flatten(2).flatten(0, 1))
    return torch.cat(parts)[pack.slots]


def _by_head(x: Tensor, rows: int) -> Tensor:
    """(rows * slots, H, D) -> (rows, H, slots, D)."""
    return x.view(rows, -1, x.shape[1], x.shape[2]).transpose(1, 2)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float | None = None) -> Tensor:
    """Attention with a bias, q (B, H, queries, D), k and v (B, K, keys, D) -> (B, H, queries, D).

    On a GPU no fused kernel takes both a bias and grouped heads: with copies of the keys and
    values, the memory-efficient one does. A CPU's takes both.
    """
    grouped = k.device.type in GROUPED
    if not grouped and k.shape[1] < q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=grouped, scale=scale)


def rotary(model: PreTrainedModel, positions: int) -> tuple[Tensor, Tensor]:
    """Tables (positions, D) for the rotation x * cos + swap_halves(x) * sin."""
    module = model.model.rotary_emb
    angles = torch.outer(
        torch.arange(positions, device=module.inv_freq.device).float(), module.inv_freq
    )
    cos = angles.cos() * module.attention_scaling
    sin = angles.sin() * module.attention_scaling
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
