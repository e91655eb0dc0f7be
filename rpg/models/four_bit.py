"""Frozen weights of 4 bits under adapters (QLoRA; Dettmers et al., 2023, arXiv 2305.14314), by
bitsandbytes.

NF4 keeps a weight as one of 16 values times the scale of its block, 64 weights of one row. Every
product takes the weights of its layer out again, in the type of the arithmetic, and so does its
backward pass: between them only 4.5 bits of a weight are there. So the policy that trains, samples
and is exported has one base, up to the rounding of the arithmetic.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from rpg.errors import install_command
from rpg.models.model_loading import ModelError

BLOCK = 64
"""Weights that share a scale. As in rpg.planning.space."""
ADAPTER = ".lora_"
"""In the names of an adapter's layers and weights, by peft."""


class Packed(NamedTuple):
    """A matrix in NF4."""

    codes: Tensor
    """(rows, columns / 2), two weights a byte."""
    scales: Tensor
    """(rows, columns / BLOCK), float32."""

    def wide(self, dtype: torch.dtype) -> Tensor:
        """The weights, (rows, columns)."""
        from bitsandbytes.functional import QuantState, dequantize_4bit  # noqa: PLC0415 (optional)

        shape = torch.Size([len(self.codes), 2 * self.codes.shape[1]])
        state = QuantState(
            absmax=self.scales.flatten(),
            shape=shape,
            blocksize=BLOCK,
            quant_type="nf4",
            dtype=dtype,
        )
        weights: Tensor = dequantize_4bit(self.codes.reshape(-1, 1), state)
        return weights


class FourBitLinear(nn.Module):
    """A frozen linear layer whose weight is packed.

    Attributes:
        dtype: of the weight in products.
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, packed: Packed, bias: nn.Parameter | None):
        super().__init__()
        self.out_features = len(packed.codes)
        self.in_features = 2 * packed.codes.shape[1]
        self.bias = bias
        self.dtype = torch.float32
        # No part of the state dict: there a layer has its weight (`base_weights`).
        self.register_buffer("codes", packed.codes, persistent=False)
        self.register_buffer("scales", packed.scales, persistent=False)

    @classmethod
    def of(cls, layer: nn.Linear) -> Self:
        from bitsandbytes.functional import quantize_4bit  # noqa: PLC0415 (optional)

        weight = layer.weight.detach()
        codes, state = quantize_4bit(weight.contiguous(), blocksize=BLOCK, quant_type="nf4")
        rows = len(weight)
        return cls(Packed(codes.view(rows, -1), state.absmax.view(rows, -1)), layer.bias)

    @property
    def packed(self) -> Packed:
        return Packed(self.codes, self.scales)

    @property
    def weight(self) -> Tensor:
        """(out_features, in_features), made anew at every call."""
        return self.packed.wide(self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = _Product.apply(x, self)  # type: ignore[no-untyped-call]  # as torch leaves it
        return product


class _Product(torch.autograd.Function):
    """x @ weight.T + bias, which keeps nothing for its backward pass but the packed weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: FourBitLinear) -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.weight, layer.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return gradient @ ctx.layer.weight.to(gradient.dtype), None


def pack_base(model: PreTrainedModel) -> None:
    """Pack the frozen linear layers of a model with adapters, in place: all but the output layer,
    those whose rows are no whole blocks, and the adapters themselves, which are frozen where
    nothing is trained. Raises ModelError: bitsandbytes is not installed, or there is no such layer.
    """
    try:
        import bitsandbytes  # noqa: F401, PLC0415 (optional)
    except ImportError as error:
        raise ModelError(
            "model.lora.base: nf4 needs the package bitsandbytes, which is not installed; install "
            f"it with: {install_command('quantized')}; or set model.lora.base: same"
        ) from error
    head = model.get_output_embeddings()
    layers = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear
        and module is not head
        and ADAPTER not in name
        and not module.weight.requires_grad
        and module.in_features % BLOCK == 0
    }
    if not layers:
        raise ModelError(
            f"model.lora.base: nf4 packs linear layers with a multiple of {BLOCK} inputs, and "
            f"{type(model).__name__} has none here; accepted: same"
        )
    for name, layer in layers.items():
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, FourBitLinear.of(layer))


def four_bit_layers(model: nn.Module) -> Iterator[tuple[str, FourBitLinear]]:
    """The packed layers, with their names."""
    for name, module in model.named_modules():
        if isinstance(module, FourBitLinear):
            yield name, module


def is_packed(model: nn.Module) -> bool:
    return next(four_bit_layers(model), None) is not None


def parameter_count(model: nn.Module) -> int:
    """How many numbers the model has, packed ones included."""
    plain = sum(weight.numel() for weight in model.parameters())
    return plain + sum(2 * layer.codes.numel() for _, layer in four_bit_layers(model))


def unpack(model: nn.Module) -> None:
    """Replace packed layers by ordinary ones in float32, in place."""
    for name, layer in list(four_bit_layers(model)):
        has_bias = layer.bias is not None
        whole = nn.Linear(layer.in_features, layer.out_features, has_bias, device="meta")
        whole.weight = nn.Parameter(layer.packed.wide(torch.float32), requires_grad=False)
        if layer.bias is not None:
            whole.bias = layer.bias
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, whole)


def halve_weights(model: nn.Module, *, only_frozen: bool = False) -> None:
    """Round a model's float32 weights to bfloat16, in place; its buffers (frequencies of positions)
    stay as they are. Packed weights become bfloat16 when they are taken out."""
    for weight in model.parameters():
        if not (only_frozen and weight.requires_grad):
            weight.data = weight.data.bfloat16()
    for _, layer in four_bit_layers(model):
        layer.dtype = torch.bfloat16
