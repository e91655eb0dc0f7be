"""The device a process computes on."""

import torch
from torch.utils import deterministic

from rpg.config.errors import ConfigError


def configure_device(device: str) -> None:
    """Make a CPU give the same bits for the same seed; check that a GPU is available. Raises
    ConfigError: torch does not see this device.
    """
    if device == "cpu":
        torch.use_deterministic_algorithms(True)
        deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by a module class of torch's
    elif reason := missing(device):
        raise ConfigError(f"backend.device: {reason}")


def missing(device: str) -> str:
    """Why this process cannot compute on `device`; empty if it can."""
    available = device != "cuda" or torch.cuda.is_available()
    return (
        "" if available else "'cuda', but torch sees no GPU here; accepted on this machine: 'cpu'"
    )
