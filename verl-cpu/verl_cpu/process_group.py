"""Process groups of torch on a CPU."""

from __future__ import annotations

import functools
import ipaddress
import os
import socket
from datetime import timedelta
from typing import Any

import torch.distributed
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # torch re-exports them without saying so


def install() -> None:
    """Replace verl's way to make the process group of its workers.

    verl asks torch for one backend per device, `cpu:gloo,<device>:<backend>`, and torch refuses the
    CPU named twice. And no other machine is to reach the workers of this one: torch's own store
    listens on every interface.
    """
    from verl.utils import distributed  # noqa: PLC0415 (it looks the platform up, which has to be registered)

    original = distributed.initialize_global_process_group_ray

    @functools.wraps(original)
    def with_gloo(timeout_second: float | None = None, backend: str | None = None) -> None:
        if torch.distributed.is_initialized() or not _is_loopback(
            os.environ.get("MASTER_ADDR", "")
        ):
            original(timeout_second, backend or "gloo")
            return
        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        store = loopback_store(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), rank, size
        )
        timeout = None if timeout_second is None else timedelta(seconds=timeout_second)
        torch.distributed.init_process_group(
            backend or "gloo", store=store, rank=rank, world_size=size, timeout=timeout
        )

    distributed.initialize_global_process_group_ray = with_gloo


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def loopback_store(host: str, port: int, rank: int, size: int) -> Any:
    """What `init_method="env://"` gives, but rank 0 listens on `host` alone."""
    listen: dict[str, Any] = {}
    if rank == 0:
        listen["master_listen_fd"] = socket.create_server((host, port)).detach()
    store = TCPStore(host, port, size, rank == 0, multi_tenant=False, use_libuv=True, **listen)
    return PrefixStore("default_pg", store)
