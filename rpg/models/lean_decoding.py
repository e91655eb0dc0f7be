"""Decoding with a key-value cache for the families of lean.py.

Shapes: R rows of the cache, H query heads, K key-value heads, D head size, E hidden size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from rpg.models.decoding import padded_left
from rpg.models.kernels import swap_halves
from rpg.models.lean import Sizes, as_one, attention, concatenated, rotary
from rpg.models.lean_caches import Shared, Whole
from rpg.models.lora import Adapter, adapter_of, weight_and_bias

_MASKED = -1e9
_PACKED_STEPS = 16
"""Responses of at least this many tokens pay for reordering a large model's weights into the layout
of oneDNN: it costs about ten steps, and makes each step a fifth to a quarter faster."""
_MANY_ROWS = 32
"""From this number of rows on, a product is faster with the transposed weight,"""
_WIDE = 768
"""cut into pieces of this many columns."""
_FINISHED = 32
"""At most one in this many of a cache's rows may be finished."""


class _Linear(NamedTuple):
    """A linear layer; optionally `packed`, its weight in the layout of oneDNN, or `pieces`, its
    transposed weight cut into columns. An `adapter` that is not merged adds to its product.
    """

    weight: Tensor
    bias: Tensor | None
    packed: Tensor | None = None
    pieces: Sequence[Tensor] = ()
    adapter: Adapter | None = None

    def __call__(self, x: Tensor) -> Tensor:
        product = self._product(x)
        return product if self.adapter is None else self.adapter.added(x, product)

    def _product(self, x: Tensor) -> Tensor:
        if self.pieces:
            flat = x.flatten(0, -2)
            widths = [piece.shape[1] for piece in self.pieces]
            out = x.new_empty(len(flat), sum(widths))
            for piece, part in zip(self.pieces, out.split(widths, 1), strict=True):
                torch.mm(flat, piece, out=part)
            out = out if self.bias is None else out.add_(self.bias)
            return out.view(*x.shape[:-1], -1)
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        x = x.to(self.packed.dtype)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.bias, "none", [], ""
        )
        return product


@dataclass(frozen=True)
class _Layer:
    """A decoder layer. Linear layers with the same input are a list: one concatenated layer, or
    each by itself."""

    norm: Tensor | None
    qkv: list[_Linear]
    cos: Tensor
    """(positions, H + K, D), multiplied by the scale of attention and the norm weights of queries
    and keys."""
    sin: Tensor
    output: _Linear
    mlp_norm: Tensor | None
    gate_up: list[_Linear]
    down: _Linear

    def reordered(self, rows: int) -> Self:
        """The same with its weights in the layout that is fastest for this number of rows."""
        order = (
            _cut if rows >= _MANY_ROWS and _dtype(self.output.weight) == torch.float32 else _packed
        )
        return replace(
            self,
            qkv=_as_one(order, self.qkv),
            output=_as_one(order, [self.output])[0],
            gate_up=_as_one(order, self.gate_up),
            down=_as_one(order, [self.down])[0],
        )


class LeanEngine:
    """Decoding with few operations per token (see decoding.Engine).

    Prompts are padded on the left and positions count cache slots: rotary attention depends only on
    differences of positions, so all rows can share one.

    The weights of a small model are concatenated, with its norms multiplied in: the number of calls
    decides its speed. A large model's weights are used in place for the prompts, and on a CPU
    reordered for the steps after them.
    """

    block = 1

    def __init__(self, model: PreTrainedModel, rows: int = 0):
        self.model = model
        self.rows = rows
        self.device: torch.device = model.lm_head.weight.device
        self.sizes = Sizes.of(model)
        self.heads, self.kv_heads, self.size = (
            self.sizes.heads,
            self.sizes.kv_heads,
            self.sizes.head,
        )
        self.normed_heads = hasattr(model.model.layers[0].self_attn, "q_norm")
        self.live: Tensor | None = None
        """The unfinished rows of the cache, if it also contains finished ones."""

    def _read_weights(self, positions: int) -> None:
        cos, sin = rotary(self.model, positions)
        scale = self.size**-0.5
        scales = torch.ones(self.heads + self.kv_heads, self.size, device=self.device)
        scales[: self.heads] = scale
        turn = cos[:, None] * scales, sin[:, None] * scales
        self.layers = []
        for layer in self.model.model.layers:
            attention = layer.self_attn
            mlp = layer.mlp
            if self.normed_heads:
                q_norm = (attention.q_norm.weight * scale).expand(self.heads, -1)
                norms = torch.cat([q_norm, attention.k_norm.weight.expand(self.kv_heads, -1)])
                turn = cos[:, None] * norms, sin[:, None] * swap_halves(norms)
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            gates = (mlp.gate_proj, mlp.up_proj)
            norm = layer.input_layernorm.weight
            mlp_norm = layer.post_attention_layernorm.weight
            turn = turn[0].to(norm.dtype), turn[1].to(norm.dtype)
            if self.sizes.small:
                qkv = [_multiplied(concatenated(projections), norm)]
                gate_up = [_multiplied(concatenated(gates), mlp_norm)]
                output = _multiplied(weight_and_bias(attention.o_proj))
                down = _multiplied(weight_and_bias(mlp.down_proj))
                norm = None
                mlp_norm = None
            else:
                qkv = [_linear(part) for part in projections]
                gate_up = [_linear(part) for part in gates]
                output = _linear(attention.o_proj)
                down = _linear(mlp.down_proj)
            decoder_layer = _Layer(
                norm=norm,
                qkv=qkv,
                cos=turn[0],
                sin=turn[1],
                output=output,
                mlp_norm=mlp_norm,
                gate_up=gate_up,
                down=down,
            )
            self.layers.append(decoder_layer)
        self.embedding: Tensor = self.model.model.embed_tokens.weight
        head = self.model.lm_head.weight
        norm = self.model.model.norm.weight
        self.norm = None if self.sizes.small else norm
        self.head = _multiplied((head, None), norm) if self.sizes.small else _Linear(head, None)

    def prefill(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Tensor:
        width = max(map(len, prompts))
        self._read_weights(width + max_new_tokens)
        ids, seen = padded_left(prompts, width)
        mask = seen[:, None, :] & torch.ones(width, width, dtype=torch.bool).tril()
        mask = torch.where(mask, 0.0, _MASKED)[:, None].to(self.device)
        x = self.embedding[ids.to(self.device)]
        self.live = None
        self.cache = (Whole if self.sizes.small else Shared)(seen.to(self.device), max_new_tokens)
        for layer in self.layers:
            q, k, v = self._project(x, layer, slice(0, width))
            q = q.transpose(1, 2)
            k = k.transpose(1, 2)
            v = v.transpose(1, 2)
            self.cache.add(k, v)
            o = attention(q, k, v, mask.to(q.dtype), 1.0)
            x = self._finish(x, o.transpose(1, 2).flatten(2), layer)
        logits = self._logits(x[:, -1])
        if max_new_tokens >= _PACKED_STEPS and not self.sizes.small and _packs(self.head.weight):
            for index, layer in enumerate(
                self.layers
            ):  # one at a time: old copies of weights are freed
                self.layers[index] = layer.reordered(self.rows)
            self.head = _packed([self.head])
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        cache = self.cache
        if self.live is not None:  # finished rows are computed, too; their tokens do not matter
            tokens = tokens.new_zeros(cache.rows).index_copy_(0, self.live, tokens)
        cache.begin()
        x = self.embedding[tokens][:, None]
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(x, layer, slice(cache.filled - 1, cache.filled))
            x = self._finish(x, cache.attend(index, q, k, v), layer)
        x = x[:, 0]
        return self._logits(x if self.live is None else x[self.live])

    def select(self, index: Tensor) -> None:
        """A large model's cache keeps a few finished rows: computing them is faster than copying
        all others."""
        rows = self.cache.rows
        index = index if self.live is None else self.live[index]
        self.live = None
        distinct = bool((index[1:] > index[:-1]).all())
        if distinct and not self.sizes.small and rows - len(index) <= rows // _FINISHED:
            self.live = index
            return
        self.cache.select(index)

    def _normed(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """RMS norm; without `weight` where that is multiplied into the next layer."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.sizes.eps)
        normed = (wide * scale).to(x.dtype)
        return normed if weight is None else normed * weight

    def _project(self, x: Tensor, layer: _Layer, at: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries (scaled) and keys, and values, (rows, tokens, heads, D), for the cache
        slots `at`."""
        normed = self._normed(x, layer.norm)
        parts = [linear(normed) for linear in layer.qkv]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        heads: Tensor = joined.unflatten(-1, (-1, self.size))
        qk, v = heads.split([self.heads + self.kv_heads, self.kv_heads], 2)
        if self.normed_heads:
            qk = self._normed(qk)
        qk = (qk * layer.cos[at]).addcmul_(swap_halves(qk), layer.sin[at])
        q, k = qk.split([self.heads, self.kv_heads], 2)
        return q, k, v

    def _finish(self, x: Tensor, attended: Tensor, layer: _Layer) -> Tensor:
        x = x + layer.output(attended)
        h = self._normed(x, layer.mlp_norm)
        if len(layer.gate_up) == 1:
            gate, up = layer.gate_up[0](h).chunk(2, -1)
        else:
            gate, up = (part(h) for part in layer.gate_up)
        return x + layer.down(F.silu(gate) * up)

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(self._normed(x, self.norm))


def _linear(module: Any) -> _Linear:
    weight, bias = weight_and_bias(module)
    return _Linear(weight, bias, adapter=adapter_of([module]))


def _as_one(
    order: Callable[[Sequence[_Linear]], _Linear], layers: Sequence[_Linear]
) -> list[_Linear]:
    """Linear layers with the same input in another order of their weights: as one, or one by one
    where they have adapters."""
    if any(layer.adapter is not None for layer in layers):
        return [order([layer])._replace(adapter=layer.adapter) for layer in layers]
    return [order(layers)]


def _multiplied(linear: tuple[Tensor, Tensor | None], norm: Tensor | None = None) -> _Linear:
    """A copy of a linear layer that is fast with few rows: its weight stored transposed, `norm`
    multiplied in."""
    weight, bias = linear
    return _Linear((weight if norm is None else weight * norm).t().contiguous().t(), bias)


def _packs(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    dtype = _dtype(weight)
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def _dtype(weight: Tensor) -> torch.dtype:
    """The type in which a product with this weight is computed."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype


def _cut(layers: Sequence[_Linear]) -> _Linear:
    """Linear layers with the same input as one, its weight transposed and cut into pieces."""
    weight, bias = as_one([layer[:2] for layer in layers])
    count = -(-len(weight) // _WIDE)
    pieces = [piece.t().contiguous() for piece in weight.tensor_split(count)]
    return _Linear(layers[0].weight, bias, None, pieces)


def _packed(layers: Sequence[_Linear]) -> _Linear:
    """Linear layers with the same input as one, in the layout of oneDNN."""
    weight, bias = as_one([layer[:2] for layer in layers])
    dtype = _dtype(weight)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype))
    return _Linear(packed, None if bias is None else bias.to(dtype), packed)
