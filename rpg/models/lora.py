"""Low-rank adapters (LoRA, Hu et al., 2021, arXiv 2106.09685), made by peft.

The weight W of a linear layer is frozen; two narrow matrices are trained, whose product is added to
it: W + (alpha / rank) B A. B starts at zero, so the adapted model starts as the model itself. The
model keeps its class: peft only wraps the adapted linear layers.

W and B A are summed in float32 only. In bfloat16, which has 8 significant bits, most of B A is lost
in the sum: an entry of it below 1/512 of W's rounds back to W. So where products are computed in
bfloat16, layers are not merged: B (A x) is added to W x. Merged weights are float32.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rpg.config.model import Lora
from rpg.errors import install_command
from rpg.models.four_bit import ADAPTER, FourBitLinear, Packed, four_bit_layers, unpack
from rpg.models.model_loading import ModelError

_WRAPPED = ".base_layer."
_NAME = "default"
"""peft's name of the adapter."""
FOLDER = "adapters"
"""Where a checkpoint holds its adapters, in peft's format."""


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
    unknown = [name for name in targets if name not in linear]
    if unknown:
        raise ModelError(
            f"model.lora.targets: {unknown[0]!r} is not a linear layer of "
            f"{type(model).__name__}; accepted: all-linear, "
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
    return any(ADAPTER in name for name, _ in model.named_parameters())


def adapters(model: nn.Module) -> dict[str, Tensor]:
    """The adapters' matrices, by name."""
    return {name: value.detach() for name, value in model.named_parameters() if ADAPTER in name}


def products_in(weight: Tensor) -> torch.dtype:
    """The type in which a product with this weight is computed here."""
    kind = weight.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return weight.dtype


def kept_apart(model: PreTrainedModel) -> bool:
    """Whether the model has adapters and its products are not computed in float32."""
    return adapted(model) and products_in(model.lm_head.weight) != torch.float32


class Adapter(NamedTuple):
    """What is added to a linear layer's product with x: up @ (down @ x) * scale."""

    down: Tensor
    """(ranks, inputs)."""
    up: Tensor
    """(outputs, ranks)."""
    scale: float

    def added(self, x: Tensor, product: Tensor) -> Tensor:
        """`product` (..., outputs) with what the adapter adds for `x` (..., inputs)."""
        narrow = nn.functional.linear(x, self.down)
        return product + nn.functional.linear(narrow, self.up) * self.scale


def adapter_of(modules: Sequence[Any]) -> Adapter | None:
    """The adapters of linear layers with the same input, whose outputs are concatenated, as one;
    None where products are computed in float32 (`weight_and_bias` has merged them) and where there
    are none.
    """
    wrapped = [module for module in modules if hasattr(module, "lora_A")]
    if not wrapped or products_in(wrapped[0].lora_A[_NAME].weight) == torch.float32:
        return None
    scale: float = wrapped[0].scaling[_NAME]
    down = torch.cat([module.lora_A[_NAME].weight for module in wrapped])
    up = down.new_zeros(sum(module.out_features for module in modules), len(down))
    row = column = 0
    for module in modules:
        if module in wrapped:
            weight = module.lora_B[_NAME].weight
            up[row : row + len(weight), column : column + weight.shape[1]] = weight
            column += weight.shape[1]
        row += module.out_features
    return Adapter(down, up, scale)


def weight_and_bias(module: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a linear layer; differentiable. Its adapter is merged into the weight
    where products are computed in float32."""
    if not hasattr(module, "lora_A"):
        return module.weight, module.bias
    base = module.get_base_layer()
    weight = base.weight
    if products_in(weight) != torch.float32:
        return weight, base.bias
    delta = sum(module.get_delta_weight(name) for name in module.active_adapters)
    return weight + delta, base.bias


def packed_together(modules: Sequence[Any]) -> list[Packed] | None:
    """The weights of 4 bits of linear layers with the same input; None if they have none, and
    where adapters are merged into them (`weight_and_bias`)."""
    packed = []
    for module in modules:
        is_wrapped = hasattr(module, "lora_A")
        base = module.get_base_layer() if is_wrapped else module
        if not isinstance(base, FourBitLinear):
            return None
        if is_wrapped and products_in(module.lora_A[_NAME].weight) == torch.float32:
            return None
        packed.append(base.packed)
    return packed


def merged(
    model: nn.Module,
    trained: Mapping[str, Tensor] | None = None,
    base: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """The state dict of a model without adapters that computes the same. With adapters it is
    float32, in the memory of the host: a GPU that trains adapters need not hold all weights twice.

    trained: weights to take instead of the model's, which may be rounded; base: those to which the
    adapters are added.
    """
    if not adapted(model):
        return {**base_weights(model), **(trained or {})}
    state = dict(base_weights(model) if base is None else base)
    wide: dict[int, Tensor] = {}  # tied weights stay one tensor
    for name, value in state.items():
        if value.is_floating_point():
            state[name] = wide.setdefault(value.data_ptr(), value.cpu().float())
    wide.clear()  # so that each weight is freed as its sum takes its place
    for name, delta in _deltas(model, trained or {}):
        state[name] = state[name] + delta.cpu()
    return state


def base_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of the model without its adapters; packed weights are taken out, in float32,
    in the memory of the host."""
    state = {
        without_wrapper(name): value
        for name, value in model.state_dict().items()
        if ADAPTER not in name
    }
    for name, layer in four_bit_layers(model):
        weight = layer.packed.wide(torch.float32).cpu()
        state[without_wrapper(f"{name}.weight")] = weight
    return state


def without_wrapper(name: str) -> str:
    """The name of a weight in the model without adapters."""
    return name.replace(_WRAPPED, ".")


def _deltas(model: nn.Module, trained: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """(name of a weight in the model without adapters, what its adapter adds to it in float32)."""
    deltas = []
    for name, module in model.named_modules():
        if not hasattr(module, "lora_A"):
            continue
        down, up = (
            trained.get(f"{name}.{part}.{_NAME}.weight", getattr(module, part)[_NAME].weight)
            for part in ("lora_A", "lora_B")
        )
        product = up.detach().float() @ down.detach().float()
        if module.fan_in_fan_out:
            product = product.T
        deltas.append((f"{name}.weight", product * module.scaling[_NAME]))
    return deltas


# --- adapters in files, as peft writes them -------------------------------------------------------

_PREFIX = "base_model.model."


def save_adapters(
    model: nn.Module, folder: Path, base: str, trained: Mapping[str, Tensor] | None = None
) -> None:
    """Write the adapters as peft does, to be put on the model `base`; `trained` as in
    :func:`merged`."""
    weights = adapters(model) | dict(trained or {})
    write_adapters(
        {name: weights[name] for name in adapters(model)}, peft_config(model), folder, base
    )


def save_base(model: nn.Module, folder: Path) -> None:
    """Write the weights without adapters, as they are in the model; a tensor of several names
    once."""
    weights: dict[int, tuple[str, Tensor]] = {}
    for name, value in base_weights(model).items():
        weights.setdefault(value.data_ptr(), (name, value))
    save_file(
        {name: value.cpu().contiguous() for name, value in weights.values()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def write_adapters(
    weights: Mapping[str, Tensor], config: Mapping[str, Any], folder: Path, base: str
) -> None:
    """Write adapters, by their names in the adapted model, and their configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        _PREFIX + name.replace(f".{_NAME}.", "."): value.detach().float().cpu().contiguous()
        for name, value in weights.items()
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    record = {**config, "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(record, indent=1, sort_keys=True))


def peft_config(model: nn.Module) -> dict[str, Any]:
    """What peft's adapter_config.json says of a model's adapters, without the name of its base."""
    wrapped = {
        name.rpartition(".")[2]: module
        for name, module in model.named_modules()
        if hasattr(module, "lora_A")
    }
    one = next(iter(wrapped.values()))
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": one.r[_NAME],
        "lora_alpha": one.lora_alpha[_NAME],
        "target_modules": sorted(wrapped),
        "fan_in_fan_out": one.fan_in_fan_out,
        "inference_mode": True,
    }


def has_adapters(checkpoint: str | Path) -> bool:
    """Whether a folder is a checkpoint with adapters, by themselves or also merged."""
    return (Path(checkpoint).expanduser() / FOLDER / "adapter_config.json").is_file()


def separate(model: PreTrainedModel, checkpoint: str | Path) -> None:
    """Take the adapters of a checkpoint out of its merged weights, which `model` holds in float32,
    and add them beside the weights, in place. The base comes back up to float32's rounding.
    """
    if not adapted(model):
        adapt_as(model, checkpoint)
        model.requires_grad_(False)
    put_adapters(model, checkpoint)
    with torch.no_grad():
        state = base_weights(model)
        for name, delta in _deltas(model, {}):
            state[name].sub_(delta)


def adapt_as(model: PreTrainedModel, checkpoint: str | Path) -> None:
    """Add adapters of the shapes that a checkpoint's have, in place."""
    path = Path(checkpoint).expanduser() / FOLDER / "adapter_config.json"
    config = json.loads(path.read_text())
    targets = tuple(config["target_modules"])
    adapt(model, Lora(rank=config["r"], alpha=config["lora_alpha"], targets=targets), seed=0)


def put_adapters(model: nn.Module, checkpoint: str | Path) -> None:
    """Copy the adapters of a checkpoint into a model with adapters of these shapes."""
    own = adapters(model)
    saved = load_file(Path(checkpoint).expanduser() / FOLDER / "adapter_model.safetensors")
    with torch.no_grad():
        for name, value in saved.items():
            module, _, weight = name.removeprefix(_PREFIX).rpartition(".")
            own[f"{module}.{_NAME}.{weight}"].copy_(value)


def merge(model: PreTrainedModel) -> None:
    """Turn a float32 model with adapters into one without, in place; packed weights are taken
    out."""
    deltas = _deltas(model, {})
    modules: list[tuple[str, Any]] = list(model.named_modules())
    for name, module in modules:
        if hasattr(module, "lora_A"):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, module.get_base_layer())
    unpack(model)
    with torch.no_grad():
        for name, delta in deltas:
            model.get_parameter(name).add_(delta)
