"""The CPU as a verl platform. Ray schedules workers by a logical resource GPU: `ray.init(num_gpus=N)`."""

from __future__ import annotations

import types
from contextlib import nullcontext
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    pass


def _device_module() -> types.ModuleType:
    """torch.cpu with what verl calls on torch.cuda: nothing to synchronise, no memory of its own."""
    module = types.ModuleType("rpg.backends.verl.cpu.device")
    for name in dir(torch.cpu):
        if not name.startswith("__"):
            setattr(module, name, getattr(torch.cpu, name))
    for name in (
        *("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"),
        "set_per_process_memory_fraction",
    ):
        setattr(module, name, _nothing)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *_: 0)
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: torch.device("cpu")
    module.get_device_name = lambda *_: "cpu"
    module.mem_get_info = lambda *_: (psutil.virtual_memory().available, psutil.virtual_memory().total)
    module.get_rng_state = lambda *_: torch.get_rng_state()
    module.set_rng_state = lambda state, *_: torch.set_rng_state(state)
    module.manual_seed = module.manual_seed_all = lambda seed: torch.manual_seed(seed)
    return module


class CPUPlatform(PlatformBase):
    """verl's contract of a platform; the methods are named by verl."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    @classmethod
    def install(cls) -> None:
        PlatformRegistry.register(platform="cpu")(cls)

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # never found by itself: only VERL_PLATFORM=cpu chooses it

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str):
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
