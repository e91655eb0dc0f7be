"""Low-rank adapters (LoRA, Hu et al., 2021, arXiv 2106.09685), made by peft.

The weight W of a linear layer is frozen; two narrow matrices are trained, whose product is added to
it: W + (alpha / rank) B A. B starts at zero, so the adapted model starts as the model itself. The
model keeps its class: peft only wraps the adapted linear layers.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rpg.config.model import Lora
from rpg.errors import install_command
from rpg.models.model_loading import ModelError

_LORA = ".lora_"
_WRAPPED = ".base_layer."


def adapt(model: PreTrainedModel, lora: Lora, seed: int) -> None:
    """Add adapters to `model`, in place, and freeze everything else. The same seed gives the same
    adapters. Raises ModelError: peft is not installed, or a target is not a linear layer of this
    model.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model  # noqa: PLC0415 (optional)
    except ImportError as error:
        why = f"model.lora needs the package peft; install it with: {install_command('lora')}"
        raise ModelError(why) from error
    head = model.get_output_embeddings()
    linear = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if type(module).__name__.endswith(("Linear", "Conv1D"))
        and module is not head  # no router: it gives more
    }
    targets = sorted(linear) if lora.targets == "all-linear" else list(lora.targets)
    if unknown := [name for name in targets if name not in linear]:
        raise ModelError(
            f"model.lora.targets: {unknown[0]!r} is not a linear layer of {type(model).__name__}; accepted: all-linear, "
            f"or some of {', '.join(sorted(linear))}"
        )
    transposed = any(isinstance(module, Conv1D) for module in model.modules())
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, fan_in_fan_out=transposed
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        # As a module without a config: for some mixtures of experts peft would adapt other weights
        # than those it is told.
        inject_adapter_in_model(config, nn.ModuleList([model]))
    model.eval()


def adapted(model: nn.Module) -> bool:
    return any(_LORA in name for name, _ in model.named_parameters())


def adapters(model: nn.Module) -> dict[str, Tensor]:
    """The adapters' matrices, by name."""
    return {name: value.detach() for name, value in model.named_parameters() if _LORA in name}


def weight_and_bias(module: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a linear layer, its adapter merged into the weight; differentiable."""
    if not hasattr(module, "lora_A"):
        return module.weight, module.bias
    base = module.get_base_layer()
    return base.weight + sum(
        module.get_delta_weight(name) for name in module.active_adapters
    ), base.bias


def merged(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of a model without adapters that computes the same (up to rounding)."""
    state = {}
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if _LORA in name:
                continue
            if name.endswith(f"{_WRAPPED}weight"):
                value = weight_and_bias(
                    model.get_submodule(name.removesuffix(f"{_WRAPPED}weight"))
                )[0]
            state[name.replace(_WRAPPED, ".")] = value
    return state
