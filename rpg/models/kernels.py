"""Parts of a transformer layer with hand-written backward passes: fewer temporaries, fewer saved
activations.

Shapes: M tokens, H heads, D head size. Everything is computed in the type of its input, except for
the statistics of bfloat16 values, which are float32 as in transformers.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def swap_halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([second, first], -1)


class RMSNorm(torch.autograd.Function):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        normed = (wide * scale).to(x.dtype)
        ctx.save_for_backward(normed, scale, weight)
        return normed * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normed, scale, weight = ctx.saved_tensors
        along = grad * normed
        weight_grad = along.view(-1, weight.shape[0]).sum(0)
        inner = (along * weight).mean(-1, keepdim=True)
        x_grad = (grad * weight).addcmul_(normed, inner, value=-1)
        x_grad = (
            x_grad.mul_(scale) if x_grad.dtype == scale.dtype else (x_grad * scale).to(normed.dtype)
        )
        return x_grad, weight_grad, None


class GatedProduct(torch.autograd.Function):
    """silu(gate) * up of two tensors (M, width); saves nothing but its inputs."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        up_grad = F.silu(gate).mul_(grad)
        return torch.ops.aten.silu_backward(grad * up, gate), up_grad


class Rotate(torch.autograd.Function):
    """Rotary position embedding; its transpose is the inverse rotation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return (x * cos).addcmul_(swap_halves(x), sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return swap_halves(grad * sin).addcmul_(grad, cos), None, None


class Taken(torch.autograd.Function):
    """x[index], where each row of `x` has exactly one place that sends a gradient: index[slots] =
    0, 1, 2, ..."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.index_select(0, ctx.saved_tensors[0]), None, None
