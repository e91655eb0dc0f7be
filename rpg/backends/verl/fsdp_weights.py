"""Weights of FSDP modules, shard by shard: into another module of the same model and from another
number of workers.

Low-rank adapters (`model.lora`; peft in verl's FSDP2 engine): merged for servers and checkpoints,
and kept as a reference.

verl reads files of exactly as many workers as there are
(verl/utils/checkpoint/fsdp_checkpoint_manager.py:219). FSDP2's shards are rows of each tensor, so
here any number can go on.

verl 0.9.1 merges in place, rounds merged weights to bfloat16
(verl/workers/engine/fsdp/transformer_impl.py:1083), and exports checkpoints unmerged, with peft's
names (verl/utils/checkpoint/fsdp_checkpoint_manager.py:422). Here each weight is merged separately,
in the precision that it is trained in, and the module stays unchanged.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from peft.tuners.lora import Linear, LoraLayer
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from verl.utils.device import get_device_id

from rpg.errors import UserError


def load_shards(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Load what :func:`shards` or :func:`adapters` gave on as many workers; the next forward pass
    uses it."""
    parts = dict(shards(module))
    with torch.no_grad():
        for name, value in values.items():
            parts[name].copy_(value)


def shards(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, this worker's part) of every parameter."""
    for name, parameter in module.named_parameters():
        yield name, parameter.to_local() if hasattr(parameter, "to_local") else parameter


def written_by(folder: str | Path, pattern: str) -> int:
    """How many workers wrote the files `pattern` (with `{world}` and `{rank}`) in a folder; 0 if
    there are none. Raises FileNotFoundError: some of them are missing.
    """
    name = re.compile(re.escape(pattern).replace(r"\{world\}", r"(\d+)").replace(r"\{rank\}", "0"))
    matches = (name.fullmatch(path.name) for path in Path(folder).glob("*"))
    workers = max((int(match[1]) for match in matches if match), default=0)
    for rank in range(workers):
        path = Path(folder, pattern.format(world=workers, rank=rank))
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file, of {workers} workers")
    return workers


@contextmanager
def resharding(manager: Any, folder: str, workers: int) -> Iterator[None]:
    """verl's `FSDPCheckpointManager` loads a folder that another number of workers than `workers`
    wrote, too."""
    written = written_by(folder, MODEL)
    if written and written != workers:
        manager.load_checkpoint = partial(load_resharded, manager, written)
    try:
        yield
    finally:
        vars(manager).pop("load_checkpoint", None)


def load_resharded(manager: Any, workers: int, local_path: str, **_: Any) -> None:
    """Replaces verl's `FSDPCheckpointManager.load_checkpoint`, for a checkpoint that `workers`
    workers wrote.

    Random states and verl's scheduler are not restored: no training draws from the ones or reads
    the other.
    """
    folder = Path(local_path)

    def read(kind: str, rank: int) -> dict[str, Any]:
        # Mapped, so that a worker reads only its rows. verl wrote these files itself, pickled.
        path = folder / f"{kind}_world_size_{workers}_rank_{rank}.pt"
        return dict(torch.load(path, map_location="cpu", weights_only=False, mmap=True))

    parts = [read("model", rank) for rank in range(workers)]
    with torch.no_grad():
        for name, mine in manager.model.state_dict().items():
            shards = [part[name] for part in parts]
            if isinstance(mine, DTensor):
                mine.to_local().copy_(_rows_of(mine, shards))
            else:
                mine.copy_(shards[0])
    if manager.optimizer is not None:
        parts = [read("optim", rank) for rank in range(workers)]
        live = [
            parameter for group in manager.optimizer.param_groups for parameter in group["params"]
        ]
        merged_state = parts[0]
        for index, entries in merged_state["state"].items():
            for name in [name for name, value in entries.items() if isinstance(value, DTensor)]:
                entries[name] = _like(live[index], [part["state"][index][name] for part in parts])
        manager.optimizer.load_state_dict(
            {key: merged_state[key] for key in ("state", "param_groups")}
        )


def load_shards_of(module: nn.Module, folder: str | Path, pattern: str, workers: int) -> None:
    """Load the parameters of which `workers` workers each wrote their rows as a safetensors
    file."""
    parts = [
        load_file(Path(folder, pattern.format(world=workers, rank=rank))) for rank in range(workers)
    ]
    with torch.no_grad():
        for name, mine in module.named_parameters():
            if name in parts[0]:
                sharded = cast(DTensor, mine)
                sharded.to_local().copy_(_rows_of(sharded, [part[name] for part in parts]))


def _rows_of(mine: DTensor, parts: Sequence[Tensor]) -> Tensor:
    """This worker's rows of the tensor whose rows `parts` are, in order."""
    whole = torch.cat([part.to_local() if isinstance(part, DTensor) else part for part in parts])
    assert whole.shape == mine.shape, f"{tuple(whole.shape)} is not {tuple(mine.shape)}"
    mesh = mine.device_mesh
    chunks = whole.chunk(mesh.size())
    rank = mesh.get_local_rank()
    return chunks[rank] if rank < len(chunks) else whole[:0]


def _like(parameter: DTensor, parts: Sequence[Tensor]) -> DTensor:
    """A moment of a parameter, distributed as the parameter is."""
    rows = _rows_of(parameter, parts).clone().to(parameter.to_local().device)
    like: dict[str, Any] = {
        "shape": parameter.shape,
        "stride": parameter.stride(),
        "run_check": False,
    }
    return DTensor.from_local(rows, parameter.device_mesh, parameter.placements, **like)


Weights = Mapping[str, Tensor]
MODEL = "model_world_size_{world}_rank_{rank}.pt"
"""verl's name of a worker's weights."""
NAME = "default"
"""peft's name of the adapter."""


def send_merged(engine: Any) -> None:
    """Make verl's engine send merged weights to the rollout servers. Raises UserError: a target of
    the adapters is not a linear layer.
    """
    for name, layer in engine.module.named_modules():
        if isinstance(layer, LoraLayer) and not isinstance(layer, Linear):
            raise UserError(
                f"model.lora.targets: {_base_name(name)} is not a linear layer; accepted: "
                "all-linear, or their names"
            )
    engine.get_per_tensor_param = lambda *_, **__: (merged(engine.module), None)


def merged(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name in the model without adapters, whole weight with its adapter) of each parameter; a
    collective call.

    A target's weight W becomes W + alpha / rank * B A (Hu et al. 2021, arXiv 2106.09685, section
    4.1).
    """
    targets = {
        name: layer for name, layer in module.named_modules() if isinstance(layer, LoraLayer)
    }
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if _is_adapter(name):
                continue
            value = _whole(parameter)
            target = targets.get(name.removesuffix(".base_layer.weight"))
            if target is not None:
                down, up = (_whole(part[NAME].weight) for part in (target.lora_A, target.lora_B))
                value = value + target.scaling[NAME] * (up @ down).to(value.dtype)
            yield _base_name(name), value.detach()


def export_merged(module: nn.Module, folder: Path, is_first: bool) -> None:
    """Write the merged weights beside verl's config and tokenizer, as an ordinary model folder; a
    collective call."""
    weights = {name: value.cpu().contiguous() for name, value in merged(module) if is_first}
    if is_first:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def adapters(module: nn.Module) -> dict[str, Tensor]:
    """A copy of this worker's part of all adapters."""
    return {name: value.detach().clone() for name, value in shards(module) if _is_adapter(name)}


@contextmanager
def with_adapters(module: nn.Module, weights: Weights) -> Iterator[None]:
    """The model with these adapters instead of its own."""
    originals = adapters(module)
    load_shards(module, weights)
    try:
        yield
    finally:
        load_shards(module, originals)


def _is_adapter(name: str) -> bool:
    return ".lora_" in name


def _base_name(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer", "")


def _whole(parameter: Tensor) -> Tensor:
    if not isinstance(parameter, DTensor):
        return parameter
    here = parameter.to(get_device_id())
    assert isinstance(here, DTensor)
    return here.full_tensor()
