"""Differentiable pieces of a transformer layer whose backward passes are written down: fewer temporaries, less kept.

Shapes: M tokens, H heads, D head size. Statistics and products of float32 values are float32; of bfloat16 values the
statistics are float32, as in transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_LARGE = 2**19
"""From so many numbers on, a tensor on a CPU is looked at a part at a time: what comes between stays in the cache."""
_PART = 2**16


def _in_parts(run: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """run(*inputs), which has a row for every row of the inputs, a part of the rows at a time where they are many."""
    first = inputs[0]
    if first.numel() < _LARGE or first.device.type != "cpu":
        return run(*inputs)
    rows = max(1, _PART * len(first) // first.numel())
    results: tuple[Tensor, ...] = ()
    for part in (slice(start, start + rows) for start in range(0, len(first), rows)):
        found = run(*(x[part] for x in inputs))
        results = results or tuple(one.new_empty(len(first), *one.shape[1:]) for one in found)
        for result, one in zip(results, found, strict=True):
            result[part] = one
    return results


def swap_halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([second, first], -1)


class RMSNorm(torch.autograd.Function):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        def run(x: Tensor) -> tuple[Tensor, ...]:
            wide = x.float()
            scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
            normed = (wide * scale).to(x.dtype)
            return normed * weight, normed, scale

        result, normed, scale = _in_parts(run, x)
        ctx.save_for_backward(normed, scale, weight)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normed, scale, weight = ctx.saved_tensors
        of_weight: list[Tensor] = []

        def run(grad: Tensor, normed: Tensor, scale: Tensor) -> tuple[Tensor]:
            along = grad * normed
            of_weight.append(along.view(-1, weight.shape[0]).sum(0))
            inner = (along * weight).mean(-1, keepdim=True)
            x_grad = (grad * weight).addcmul_(normed, inner, value=-1)
            return (x_grad.mul_(scale) if x_grad.dtype == scale.dtype else (x_grad * scale).to(normed.dtype),)

        (x_grad,) = _in_parts(run, grad, normed, scale)
        return x_grad, of_weight[0] if len(of_weight) == 1 else torch.stack(of_weight).sum(0), None


class SwiGLU(torch.autograd.Function):
    """silu(gate) * up of (M, 2 * width)."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        activated = F.silu(gate)
        ctx.save_for_backward(gate_up, activated)
        return activated * up

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        gate_up, activated = ctx.saved_tensors
        gate, up = gate_up.chunk(2, -1)
        result = torch.empty_like(gate_up)
        gate_grad, up_grad = result.chunk(2, -1)
        torch.mul(grad, activated, out=up_grad)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=gate_grad)
        return result


class GatedProduct(torch.autograd.Function):
    """silu(gate) * up of two tensors (M, width); nothing but its inputs is kept."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return _in_parts(lambda gate, up: (F.silu(gate).mul_(up),), gate, up)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        def run(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, ...]:
            return torch.ops.aten.silu_backward(grad * up, gate), F.silu(gate).mul_(grad)

        gate_grad, up_grad = _in_parts(run, grad, *ctx.saved_tensors)
        return gate_grad, up_grad


class Rotate(torch.autograd.Function):
    """Rotary position embedding; its transpose is the rotation back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _in_parts(lambda x, cos, sin: ((x * cos).addcmul_(swap_halves(x), sin),), x, cos, sin)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        def run(grad: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor]:
            return (swap_halves(grad * sin).addcmul_(grad, cos),)

        return _in_parts(run, grad, *ctx.saved_tensors)[0], None, None


class Taken(torch.autograd.Function):
    """x[index] where the gradient comes from one place for each row of `x` only: index[slots] counts them up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.index_select(0, ctx.saved_tensors[0]), None, None
