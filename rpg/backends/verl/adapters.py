"""Low-rank adapters (`model.lora`; peft in verl's FSDP2 engine): merged for servers and checkpoints, kept as a reference.

verl 0.9.1 merges in place, rounds merged weights to bfloat16 (verl/workers/engine/fsdp/transformer_impl.py:1083), and
exports checkpoints unmerged, with peft's names (verl/utils/checkpoint/fsdp_checkpoint_manager.py:422). Here each weight is
merged separately, in the precision that it is trained in, and the module stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora import Linear, LoraLayer
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from verl.utils.device import get_device_id

from rpg.backends.verl.sharding import shards
from rpg.errors import UserError

Weights = Mapping[str, Tensor]
NAME = "default"
"""peft's name of the adapter."""


def use(engine: Any) -> None:
    """Make verl's engine send merged weights to the rollout servers.

    Raises:
        UserError: a target of the adapters is not a linear layer.
    """
    for name, layer in engine.module.named_modules():
        if isinstance(layer, LoraLayer) and not isinstance(layer, Linear):
            raise UserError(
                f"model.lora.targets: {_base_name(name)} is not a linear layer; accepted: all-linear, or their names"
            )
    engine.get_per_tensor_param = lambda *_, **__: (merged(engine.module), None)


def merged(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name in the model without adapters, whole weight with its adapter) of each parameter; a collective call.

    A target's weight W becomes W + alpha / rank * B A (Hu et al. 2021, arXiv 2106.09685, section 4.1).
    """
    targets = {name: layer for name, layer in module.named_modules() if isinstance(layer, LoraLayer)}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if is_adapter(name):
                continue
            value = _whole(parameter)
            target = targets.get(name.removesuffix(".base_layer.weight"))
            if target is not None:
                down, up = (_whole(part[NAME].weight) for part in (target.lora_A, target.lora_B))
                value = value + target.scaling[NAME] * (up @ down).to(value.dtype)
            yield _base_name(name), value.detach()


def export(module: nn.Module, folder: Path, is_first: bool) -> None:
    """Write the merged weights beside verl's config and tokenizer, as an ordinary model folder; a collective call."""
    weights = {}
    for name, value in merged(module):
        if is_first:
            weights[name] = value.cpu().contiguous()
    if is_first:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def is_adapter(name: str) -> bool:
    """Whether a parameter of the module is part of an adapter."""
    return ".lora_" in name


def adapters(module: nn.Module) -> dict[str, Tensor]:
    """A copy of this worker's part of all adapters."""
    return {name: value.detach().clone() for name, value in shards(module) if is_adapter(name)}


def put(module: nn.Module, weights: Weights) -> None:
    """Restore what :func:`adapters` gave."""
    with torch.no_grad():
        for name, value in shards(module):
            if is_adapter(name):
                value.copy_(weights[name])


@contextmanager
def with_adapters(module: nn.Module, weights: Weights) -> Iterator[None]:
    """The model with these adapters instead of its own."""
    originals = adapters(module)
    put(module, weights)
    try:
        yield
    finally:
        put(module, originals)


def _base_name(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer", "")


def _whole(parameter: Tensor) -> Tensor:
    if not isinstance(parameter, DTensor):
        return parameter
    here = parameter.to(get_device_id())
    assert isinstance(here, DTensor)
    return here.full_tensor()
