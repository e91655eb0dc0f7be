"""The device a process computes on."""

from __future__ import annotations

import torch

from rpg.config.errors import ConfigError


def configure_device(device: str) -> None:
    """The same bits for the same seed on a CPU; a GPU has to be there.

    Raises:
        ConfigError: torch sees no GPU.
    """
    if device == "cpu":
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads such memory
    elif not torch.cuda.is_available():
        raise ConfigError(
            "backend.device: 'cuda', but torch sees no GPU here; accepted on this machine: 'cpu'"
        )
