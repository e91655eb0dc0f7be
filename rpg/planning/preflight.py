"""Checks of the runs of a file before anything starts; all problems in one list."""

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from rpg.config.model import KNOWN_MODELS, has_packed_base, located
from rpg.config.run_spec import RunSpec
from rpg.config.task import FileTask, MathTask, is_name
from rpg.config.training import has_8bit_moments
from rpg.config.verl_keys import sections, unknown
from rpg.planning.gpu_estimate import Assumptions, problems_of
from rpg.planning.space import disk, memory, with_backend
from rpg.store.layout import Layout

REACH_SECONDS = 3.0
_HUB = re.compile(r"[\w.-]+/[\w.-]+")


def mistakes(specs: Sequence[RunSpec], layout: Layout) -> list[str]:
    """What a run file names and is not there: files and models of this machine (or empty ones),
    settings of verl."""
    lines: list[str] = []
    for spec in specs:
        lines += _files(spec)
        lines += _models(spec, layout)
    lines += unknown_settings(specs)
    return list(dict.fromkeys(lines))


def unknown_settings(specs: Sequence[RunSpec]) -> list[str]:
    """What is wrong with the settings of verl itself (rpg.config.verl_keys)."""
    lines = [
        line for spec in specs if spec.backend.type == "verl" for line in unknown(spec.backend.verl)
    ]
    return list(dict.fromkeys(lines))


def unchecked(specs: Sequence[RunSpec]) -> list[str]:
    """A line if there are settings of verl and no verl to compare them with."""
    keys = [key for spec in specs if spec.backend.type == "verl" for key in spec.backend.verl]
    if not keys or sections():
        return []
    return [f"backend.verl: {keys[0]}: could not be checked, since verl is not installed here"]


def preflight(specs: Sequence[RunSpec], layout: Layout) -> list[str]:
    """All problems that can be found without reading data, loading a model or using the network."""
    lines = mistakes(specs, layout)
    lines += missing_packages(specs)
    lines += unchecked(specs)
    lines += _folder(specs, layout)
    lines += _memory(specs)
    return list(dict.fromkeys(lines))


def unreachable(specs: Sequence[RunSpec]) -> list[str]:
    """Addresses of Ray clusters and of the Prefect server that the runs of a file need and that do
    not answer."""
    addresses: dict[str, str] = {}
    for spec in specs:
        ray = getattr(spec.backend, "ray", None)
        if ray is not None and ray.type == "address":
            addresses[ray.address] = "backend.ray.address"
        if spec.backend.type == "local" and spec.backend.place.type == "ray":
            addresses[spec.backend.place.address] = "backend.place.address"
        if spec.evaluation.place.type == "ray":
            addresses[spec.evaluation.place.address] = "evaluation.place.address"
    server = os.environ.get("PREFECT_API_URL")
    if server:
        addresses[server] = "PREFECT_API_URL"
    lines = []
    for address, field in addresses.items():
        if address == "auto":  # Ray finds it
            continue
        url = urlsplit(address if "://" in address else f"//{address}")
        try:
            port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
            socket.create_connection((url.hostname or "", port), timeout=REACH_SECONDS).close()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            lines.append(f"{field}: no answer from {address} ({why})")
    return lines


def _files(spec: RunSpec) -> list[str]:
    files: list[tuple[str, Path]] = []
    if isinstance(spec.task, FileTask):
        files = [("task.train", source.path) for source in spec.task.train if source.path]
        files += [
            (f"task.benchmarks.{name}", s.path)
            for name, s in spec.task.benchmarks.items()
            if s.path
        ]
    elif isinstance(spec.task, MathTask) and not is_name(spec.task.train):
        files = [("task.train", Path(spec.task.train))]
    lines = []
    for field, path in files:
        if not path.exists():
            lines.append(f"{field}: {path}: no such file")
        elif not path.is_file():
            lines.append(f"{field}: {path}: is a folder; expected a file of problems")
        elif not path.stat().st_size:
            lines.append(f"{field}: {path}: the file is empty")
    return lines


def _models(spec: RunSpec, layout: Layout) -> list[str]:
    own = spec.model.path if spec.model.type == "pretrained" else None
    named = {"model.path": own, "algorithm.reference.path": spec.algorithm.teacher_path}
    return [
        line
        for field, path in named.items()
        if path is not None
        for line in _model(layout, field, path)
    ]


def _model(layout: Layout, field: str, named: str) -> list[str]:
    path = located(named, layout.home) or Path(named).expanduser()
    if path.is_dir():
        needed = {
            "config.json": "config.json",
            "*.safetensors": "*.safetensors",
            "tokenizer*": "a tokenizer",
        }
        lacks = ", ".join(name for pattern, name in needed.items() if not any(path.glob(pattern)))
        return [f"{field}: {path} is not a Hugging Face model: it lacks {lacks}"] if lacks else []
    if path.suffix == ".gguf" and path.is_file():
        advice = (
            f"convert it first: rpg model {shlex.quote(str(path))}, then name it "
            f"{path.stem.lower()}"
        )
        return [f"{field}: {path} is a GGUF file; {advice}"]
    if path.exists():
        return [f"{field}: {path} is a file; expected the folder of a Hugging Face model"]
    if named in KNOWN_MODELS:
        return []  # fetched when it is first needed
    if _HUB.fullmatch(named) and not named.startswith("."):
        return []  # may be on the hub, which is not contacted here
    return [
        f"{field}: {path}: no such folder; expected one, a known or stored model "
        f"({', '.join(KNOWN_MODELS)}; see "
        "rpg model), or an id of the hub such as Qwen/Qwen3-0.6B"
    ]


def missing_packages(specs: Sequence[RunSpec]) -> list[str]:
    """Packages that the runs need here and that are not installed, a line each."""
    gyms = any(spec.task.type == "reasoning_gym" for spec in specs)
    required = {"reasoning_gym": "task.type: reasoning_gym"} if gyms else {}
    for spec in specs:
        required |= _optional_packages(spec)
        if spec.backend.type == "verl":
            required |= {"ray": "backend.type: verl", "verl": "backend.type: verl"}
            server = spec.backend.rollout.type
            if server != "huggingface":
                required[server] = f"backend.rollout.type: {server}"
            if spec.backend.device == "cpu":
                required["verl_cpu"] = "backend.device: cpu"
            if spec.backend.device == "cuda" and spec.backend.sequence_parallel > 1:
                required["flash_attn"] = "backend.sequence_parallel"
        if spec.backend.type == "local":
            required["transformers"] = "backend.type: local"
            if spec.backend.place.type == "ray":
                required["ray"] = "backend.place.type: ray"
        evaluator = spec.evaluation.place.type == "here" and spec.evaluation.engine.type
        engines = {"rollout": spec.rollout.engine.type, "evaluation": evaluator}
        required |= {
            kind: f"{name}.engine.type: {kind}" for name, kind in engines.items() if kind == "vllm"
        }
    return [
        f"{field} needs the package {name}, which is not installed"
        for name, field in required.items()
        if importlib.util.find_spec(name) is None
    ]


def _optional_packages(spec: RunSpec) -> dict[str, str]:
    """What the embedded trainer needs for adapters and quantized tensors: package -> field."""
    required = {}
    if spec.model.lora and spec.backend.type == "local":
        required["peft"] = "model.lora"
    if has_8bit_moments(spec.training.optimizer):
        required["bitsandbytes"] = "training.optimizer.moments"
    if has_packed_base(spec.model):
        required["bitsandbytes"] = "model.lora.base"
    return required


def free_memory() -> float:
    """Bytes available to a new process on this machine or in this container."""
    return min(float(psutil.virtual_memory().available), total_memory())


def total_memory() -> float:
    """Bytes of this machine's or this container's memory."""
    total = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):  # no limit, or not in this file
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return float(total)


def _memory(specs: Sequence[RunSpec]) -> list[str]:
    """The memory of a single training of the embedded trainer on this machine's CPU."""
    on_cpu = [
        spec for spec in specs if spec.backend.device == "cpu" and spec.backend.workers_here()
    ]
    needs = [(need, spec) for spec in on_cpu if (need := memory(spec, total_memory()))]
    if not needs:
        return []
    (need, spec) = max(needs, key=lambda pair: pair[0].most)
    free = free_memory()
    if need.most < free:
        return []
    line = (
        f"memory: a training takes about {need.most / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
    )
    less = memory(with_backend(spec, gradient_checkpointing=True), total_memory())
    if less is not None and less.most < need.most:
        size = f"{less.most / 1e9:.1f} GB with identical results"
        line += f"; with backend.gradient_checkpointing: true, {size}"
    return [line]


def _folder(specs: Sequence[RunSpec], layout: Layout) -> list[str]:
    existing = next(path for path in (layout.home, *layout.home.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return [f"{layout.home}: cannot be written; set RPG_HOME or --home to a writable folder"]
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return [f"{layout.home}: {error.strerror}; set RPG_HOME or --home to a writable folder"]
    needs = [disk(spec, sum(problems_of(spec, Assumptions()))) for spec in specs]
    need = sum(usage.after for usage in needs if usage)
    free = shutil.disk_usage(existing).free
    if need > free:
        return [
            f"{layout.home}: {free / 1e6:,.0f} MB are free, and the runs will leave about "
            f"{need / 1e6:,.0f} MB: free "
            "some space (rpg gc), or keep fewer checkpoints (training.keep_checkpoints: last)"
        ]
    return []
