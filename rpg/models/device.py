"""The device a process computes on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils import deterministic

from rpg.config.errors import ConfigError


def configure_device(device: str) -> None:
    """Make a CPU give the same bits for the same seed; check that a GPU is available. Raises ConfigError: torch does not see
    this device.
    """
    if device == "cpu":
        torch.use_deterministic_algorithms(True)
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by a module class of torch's
    elif reason := missing(device):
        raise ConfigError(f"backend.device: {reason}")


def missing(device: str) -> str:
    """Why this process cannot compute on `device`, and which devices it can use; empty if it can.

    `mps` is the GPU of a Mac.
    """
    available: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
    }
    if device not in available or available[device]():
        return ""
    kind = {"cuda": "GPU", "mps": "Apple GPU (Metal)"}[device]
    accepted = ["'cpu'", *(f"'{name}'" for name, usable in available.items() if usable())]
    return f"'{device}', but torch sees no {kind} here; accepted on this machine: {' or '.join(accepted)}"
