"""Offloading of saved activations: from a GPU to the host's memory, from a CPU's memory to a file.

A tensor comes back with the same values, strides and alignment, so every kernel of the backward pass does the same:
gradients are the same bits. Smaller micro-batches save memory too, but their sums round differently.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

SMALLEST = 2**14
"""Bytes; smaller tensors are not offloaded."""
_ALIGNED = 64
"""Bytes; PyTorch's alignment on a CPU. Kernels may depend on where a tensor starts relative to it."""


@contextmanager
def offloaded(model: nn.Module, folder: Path | None) -> Iterator[None]:
    """In this context, tensors that autograd saves are offloaded; those on a CPU to a file in `folder`.

    The backward pass may come later. Weights, and views of them, are not moved.
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
    """The memory from a tensor's first to its last element, including gaps between strides; not a copy."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((length,), (1,), tensor.storage_offset())


def _to_host(tensor: Tensor) -> Callable[[], Tensor]:
    size, stride, device = tensor.shape, tensor.stride(), tensor.device
    kept = _span(tensor).to("cpu", copy=True)
    return lambda: kept.to(device).as_strided(size, stride)


def _to_file(folder: Path | None) -> Callable[[Tensor], Callable[[], Tensor]]:
    """Append tensors to an anonymous file, which is deleted with the last tensor in it."""
    file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (outlives this function)
    end = 0

    def keep(tensor: Tensor) -> Callable[[], Tensor]:
        nonlocal end
        size, stride, dtype = tensor.shape, tensor.stride(), tensor.dtype
        into = tensor.data_ptr() % _ALIGNED // tensor.element_size()
        span = _span(tensor)
        length, at = len(span), end
        end += length * dtype.itemsize
        _whole(lambda part, place: os.pwrite(file.fileno(), part, place), _bytes(span), at)
        del span  # it would keep the memory allocated

        def back() -> Tensor:
            room = torch.empty(into + length, dtype=dtype)
            target = _bytes(room)[into * dtype.itemsize :]
            _whole(lambda part, place: os.preadv(file.fileno(), [part], place), target, at)
            return room.as_strided(size, stride, into)

        return back

    return keep


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.view(torch.uint8).numpy().data


def _whole(step: Callable[[memoryview, int], int], data: memoryview, at: int) -> None:
    """Call `step` until all of `data` is written or read; one call may handle only a part."""
    done = 0
    while done < len(data):
        count = step(data[done:], at + done)
        if not count:
            raise OSError("the file with the offloaded activations is too short")
        done += count
