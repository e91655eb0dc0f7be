"""Low-rank adapters (Hu et al., 2021, arXiv 2106.09685), by peft: a linear map keeps its weight W, and what is trained
are two narrow matrices whose product is added to it, W + (alpha / rank) B A. B begins at zero, so the model does too.

The model keeps its class and its own modules; of what is adapted peft puts a layer around each linear map.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rpg.config.model import Lora
from rpg.models.model_loading import ModelError

_MARK = ".lora_"
_WRAPPED = ".base_layer."


def adapt(model: nn.Module, lora: Lora, seed: int) -> None:
    """Put adapters into `model`, in place; all that can be trained from now on are they. The same for the same seed.

    Raises:
        ModelError: peft is not installed, or a target is no linear map of this model.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ModelError(
            "model.lora needs the package peft; install it with: pip install 'rpg-lab[lora]'"
        ) from error
    head = model.get_output_embeddings()
    linear = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    }
    targets = sorted(linear) if lora.targets == "all-linear" else list(lora.targets)
    if wrong := [name for name in targets if name not in linear]:
        raise ModelError(
            f"model.lora.targets: {wrong[0]!r} is no linear map within {type(model).__name__}; accepted: all-linear, or "
            f"some of {', '.join(sorted(linear))}"
        )
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model)
    model.eval()


def adapted(model: nn.Module) -> bool:
    """Whether what is trained of a model are adapters."""
    return any(_MARK in name for name, _ in model.named_parameters())


def adapters(model: nn.Module) -> dict[str, Tensor]:
    """The adapters' matrices, by name."""
    return {name: value.detach() for name, value in model.named_parameters() if _MARK in name}


def put_adapters(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Back to what :func:`adapters` gave.

    Raises:
        KeyError: they belong to another model.
    """
    own = adapters(model)
    for name, value in tensors.items():
        own[name].copy_(value)


def weight_and_bias(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Those of a linear map with its adapter added in; differentiable."""
    if not hasattr(module, "lora_A"):
        return module.weight, module.bias
    base = module.get_base_layer()
    return base.weight + sum(module.get_delta_weight(name) for name in module.active_adapters), base.bias


def merged(model: nn.Module) -> dict[str, Tensor]:
    """The state of the model without adapters that computes the same (to rounding)."""
    state = {}
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if _MARK in name:
                continue
            if name.endswith(f"{_WRAPPED}weight"):
                value = weight_and_bias(model.get_submodule(name.removesuffix(f"{_WRAPPED}weight")))[0]
            state[name.replace(_WRAPPED, ".")] = value
    return state
