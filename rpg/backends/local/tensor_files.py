"""Safetensors files with the digest of what was written, taken from memory: a checkpoint of some
gigabytes is not read again for it."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rpg.store.checkpoints import digest


def save_tensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> dict[str, Any]:
    """Write a file of tensors, and return its size and digest as `rpg.store.checkpoints.digest`
    does. Raises OSError, SafetensorError: it cannot be written."""
    save_file(dict(tensors), path, metadata=metadata)
    if any(tensor.device.type != "cpu" for tensor in tensors.values()):
        return digest(path)  # reading the file is cheaper than a second copy from the GPU
    return _digest_in_memory(tensors, path)


def _digest_in_memory(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    # The file: the header's length in eight bytes, the header, then the tensors without gaps.
    with path.open("rb") as file:
        length = file.read(8)
        header = file.read(int.from_bytes(length, "little"))
    offsets = {
        name: entry["data_offsets"]
        for name, entry in json.loads(header).items()
        if name != "__metadata__"
    }
    hashed = hashlib.sha256(length + header)
    size = len(length) + len(header)
    for name in sorted(offsets, key=offsets.__getitem__):
        content = tensors[name].detach().reshape(-1).view(torch.uint8)
        hashed.update(content.numpy().data)
        size += content.numel()
    return {"bytes": size, "sha256": hashed.hexdigest()}
