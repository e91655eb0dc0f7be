"""Cached decoding for the families of lean.py.

Shapes: R rows of the cache, H query heads, K key-value heads, D head size, E hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rpg.models.kernels import swap_halves
from rpg.models.lean import Sizes, joined, rotary
from rpg.models.lean_caches import Shared, Whole
from rpg.models.lora import weight_and_bias

_MASKED = -1e9
_PACKED_STEPS = 16
"""From so many tokens on it pays to bring a large model's weights into the order that oneDNN reads them in: that takes
the time of some ten steps, and each step is a fifth to a quarter faster then."""
_MANY_ROWS = 32
"""With so many rows products are quicker with a weight in the order of its input,"""
_WIDE = 768
"""so many columns at a time."""
_OVER = 32
"""Of a cache's rows one in so many may be over."""


class _Map(NamedTuple):
    """A linear map; `packed` is its weight in oneDNN's own order, `pieces` that in the order of its input, cut into
    columns, where there is one.
    """

    weight: Tensor
    bias: Tensor | None
    packed: Tensor | None = None
    pieces: Sequence[Tensor] = ()

    def __call__(self, x: Tensor) -> Tensor:
        if self.pieces:
            flat = x.flatten(0, -2)
            widths = [piece.shape[1] for piece in self.pieces]
            out = x.new_empty(len(flat), sum(widths))
            for piece, part in zip(self.pieces, out.split(widths, 1), strict=True):
                torch.mm(flat, piece, out=part)
            out = out if self.bias is None else out.add_(self.bias)
            return out.unflatten(0, x.shape[:-1])
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(
            x.to(self.packed.dtype), self.packed, self.bias, "none", [], ""
        )


@dataclass(frozen=True)
class _Layer:
    """A layer as the loops below use it. Maps of one input are a list: one that is joined, or each by itself."""

    norm: Tensor | None
    qkv: list[_Map]
    cos: Tensor
    """(positions, H + K, D); the scale of attention and the norms of queries and keys are multiplied in."""
    sin: Tensor
    output: _Map
    mlp_norm: Tensor | None
    gate_up: list[_Map]
    down: _Map

    def ordered(self, rows: int) -> _Layer:
        """The same with its maps brought into the order that is quickest to read with so many rows."""
        order = _cut if rows >= _MANY_ROWS and _kind(self.output.weight) == torch.float32 else _packed
        return replace(
            self,
            qkv=[order(self.qkv)],
            output=order([self.output]),
            gate_up=[order(self.gate_up)],
            down=order([self.down]),
        )


class LeanEngine:
    """Decoding with few operations per token (see decoding.Engine).

    Prompts are padded on the left and positions count cache slots: rotary attention depends on differences of
    positions only, so all rows can share one.

    A small model's weights are joined, with its norms multiplied in: its time is that of the calls. A large one's are
    used where they are for the prompts, and on a CPU brought into another order for the steps behind them.
    """

    def __init__(self, model: nn.Module, rows: int = 0):
        """`rows`: how many responses there will be."""
        self.model, self.rows = model, rows
        self.device = model.lm_head.weight.device
        self.sizes = Sizes.of(model)
        self.heads, self.kv_heads, self.size = self.sizes.heads, self.sizes.kv_heads, self.sizes.head
        self.normed_heads = hasattr(model.model.layers[0].self_attn, "q_norm")
        self.live: Tensor | None = None
        """Rows of the cache that go on, where some that are over are still in it."""

    def _read(self, positions: int) -> None:
        """The weights as they are now."""
        cos, sin = rotary(self.model, positions)
        scale = self.size**-0.5
        plain = torch.ones(self.heads + self.kv_heads, self.size, device=self.device)
        plain[: self.heads] = scale
        turn = cos[:, None] * plain, sin[:, None] * plain
        self.layers = []
        for layer in self.model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            if self.normed_heads:
                norms = torch.cat(
                    [
                        (attention.q_norm.weight * scale).expand(self.heads, -1),
                        attention.k_norm.weight.expand(self.kv_heads, -1),
                    ]
                )
                turn = cos[:, None] * norms, sin[:, None] * swap_halves(norms)
            qkv = (attention.q_proj, attention.k_proj, attention.v_proj)
            gate_up = (mlp.gate_proj, mlp.up_proj)
            norm, mlp_norm = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
            turn = turn[0].to(norm.dtype), turn[1].to(norm.dtype)
            if self.sizes.small:
                self.layers.append(
                    _Layer(
                        None,
                        [_multiplied(joined(qkv), norm)],
                        *turn,
                        _multiplied(weight_and_bias(attention.o_proj)),
                        None,
                        [_multiplied(joined(gate_up), mlp_norm)],
                        _multiplied(weight_and_bias(mlp.down_proj)),
                    )
                )
            else:
                self.layers.append(
                    _Layer(
                        norm,
                        [_Map(*weight_and_bias(m)) for m in qkv],
                        *turn,
                        _Map(*weight_and_bias(attention.o_proj)),
                        mlp_norm,
                        [_Map(*weight_and_bias(m)) for m in gate_up],
                        _Map(*weight_and_bias(mlp.down_proj)),
                    )
                )
        self.embedding = self.model.model.embed_tokens.weight
        head, norm = self.model.lm_head.weight, self.model.model.norm.weight
        self.norm = None if self.sizes.small else norm
        self.head = _multiplied((head, None), norm) if self.sizes.small else _Map(head, None)

    def prefill(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Tensor:
        width = max(map(len, prompts))
        self._read(width + max_new_tokens)
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
        padding = torch.tensor([width - len(prompt) for prompt in prompts])
        seen = torch.arange(width) >= padding[:, None]
        mask = seen[:, None, :] & torch.ones(width, width, dtype=torch.bool).tril()
        mask = torch.where(mask, 0.0, _MASKED)[:, None].to(self.device)
        x = self.embedding[ids.to(self.device)]
        self.live = None
        self.cache = (Whole if self.sizes.small else Shared)(seen.to(self.device), max_new_tokens)
        for layer in self.layers:
            q, k, v = self._project(x, layer, slice(0, width))
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            self.cache.add(k, v)
            o = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask.to(q.dtype), enable_gqa=True, scale=1.0
            )
            x = self._finish(x, o.transpose(1, 2).flatten(2), layer)
        logits = self._logits(x[:, -1])
        if max_new_tokens >= _PACKED_STEPS and not self.sizes.small and _packs(self.head.weight):
            for index, layer in enumerate(
                self.layers
            ):  # one at a time: what was joined or merged for it goes
                self.layers[index] = layer.ordered(self.rows)
            self.head = _packed([self.head])
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        cache = self.cache
        if self.live is not None:  # rows that are over are computed on: anything will do for them
            tokens = tokens.new_zeros(cache.rows).index_copy_(0, self.live, tokens)
        cache.begin()
        x = self.embedding[tokens][:, None]
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(x, layer, slice(cache.filled - 1, cache.filled))
            x = self._finish(x, cache.attend(index, q, k, v), layer)
        x = x[:, 0]
        return self._logits(x if self.live is None else x[self.live])

    def select(self, index: Tensor) -> None:
        """In a large model's cache a few rows that are over stay: to copy the others takes longer than to compute these."""
        rows = self.cache.rows
        if self.live is not None:
            index = self.live[index]
        self.live = None
        ends = bool((index[1:] > index[:-1]).all())  # none of them twice
        if ends and not self.sizes.small and rows - len(index) <= rows // _OVER:
            self.live = index
            return
        self.cache.select(index)

    def _normed(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """RMS norm; its weight may be multiplied into what follows."""
        wide = x.float()
        x = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.sizes.eps)).to(x.dtype)
        return x if weight is None else x * weight

    def _project(self, x: Tensor, layer: _Layer, at: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries (scaled) and keys, and values, (rows, tokens, heads, D), for the cache slots `at`."""
        heads = _mapped(self._normed(x, layer.norm), layer.qkv).unflatten(-1, (-1, self.size))
        qk, v = heads.split([self.heads + self.kv_heads, self.kv_heads], 2)
        if self.normed_heads:
            qk = self._normed(qk)
        qk = (qk * layer.cos[at]).addcmul_(swap_halves(qk), layer.sin[at])
        return *qk.split([self.heads, self.kv_heads], 2), v

    def _finish(self, x: Tensor, attended: Tensor, layer: _Layer) -> Tensor:
        x = x + layer.output(attended)
        h = self._normed(x, layer.mlp_norm)
        if len(layer.gate_up) == 1:
            gate, up = layer.gate_up[0](h).chunk(2, -1)
        else:
            gate, up = (one(h) for one in layer.gate_up)
        return x + layer.down(F.silu(gate) * up)

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(self._normed(x, self.norm))


def _mapped(x: Tensor, maps: list[_Map]) -> Tensor:
    """What linear maps make of one input, behind each other."""
    if len(maps) == 1:
        return maps[0](x)
    return torch.cat([one(x) for one in maps], -1)


def _multiplied(linear: tuple[Tensor, Tensor | None], norm: Tensor | None = None) -> _Map:
    """A copy of a linear map that is quick with few rows: its weight in the order of its input, `norm` multiplied in."""
    weight, bias = linear
    return _Map((weight if norm is None else weight * norm).t().contiguous().t(), bias)


def _packs(weight: Tensor) -> bool:
    """Whether maps with such weights can be packed here."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    kind = _kind(weight)
    return kind == torch.float32 or (kind == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _kind(weight: Tensor) -> torch.dtype:
    """What a product with this weight is computed in."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype


def _one(maps: Sequence[_Map]) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of maps of one input as one."""
    if len(maps) == 1:
        return maps[0].weight, maps[0].bias
    weights, biases = zip(*((one.weight, one.bias) for one in maps), strict=True)
    return torch.cat(weights), None if biases[0] is None else torch.cat(biases)


def _cut(maps: Sequence[_Map]) -> _Map:
    """Maps of one input as one whose weight lies in the order of its input, in pieces."""
    weight, bias = _one(maps)
    count = -(-len(weight) // _WIDE)
    pieces = [piece.t().contiguous() for piece in weight.tensor_split(count)]
    return _Map(maps[0].weight, bias, None, pieces)


def _packed(maps: Sequence[_Map]) -> _Map:
    """Maps of one input as one that is packed."""
    weight, bias = _one(maps)
    kind = _kind(weight)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(kind))
    return _Map(packed, None if bias is None else bias.to(kind), packed)
