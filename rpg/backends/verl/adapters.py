"""Low-rank adapters (`model.lora`; peft, in verl's FSDP2 engine): merged for servers and checkpoints, kept as a reference.

verl 0.9.1 merges in place, rounds what it merged to bfloat16 (verl/workers/engine/fsdp/transformer_impl.py:1083), and
exports checkpoints with peft's names and nothing merged (verl/utils/checkpoint/fsdp_checkpoint_manager.py:422). Here
each weight is merged by itself, in the precision that it is trained in, and the module stays as it is.
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
from verl.utils.device import get_device_id

from rpg.backends.verl.sharding import shards
from rpg.errors import UserError

Weights = Mapping[str, Tensor]
NAME = "default"
"""Of the adapter, which peft chose."""


def use(engine: Any) -> None:
    """Have verl's engine hand merged weights to the rollout servers.

    Raises:
        UserError: a target of the adapters is no linear map.
    """
    for name, layer in engine.module.named_modules():
        if isinstance(layer, LoraLayer) and not isinstance(layer, Linear):
            raise UserError(
                f"model.lora.targets: {_plain(name)} is no linear map; accepted: all-linear, or their names"
            )
    engine.get_per_tensor_param = lambda *_, **__: (merged(engine.module), None)


def merged(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name in the model without adapters, whole weight with its adapter added) of each parameter; all workers together.

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
            yield _plain(name), value.detach()


def export(module: nn.Module, folder: Path, is_first: bool) -> None:
    """The merged weights beside verl's config and tokenizer, as a model that anything loads; all workers together."""
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
    """Back to :func:`adapters`."""
    with torch.no_grad():
        for name, value in shards(module):
            if is_adapter(name):
                value.copy_(weights[name])


@contextmanager
def with_adapters(module: nn.Module, weights: Weights) -> Iterator[None]:
    """The model with other adapters than its own."""
    own = adapters(module)
    put(module, weights)
    try:
        yield
    finally:
        put(module, own)


def _plain(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer", "")


def _whole(parameter: Tensor) -> Tensor:
    return parameter.to(get_device_id()).full_tensor() if hasattr(parameter, "full_tensor") else parameter
