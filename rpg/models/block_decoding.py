"""Decoding on a GPU, for the families of lean.py: steps of fixed shape that the host never waits
for.

Every tensor of a step keeps its size while a block of tokens is drawn: keys and values lie in
slots, of which a bias opens one more at each step, and the position is a number on the device. So a
step can be recorded as a CUDA graph and replayed. The slots for whole responses are there from the
start, and attention sees a growing part of them: caches that are copied to grow leave holes in a
GPU's memory. Each row holds a copy of its prompt; attention is one fused kernel: query heads that
share a key-value head are passed as positions of a query, which needs neither grouped heads nor
copies.

Shapes: P prompts, R rows of the cache, W slots of a prompt, S slots, M tokens, H query heads, K
key-value heads, g = H / K, D head size, E hidden size.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from rpg.models.decoding import BLOCK, padded_left
from rpg.models.four_bit import Packed
from rpg.models.kernels import swap_halves
from rpg.models.lean import Sizes, attention, concatenated, rotary
from rpg.models.lora import Adapter, adapter_of, packed_together, weight_and_bias

_ROOM = 64
"""Slots after the prompts that attention sees at first; when they are used up, an eighth is added,
at least this many."""
_FINISHED = 8
"""One in this many rows may be finished: they are computed, so that shapes and graph stay."""
_ALIGNED = 16
"""Slots are a multiple of this, as fused kernels want their bias."""


class _Layer(NamedTuple):
    """A decoder layer; weights are transposed, those with the same input concatenated. Adapters
    that are not merged stand beside their weights. Packed weights have their rows as they are, and
    are taken out at every product."""

    norm: Tensor
    qkv: Tensor | Packed
    """(E, K * (g + 2) * D): the queries, the key and the value of each key-value head side by side.
    """
    qkv_bias: Tensor | None
    output: Tensor | Packed
    output_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor | Packed
    gate_up_bias: Tensor | None
    down: Tensor | Packed
    down_bias: Tensor | None
    qkv_adapter: Adapter | None
    output_adapter: Adapter | None
    gate_up_adapter: Adapter | None
    down_adapter: Adapter | None

    def to(self, dtype: torch.dtype) -> "_Layer":
        """The same with all tensors in this type, but for packed ones."""
        parts = []
        for part in self:
            if isinstance(part, Adapter):
                part = Adapter(part.down.to(dtype), part.up.to(dtype), part.scale)
            elif isinstance(part, Tensor):
                part = part.to(dtype)
            parts.append(part)
        return _Layer._make(parts)


class BlockEngine:
    """See decoding.Engine. Prompts are padded on the left; positions count slots of the cache. To
    be made within the arithmetic in which it decodes.

    Attributes:
        graphs: steps are replayed as CUDA graphs; False after a capture failed, and on other
            devices.
    """

    block = BLOCK

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.sizes = Sizes.of(model)
        self.device: torch.device = model.lm_head.weight.device
        self.graphs = self.device.type == "cuda"
        self._seen: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            self._read_weights()

    def rows_that_fit(self, slots: int) -> int:
        """The rows with this many slots that a GPU's free memory holds, with a fifth of it left for
        logits and layers."""
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        free = torch.cuda.mem_get_info(self.device)[0] + unused
        numbers = 2 * len(self.layers) * self.sizes.kv_heads * self.sizes.head * slots
        per_row: int = numbers * self.embedding.dtype.itemsize
        return max(1, int(0.8 * free) // per_row)

    def _read_weights(self) -> None:
        sizes = self.sizes
        group = sizes.heads // sizes.kv_heads
        layers = list[_Layer]()
        scales = []
        for layer in self.model.model.layers:
            of = layer.self_attn
            mlp = layer.mlp
            qkv, qkv_bias = self._grouped_weight((of.q_proj, of.k_proj, of.v_proj))
            gate_up, gate_up_bias = _joint_weight((mlp.gate_proj, mlp.up_proj))
            output, output_bias = _joint_weight((of.o_proj,))
            down, down_bias = _joint_weight((mlp.down_proj,))
            layers.append(
                _Layer(
                    layer.input_layernorm.weight,
                    qkv,
                    qkv_bias,
                    output,
                    output_bias,
                    layer.post_attention_layernorm.weight,
                    gate_up,
                    gate_up_bias,
                    down,
                    down_bias,
                    self._grouped_adapter((of.q_proj, of.k_proj, of.v_proj)),
                    adapter_of([of.o_proj]),
                    adapter_of([mlp.gate_proj, mlp.up_proj]),
                    adapter_of([mlp.down_proj]),
                )
            )
            norms = layer.input_layernorm.weight.new_ones(group + 1, sizes.head)
            if hasattr(of, "q_norm"):
                norms[:-1], norms[-1] = of.q_norm.weight, of.k_norm.weight
            scales.append(torch.stack([norms, swap_halves(norms)]))
        self.normed = hasattr(of, "q_norm")
        # The type of products, to which autocast would round all weights again at every token.
        corner = self.model.lm_head.weight[:1, :1]
        dtype = torch.mm(corner, corner).dtype
        self.layers = [layer.to(dtype) for layer in layers]
        self._scales = torch.stack(scales)[:, :, None, None].to(dtype)
        """(layers, 2, 1, 1, g + 1, D): what the rotation's cosines and sines are multiplied with.
        """
        self.embedding: Tensor = self.model.model.embed_tokens.weight.to(dtype)
        self.head, self.norm = (
            self.model.lm_head.weight.t().to(dtype),
            self.model.model.norm.weight.to(dtype),
        )

    def _grouped(self, parts: Sequence[Tensor]) -> Tensor:
        """Weights or biases of queries, keys and values, by key-value head."""
        return torch.cat(
            [part.unflatten(0, (self.sizes.kv_heads, -1)) for part in parts], 1
        ).flatten(0, 1)

    def _grouped_weight(self, modules: Sequence[Any]) -> tuple[Tensor | Packed, Tensor | None]:
        """The weights and biases of queries, keys and values as one, by key-value head."""
        packed = packed_together(modules)
        biases = [module.bias for module in modules]
        bias = None if biases[0] is None else self._grouped(biases)
        if packed:
            codes = self._grouped([part.codes for part in packed])
            return Packed(codes, self._grouped([part.scales for part in packed])), bias
        weights = [weight_and_bias(module)[0] for module in modules]
        return self._grouped(weights).t(), bias

    def _grouped_adapter(self, modules: Sequence[Any]) -> Adapter | None:
        """The adapters of queries, keys and values as one, by key-value head."""
        adapter = adapter_of(modules)
        if adapter is None:
            return None
        parts = adapter.up.split([module.out_features for module in modules])
        return adapter._replace(up=self._grouped(parts))

    def prefill(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Tensor:
        longest = max(map(len, prompts))
        width = -(-longest // _ALIGNED) * _ALIGNED
        ids, seen = padded_left(prompts, width)
        # Padding sees itself: a row without any slot has no softmax.
        causal = torch.ones(width, width, dtype=torch.bool).tril()
        mask = (seen[:, None, :] & causal) | torch.eye(width).bool()
        dtype = self.embedding.dtype
        shut = torch.finfo(dtype).min / 2
        bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, shut)
        bias = bias[:, None].to(self.device)
        self._last = -(-(width + max_new_tokens) // _ALIGNED) * _ALIGNED
        self._table = torch.stack(rotary(self.model, self._last)).to(dtype)[:, :, None, None]
        """(2, slots, 1, 1, D)."""
        self._caches: list[tuple[Tensor, Tensor]] = []
        self._shut = shut
        self._filled = width
        self._live: Tensor | None = None
        padding = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, shut).to(self.device)

        def attend(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # noqa: ARG001 (of `_run`)
            q, k, v = (_by_row(x, len(prompts), width) for x in (q, k, v))
            behind = (0, 0, 0, self._last - width)  # of zeros: closed slots must be finite
            self._caches.append((F.pad(k, behind), F.pad(v, behind)))
            attended = attention(q, k, v, bias)
            return attended.transpose(1, 2).flatten(2).flatten(0, 1)

        turn = self._table[:, :width].repeat(1, len(prompts), 1, 1, 1)
        turns = (part for scale in self._scales for part in scale * turn)
        embedded = F.embedding(ids.to(self.device), self.embedding)
        x = self._run(embedded.flatten(0, 1), turns, attend)
        self._at = torch.full((1,), width, device=self.device)
        self._set_bias(padding, min(width + _ROOM, self._last))
        return self._logits(x.unflatten(0, (len(prompts), width))[:, -1])

    def step(self, tokens: Tensor) -> Tensor:
        if self._filled == self._mask.shape[3]:
            more = max(_ROOM, self._filled // 8 // _ALIGNED * _ALIGNED)
            self._set_bias(self._bias, min(self._filled + more, self._last))
        self._filled += 1
        if self._live is not None:
            tokens = tokens.new_zeros(len(self._bias)).index_copy_(0, self._live, tokens)
        logits = self._replayed(tokens) if self.graphs else self._step(tokens)
        return logits if self._live is None else logits.index_select(0, self._live)

    def _step(self, tokens: Tensor) -> Tensor:
        """One token (R,) more in every row, without a look at anything; logits (R, V)."""
        self._mask.index_fill_(3, self._at, 0.0)
        turns = (self._scales * self._table.index_select(1, self._at)).flatten(0, 1).unbind()
        x = self._run(self.embedding.index_select(0, tokens), iter(turns), self._attend)
        self._at.add_(1)
        return self._logits(x)

    def _attend(self, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self._seen[index]
        keys.index_copy_(2, self._at, k)
        values.index_copy_(2, self._at, v)
        # Not always contiguous: the layout of the result is up to the kernel.
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=self._mask).flatten(1)

    def _run(
        self,
        x: Tensor,
        turns: Iterator[Tensor],
        attend: Callable[[int, Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:
        """All layers on tokens (M, E); `turns` has two (M or 1, 1, g + 1, D) for each. `attend`
        gets a layer's number, queries (M, K, g, D), keys and values (M, K, 1, D).
        """
        sizes = self.sizes
        eps = self.sizes.eps
        group = sizes.heads // sizes.kv_heads
        for index, layer in enumerate(self.layers):
            h = F.rms_norm(x, x.shape[1:], layer.norm, eps)
            heads = _linear(h, layer.qkv, layer.qkv_bias, layer.qkv_adapter).view(
                len(x), sizes.kv_heads, -1, sizes.head
            )
            qk, v = heads.split([group + 1, 1], 2)
            if self.normed:
                qk = F.rms_norm(qk, (sizes.head,), None, eps)
            qk = (qk * next(turns)).addcmul_(qk.roll(sizes.head // 2, -1), next(turns))
            q, k = qk.split([group, 1], 2)
            v = v if v.dtype == k.dtype else v.to(k.dtype)
            attended = attend(index, q, k, v)
            x = _added(x, attended, layer.output, layer.output_bias, layer.output_adapter)
            h = F.rms_norm(x, x.shape[1:], layer.mlp_norm, eps)
            both = _linear(h, layer.gate_up, layer.gate_up_bias, layer.gate_up_adapter)
            gate, up = both.chunk(2, 1)
            h = F.silu(gate).mul_(up)
            x = _added(x, h, layer.down, layer.down_bias, layer.down_adapter)
        return x

    def _logits(self, x: Tensor) -> Tensor:
        return torch.mm(F.rms_norm(x, x.shape[1:], self.norm, self.sizes.eps), self.head)

    def select(self, index: Tensor) -> None:
        """A few finished rows stay in the cache."""
        rows = len(self._bias)
        index = index if self._live is None else self._live[index]
        if rows - rows // _FINISHED <= len(index) < rows:
            self._live = index
            return
        self._live = None
        self._seen = []
        room = self._mask.shape[3]
        for layer, (keys, values) in enumerate(
            self._caches
        ):  # one at a time: a layer's old rows are freed
            self._caches[layer] = keys.index_select(0, index), values.index_select(0, index)
        self._set_bias(self._bias.index_select(0, index), room)

    def _set_bias(self, prompts: Tensor, room: int) -> None:
        """What attention adds to the scores of each slot, (R, 1, 1, S): prompts (R, W), filled
        slots, and shut ones."""
        self._bias = prompts
        width = prompts.shape[1]
        mask = prompts.new_full((len(prompts), room), self._shut)
        mask[:, :width], mask[:, width : self._filled] = prompts, 0.0
        self._mask = mask[:, None, None]
        self._seen = [(keys[:, :, :room], values[:, :, :room]) for keys, values in self._caches]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._tokens: Tensor | None = None

    def _replayed(self, tokens: Tensor) -> Tensor:
        """:meth:`_step` as a CUDA graph, captured at the second step with these shapes (the first
        allocates workspaces)."""
        if self._tokens is None:
            self._tokens = tokens.clone()
            return self._step(tokens)
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph):
                    self._replayed_logits = self._step(self._tokens)
            except RuntimeError as error:
                warnings.warn(
                    f"decoding goes on without CUDA graphs, which is slower: {error}", stacklevel=2
                )
                self.graphs = False
                return self._step(tokens)
            self._graph = graph
        self._tokens.copy_(tokens)
        self._graph.replay()
        return self._replayed_logits


def _joint_weight(modules: Sequence[Any]) -> tuple[Tensor | Packed, Tensor | None]:
    """The weights and biases of linear layers with the same input, concatenated."""
    packed = packed_together(modules)
    if not packed:
        weight, bias = concatenated(modules)
        return weight.t(), bias
    biases = [module.bias for module in modules]
    codes = torch.cat([part.codes for part in packed])
    scales = torch.cat([part.scales for part in packed])
    return Packed(codes, scales), None if biases[0] is None else torch.cat(biases)


def _by_row(x: Tensor, rows: int, width: int) -> Tensor:
    """Heads of (rows * width) tokens as (rows, heads, width, D)."""
    by_row: Tensor = x.flatten(1, 2).unflatten(0, (rows, width))
    return by_row.transpose(1, 2)


def _matrix(weight: Tensor | Packed, dtype: torch.dtype) -> Tensor:
    """(inputs, outputs)."""
    return weight.wide(dtype).t() if isinstance(weight, Packed) else weight


def _linear(
    x: Tensor, weight: Tensor | Packed, bias: Tensor | None, adapter: Adapter | None
) -> Tensor:
    weight = _matrix(weight, x.dtype)
    product = torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)
    return product if adapter is None else adapter.added(x, product)


def _added(
    x: Tensor, h: Tensor, weight: Tensor | Packed, bias: Tensor | None, adapter: Adapter | None
) -> Tensor:
    """x + h @ weight + bias, and what the adapter adds."""
    total = torch.addmm(x if bias is None else x + bias, h, _matrix(weight, h.dtype))
    return total if adapter is None else adapter.added(h, total)
