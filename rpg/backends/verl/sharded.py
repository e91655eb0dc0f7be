"""Weights of one FSDP model into another of the same shape, shard by shard. Needs torch only."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """The weights of one FSDP module into another of the same model, whatever device the shards are on."""
    let_go(source)
    load_shards(target, dict(shards(source)))


def load_shards(module: nn.Module, values: dict[str, Tensor]) -> None:
    """Put in what :func:`shards` gave on as many workers; the next forward pass uses it."""
    let_go(module)
    with torch.no_grad():
        for name, value in shards(module):
            value.copy_(values[name])


def shards(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, this worker's part) of every parameter."""
    for name, parameter in module.named_parameters():
        yield name, parameter.to_local() if hasattr(parameter, "to_local") else parameter


def let_go(module: nn.Module) -> None:
    """Have FSDP1 forget the whole weights that it has gathered.

    After a forward pass without gradients its root unit stays gathered: what is written into its shard would be read by
    no later pass. (verl does the same, but only with several GPUs along `fsdp_size`:
    verl/workers/engine/fsdp/transformer_impl.py:1117.) FSDP2 gathers anew by itself.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel

    if isinstance(module, FullyShardedDataParallel):
        for unit in FullyShardedDataParallel.fsdp_modules(module):
            handle = unit._handle
            if handle is not None and handle.uses_sharded_strategy and not handle.needs_unshard():
                handle.reshard(True)
