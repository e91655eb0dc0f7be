"""Weights of FSDP modules, shard by shard: into another module of the same model, and from another number of workers.

verl reads files of exactly as many workers as there are (verl/utils/checkpoint/fsdp_checkpoint_manager.py:219). Going on
with another number works with FSDP2 only, whose shards are rows of each tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy the weights of one FSDP module into another of the same model, whatever devices the shards are on."""
    drop_gathered(source)
    load_shards(target, dict(shards(source)))


def load_shards(module: nn.Module, values: dict[str, Tensor]) -> None:
    """Load what :func:`shards` gave on as many workers; the next forward pass uses it."""
    drop_gathered(module)
    with torch.no_grad():
        for name, value in shards(module):
            value.copy_(values[name])


def shards(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, this worker's part) of every parameter."""
    for name, parameter in module.named_parameters():
        yield name, parameter.to_local() if hasattr(parameter, "to_local") else parameter


def drop_gathered(module: nn.Module) -> None:
    """Make FSDP1 drop the whole weights that it has gathered.

    After a forward pass without gradients its root unit stays gathered, and no later pass would read what is written into
    its shard. (verl does the same, but only with several GPUs along `fsdp_size`:
    verl/workers/engine/fsdp/transformer_impl.py:1117.) FSDP2 gathers again by itself.
    """
    if isinstance(module, FullyShardedDataParallel):
        for unit in FullyShardedDataParallel.fsdp_modules(module):
            handle = unit._handle
            if handle is not None and handle.uses_sharded_strategy and not handle.needs_unshard():
                handle.reshard(True)


def written_by(folder: str | Path, pattern: str) -> int:
    """How many workers wrote the files `pattern` (with `{world}` and `{rank}`) in a folder; 0 if there are none.

    Raises:
        FileNotFoundError: some of them are missing.
    """
    name = re.compile(re.escape(pattern).replace(r"\{world\}", r"(\d+)").replace(r"\{rank\}", "0"))
    matches = (name.fullmatch(path.name) for path in Path(folder).glob("*"))
    workers = max((int(match[1]) for match in matches if match), default=0)
    for rank in range(workers):
        path = Path(folder, pattern.format(world=workers, rank=rank))
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file, of {workers} workers")
    return workers


def load_resharded(manager: Any, workers: int, local_path: str, **_: Any) -> None:
    """In place of verl's `FSDPCheckpointManager.load_checkpoint`, for a checkpoint that `workers` workers wrote.

    Random states are not restored: no training draws from them.
    """
    folder = Path(local_path)

    def read(kind: str, rank: int) -> dict[str, Any]:
        # Mapped, so that a worker reads only its rows. verl wrote these files itself, pickled.
        path = folder / f"{kind}_world_size_{workers}_rank_{rank}.pt"
        values: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
        return values

    parts = [read("model", rank) for rank in range(workers)]
    with torch.no_grad():
        for name, mine in manager.model.state_dict().items():
            olds = [part[name] for part in parts]
            if isinstance(mine, DTensor):
                mine.to_local().copy_(_rows_of(mine, olds))
            else:
                mine.copy_(olds[0])
    if manager.optimizer is not None:
        parts = [read("optim", rank) for rank in range(workers)]
        live = [parameter for group in manager.optimizer.param_groups for parameter in group["params"]]
        state = {
            index: {
                name: _like(live[index], [part["state"][index][name] for part in parts])
                if isinstance(value, DTensor)
                else value
                for name, value in entries.items()
            }
            for index, entries in parts[0]["state"].items()
        }
        manager.optimizer.load_state_dict({"state": state, "param_groups": parts[0]["param_groups"]})
    scheduler = read("extra_state", 0)["lr_scheduler"]
    if scheduler is not None and manager.lr_scheduler is not None:
        manager.lr_scheduler.load_state_dict(scheduler)


def load_shards_of(
    module: nn.Module,
    folder: str | Path,
    pattern: str,
    workers: int,
    concerns: Callable[[str], bool] | None = None,
) -> None:
    """Load parameters of which `workers` workers each wrote their rows as a safetensors file; `concerns` selects by name."""
    parts = [load_file(Path(folder, pattern.format(world=workers, rank=rank))) for rank in range(workers)]
    with torch.no_grad():
        for name, mine in module.named_parameters():
            if concerns is None or concerns(name):
                sharded = cast(DTensor, mine)
                sharded.to_local().copy_(_rows_of(sharded, [part[name] for part in parts]))


def _rows_of(mine: DTensor, olds: Sequence[Tensor]) -> Tensor:
    """This worker's rows of the tensor whose rows `olds` are, in order."""
    whole = torch.cat([old.to_local() if isinstance(old, DTensor) else old for old in olds])
    assert whole.shape == mine.shape, f"{tuple(whole.shape)} is not {tuple(mine.shape)}"
    mesh = mine.device_mesh
    chunks, rank = whole.chunk(mesh.size()), mesh.get_local_rank()
    return chunks[rank] if rank < len(chunks) else whole[:0]


def _like(parameter: DTensor, olds: Sequence[Tensor]) -> DTensor:
    """A moment of a parameter, distributed as the parameter is."""
    rows = _rows_of(parameter, olds).clone().to(parameter.to_local().device)
    mesh, places = parameter.device_mesh, parameter.placements
    return DTensor.from_local(
        rows, mesh, places, run_check=False, shape=parameter.shape, stride=parameter.stride()
    )
