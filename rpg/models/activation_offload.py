"""What a forward pass keeps for the backward pass, kept elsewhere than in the memory that is short.

On a GPU that is the memory of the host, on a CPU a file. A tensor comes back with the same values, strides and alignment,
so every kernel of the backward pass does what it would have done: gradients are the same to the bit. This is what tells
it from smaller micro-batches, whose sums round differently.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

SMALLEST = 2**14
"""Bytes of a tensor that is worth the way."""
_ALIGNED = 64
"""Bytes; to this, PyTorch aligns what it allocates on a CPU, and kernels may look at where in it a tensor begins."""


@contextmanager
def offloaded(model: nn.Module, folder: Path | None) -> Iterator[None]:
    """Within it, tensors that autograd saves are kept elsewhere; a file is made in `folder` where they are on a CPU.

    The backward pass may be run later. Weights, and views of them, stay where they are.
    """
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    on_cpu = next(model.parameters()).device.type == "cpu"
    keep = _to_file(folder) if on_cpu else _to_host

    def pack(tensor: Tensor) -> Callable[[], Tensor]:
        small = tensor.numel() * tensor.element_size() < SMALLEST
        if small or tensor.is_sparse or tensor.untyped_storage().data_ptr() in weights:
            return lambda: tensor
        return keep(tensor)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda back: back()):
        yield


def _span(tensor: Tensor) -> Tensor:
    """All of the memory between a tensor's first and last element, gaps of its strides included; no copy."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((length,), (1,), tensor.storage_offset())


def _to_host(tensor: Tensor) -> Callable[[], Tensor]:
    size, stride, device = tensor.shape, tensor.stride(), tensor.device
    kept = _span(tensor).to("cpu", copy=True)
    return lambda: kept.to(device).as_strided(size, stride)


def _to_file(folder: Path | None) -> Callable[[Tensor], Callable[[], Tensor]]:
    """Behind each other into a file without a name, which is gone with the last tensor that lies in it."""
    file = tempfile.TemporaryFile(dir=folder, buffering=0)
    end = 0

    def keep(tensor: Tensor) -> Callable[[], Tensor]:
        nonlocal end
        size, stride, dtype = tensor.shape, tensor.stride(), tensor.dtype
        into = tensor.data_ptr() % _ALIGNED // tensor.element_size()
        span = _span(tensor)
        length, at = len(span), end
        end += length * dtype.itemsize
        _whole(lambda part, place: os.pwrite(file.fileno(), part, place), _bytes(span), at)
        del span  # or the memory would not be free

        def back() -> Tensor:
            room = torch.empty(into + length, dtype=dtype)
            target = _bytes(room)[into * dtype.itemsize :]
            _whole(lambda part, place: os.preadv(file.fileno(), [part], place), target, at)
            return room.as_strided(size, stride, into)

        return back

    return keep


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.view(torch.uint8).numpy())


def _whole(step: Callable[[memoryview, int], int], data: memoryview, at: int) -> None:
    """Call `step` until all of `data` is written or read; a call may do a part only."""
    done = 0
    while done < len(data):
        count = step(data[done:], at + done)
        if not count:
            raise OSError("the file of offloaded activations ends early")
        done += count
