"""The CPU as a verl platform. Ray schedules workers by a logical resource GPU:
`ray.init(num_gpus=N)`."""

from __future__ import annotations

import types
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase


def _no_op(*_args: Any, **_kwargs: Any) -> None:
    pass


def _device_module() -> types.ModuleType:
    """torch.cpu with what verl calls on torch.cuda: nothing to synchronise, no memory of its
    own."""
    no_ops = (
        "set_device synchronize empty_cache ipc_collect reset_peak_memory_stats "
        "set_per_process_memory_fraction"
    )
    sizes = "memory_allocated memory_reserved max_memory_allocated max_memory_reserved"
    module = types.ModuleType("verl_cpu.device")
    vars(module).update(
        {name: value for name, value in vars(torch.cpu).items() if not name.startswith("__")}
        | dict.fromkeys(no_ops.split(), _no_op)
        | dict.fromkeys(sizes.split(), lambda *_: 0),
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: torch.device("cpu"),
        get_device_name=lambda *_: "cpu",
        mem_get_info=lambda *_: (psutil.virtual_memory().available, psutil.virtual_memory().total),
        get_rng_state=lambda *_: torch.get_rng_state(),
        set_rng_state=lambda state, *_: torch.set_rng_state(state),
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
    )
    return module


class CPUPlatform(PlatformBase):
    """verl's contract of a platform; the methods are named by verl."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, **_: Any) -> bool:
        return False  # never detected: only VERL_PLATFORM=cpu chooses it

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    set_device = synchronize = set_allocator_settings = empty_cache = _no_op
    profiler_start = profiler_stop = cudart = _no_op

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, *_: Any, **__: Any) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> AbstractContextManager[None]:  # noqa: ARG002 (verl's signature)
        return nullcontext()

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, float]:
        return {"num_gpus": num_gpus}

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def rollout_env_vars(self) -> dict[str, str]:
        return {}
