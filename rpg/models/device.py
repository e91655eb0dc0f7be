"""The device a process computes on."""

from __future__ import annotations

import torch

from rpg.config.errors import ConfigError


def configure_device(device: str) -> None:
    """The same bits for the same seed on a CPU; a GPU has to be there.

    Raises:
        ConfigError: torch sees no such device.
    """
    if device == "cpu":
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads such memory
    elif why := missing(device):
        raise ConfigError(f"backend.device: {why}")


def missing(device: str) -> str:
    """Why a process cannot compute on `device`, and on what it can; empty where it can.

    `mps` is the GPU of a Mac.
    """
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if device not in there or there[device]():
        return ""
    what = {"cuda": "GPU", "mps": "Apple GPU (Metal)"}[device]
    accepted = ["'cpu'", *(f"'{name}'" for name, is_there in there.items() if is_there())]
    return f"'{device}', but torch sees no {what} here; accepted on this machine: {' or '.join(accepted)}"
