"""A lean Qwen3: the same function as transformers' Qwen3ForCausalLM, computed with less work for small models.

Tokens of all sequences lie behind each other in one packed tensor (no padding outside attention), what sequences
have in common is computed once (packing.py), and in decoding the projections of a layer are fused. Weights are read
from the transformers model at every call, so there is nothing to keep in step. Tests compare both, values and
gradients.

Shapes: M packed tokens, E hidden size, H query heads, K key-value heads, D head size; P, N, T as in batch.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from rpg.models.batch import Batch
from rpg.models.packing import Packing

_MASKED = -1e9


def supports(model: nn.Module) -> bool:
    """Whether the lean implementation computes exactly what `model` does."""
    if type(model) is not Qwen3ForCausalLM:
        return False
    config: Qwen3Config = model.config
    return (
        config.hidden_act == "silu"
        and not config.attention_bias
        and not (model.training and config.attention_dropout)
        and set(config.layer_types) == {"full_attention"}
        and config.rope_parameters.get("rope_type") == "default"
        and all(p.dtype == torch.float32 for p in model.parameters())
    )


def log_probs(model: Qwen3ForCausalLM, batch: Batch, temperature: float) -> Tensor:
    """Log-probabilities of the response tokens, (N, T), zero behind a row's length; differentiable."""
    pack = Packing.of(batch)
    logits = _hidden(model, pack)[pack.predictors] @ model.lm_head.weight.t()
    if temperature != 1.0:
        logits = logits / temperature
    mask = batch.mask
    chosen = logits.log_softmax(-1)[pack.predictor_of, batch.tokens[mask]]
    return torch.zeros(mask.shape, device=chosen.device).masked_scatter(mask, chosen)


def _hidden(model: Qwen3ForCausalLM, pack: Packing) -> Tensor:
    """The last hidden states, (M, E)."""
    config = model.config
    heads, kv_heads, size, eps = _sizes(config)
    cos, sin = (table[pack.positions][:, None] for table in _rotary(model, int(pack.positions.max()) + 1))
    embedding = model.model.embed_tokens
    x = F.embedding(pack.ids, embedding.weight, embedding.padding_idx)
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        h = _RMSNorm.apply(x, layer.input_layernorm.weight, eps)
        fused = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        q, k, v = (h @ fused.t()).split([heads * size, kv_heads * size, kv_heads * size], -1)
        q = _Rotate.apply(_RMSNorm.apply(q.reshape(-1, heads, size), attention.q_norm.weight, eps), cos, sin)
        k = _Rotate.apply(
            _RMSNorm.apply(k.reshape(-1, kv_heads, size), attention.k_norm.weight, eps), cos, sin
        )
        o = _attend(q, torch.cat([k, v.reshape(-1, kv_heads, size)], 1), pack)
        x = torch.addmm(x, o, attention.o_proj.weight.t())
        h = _RMSNorm.apply(x, layer.post_attention_layernorm.weight, eps)
        h = h @ torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).t()
        x = torch.addmm(x, _SwiGLU.apply(h), mlp.down_proj.weight.t())
    return _RMSNorm.apply(x, model.model.norm.weight, eps)


def _attend(q: Tensor, kv: Tensor, pack: Packing) -> Tensor:
    """Causal attention of every packed token to its own sequence: q (M, H, D), kv (M, 2K, D) -> (M, H * D)."""
    parts = []
    for block in pack.blocks:
        rows, queries = block.queries.shape
        qs = q[block.queries].transpose(1, 2)
        ks, vs = kv[block.keys].transpose(1, 2).chunk(2, 1)
        out = F.scaled_dot_product_attention(qs, ks, vs, attn_mask=block.mask, enable_gqa=True)
        parts.append(out.transpose(1, 2).reshape(rows * queries, -1))
    return torch.cat(parts)[pack.slots]


def _sizes(config: Qwen3Config) -> tuple[int, int, int, float]:
    return config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.rms_norm_eps


def _rotary(model: Qwen3ForCausalLM, positions: int) -> tuple[Tensor, Tensor]:
    """Tables (positions, D) for rotation as x * cos + swap_halves(x) * sin."""
    frequencies = model.model.rotary_emb.inv_freq
    angles = torch.outer(torch.arange(positions, device=frequencies.device).float(), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def _swap_halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([second, first], -1)


class _RMSNorm(torch.autograd.Function):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, with a backward pass of few temporaries."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        normed = x * scale
        ctx.save_for_backward(normed, scale, weight)
        return normed * weight

    @staticmethod
    def backward(ctx, grad):
        normed, scale, weight = ctx.saved_tensors
        along = grad * normed
        weight_grad = along.view(-1, weight.shape[0]).sum(0)
        inner = (along * weight).mean(-1, keepdim=True)
        return (grad * weight).addcmul_(normed, inner, value=-1).mul_(scale), weight_grad, None


class _SwiGLU(torch.autograd.Function):
    """silu(gate) * up of (M, 2 * width)."""

    @staticmethod
    def forward(ctx, gate_up):
        gate, up = gate_up.chunk(2, -1)
        activated = F.silu(gate)
        ctx.save_for_backward(gate_up, activated)
        return activated * up

    @staticmethod
    def backward(ctx, grad):
        gate_up, activated = ctx.saved_tensors
        gate, up = gate_up.chunk(2, -1)
        result = torch.empty_like(gate_up)
        gate_grad, up_grad = result.chunk(2, -1)
        torch.mul(grad, activated, out=up_grad)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=gate_grad)
        return result


class _Rotate(torch.autograd.Function):
    """Rotary position embedding; its transpose is the rotation back."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return (x * cos).addcmul_(_swap_halves(x), sin)

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return _swap_halves(grad * sin).addcmul_(grad, cos), None, None


class LeanEngine:
    """Decoding with fused projections (see decode.Engine).

    Prompts are padded on the left and positions count cache slots: rotary attention depends on differences of
    positions only, so all rows can share one.
    """

    def __init__(self, model: Qwen3ForCausalLM):
        self.model = model
        self.device = model.lm_head.weight.device
        self.heads, self.kv_heads, self.size, self.eps = _sizes(model.config)

    def _fuse(self, positions: int) -> None:
        """Weights as the loops below use them; norm weights and the scale of attention are multiplied in."""
        cos, sin = _rotary(self.model, positions)
        self.layers = []
        for layer in self.model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            qkv = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
            gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
            norms = torch.cat(
                [
                    (attention.q_norm.weight * self.size**-0.5).expand(self.heads, -1),
                    attention.k_norm.weight.expand(self.kv_heads, -1),
                ]
            )
            self.layers.append(
                (
                    (qkv * layer.input_layernorm.weight).t().contiguous(),
                    cos[:, None] * norms,
                    sin[:, None] * _swap_halves(norms),
                    attention.o_proj.weight.t().contiguous(),
                    (gate_up * layer.post_attention_layernorm.weight).t().contiguous(),
                    mlp.down_proj.weight.t().contiguous(),
                )
            )
        self.embedding = self.model.model.embed_tokens.weight
        self.head = (self.model.lm_head.weight * self.model.model.norm.weight).t().contiguous()

    def prefill(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Tensor:
        width = max(map(len, prompts))
        self._fuse(width + max_new_tokens)
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
        padding = torch.tensor([width - len(prompt) for prompt in prompts])
        seen = torch.arange(width) >= padding[:, None]
        mask = seen[:, None, :] & torch.ones(width, width, dtype=torch.bool).tril()
        mask = torch.where(mask, 0.0, _MASKED)[:, None].to(self.device)
        shape = (len(prompts), self.kv_heads, width + max_new_tokens, self.size)
        self.keys = [torch.empty(shape, device=self.device) for _ in self.layers]
        self.values = [torch.empty(shape, device=self.device) for _ in self.layers]
        x = self.embedding[ids.to(self.device)]
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(x, layer, slice(0, width))
            k, v = k.transpose(1, 2), v.transpose(1, 2)
            self.keys[index][:, :, :width] = k
            self.values[index][:, :, :width] = v
            o = F.scaled_dot_product_attention(
                q.transpose(1, 2), k, v, attn_mask=mask, enable_gqa=True, scale=1.0
            )
            x = self._finish(x, o.transpose(1, 2).flatten(2), layer)
        self.bias = torch.zeros(len(prompts), 1, 1, width + max_new_tokens, device=self.device)
        self.bias[:, 0, 0, :width] = torch.where(seen, 0.0, _MASKED)
        self.filled = width
        return self._logits(x[:, -1])

    def step(self, tokens: Tensor) -> Tensor:
        rows, at = len(tokens), self.filled
        x = self.embedding[tokens][:, None]
        bias = self.bias[..., : at + 1]
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(x, layer, slice(at, at + 1))
            keys, values = self.keys[index], self.values[index]
            keys[:, :, at], values[:, :, at] = k[:, 0], v[:, 0]
            q = q.view(rows, self.kv_heads, -1, self.size)  # query heads of a group side by side
            scores = torch.matmul(q, keys[:, :, : at + 1].transpose(-1, -2)) + bias
            o = torch.matmul(scores.softmax(-1), values[:, :, : at + 1])
            x = self._finish(x, o.view(rows, 1, -1), layer)
        self.filled += 1
        return self._logits(x[:, 0])

    def select(self, index: Tensor) -> None:
        self.keys = [self._reordered(keys, index) for keys in self.keys]
        self.values = [self._reordered(values, index) for values in self.values]
        self.bias = self.bias[index]

    def _reordered(self, cache: Tensor, index: Tensor) -> Tensor:
        """Rows of a cache, copying only its filled slots."""
        result = cache.new_empty(len(index), *cache.shape[1:])
        result[:, :, : self.filled] = cache[:, :, : self.filled][index]
        return result

    def _normed(self, x: Tensor) -> Tensor:
        """RMS norm without its weight."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def _project(self, x: Tensor, layer: tuple, at: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries (scaled) and keys, and values, (rows, tokens, heads, D), for the cache slots `at`."""
        qkv, cos, sin = layer[:3]
        heads = (self._normed(x) @ qkv).unflatten(-1, (-1, self.size))
        qk, v = heads.split([self.heads + self.kv_heads, self.kv_heads], 2)
        qk = self._normed(qk)
        qk = (qk * cos[at]).addcmul_(_swap_halves(qk), sin[at])
        return *qk.split([self.heads, self.kv_heads], 2), v

    def _finish(self, x: Tensor, attended: Tensor, layer: tuple) -> Tensor:
        output, gate_up, down = layer[3:]
        x = x + attended @ output
        gate, up = (self._normed(x) @ gate_up).chunk(2, -1)
        return x + (F.silu(gate) * up) @ down

    def _logits(self, x: Tensor) -> Tensor:
        return self._normed(x) @ self.head
