"""What is wrong with the runs of a file, found before anything starts: one list of all of it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from rpg.config.model import PretrainedModel, lora_of
from rpg.config.pretrained import KNOWN_MODELS, located
from rpg.config.run_spec import RunSpec
from rpg.config.task import ChainTask, FileTask, MathTask, is_name
from rpg.config.verl_keys import unknown
from rpg.planning.disk import disk
from rpg.planning.gpu_estimate import Assumptions, problems_of
from rpg.planning.memory import memory, with_layers_again
from rpg.store.layout import Layout

REACH_SECONDS = 3.0
_HUB = re.compile(r"[\w.-]+/[\w.-]+")


def wrong_paths(specs: Sequence[RunSpec], layout: Layout) -> list[str]:
    """Files and models on this machine that are named and are not there, or hold nothing."""
    found = (line for spec in specs for line in (*_files(spec), *_model(spec, layout)))
    return list(dict.fromkeys(found))


def preflight(specs: Sequence[RunSpec], layout: Layout) -> list[str]:
    """All that can be known to be wrong without reading data, loading a model or asking a network."""
    return list(
        dict.fromkeys(
            [
                *wrong_paths(specs, layout),
                *_lengths(specs),
                *_packages(specs),
                *_of_verl(specs),
                *_folder(specs, layout),
                *_memory(specs),
            ]
        )
    )


def unreachable(specs: Sequence[RunSpec]) -> list[str]:
    """Ports that the runs of a file need and at which nobody listens: of Ray clusters, and of the Prefect server."""
    named: dict[str, str] = {}
    for spec in specs:
        ray = getattr(spec.backend, "ray", None)
        if ray is not None and ray.type in ("job", "address"):
            named[ray.address] = "backend.ray.address"
        if spec.backend.type == "local" and spec.backend.place.type == "ray":
            named[spec.backend.place.address] = "backend.place.address"
        if spec.evaluation.place.type == "ray":
            named[spec.evaluation.place.address] = "evaluation.place.address"
    if url := os.environ.get("PREFECT_API_URL"):
        named[url] = "PREFECT_API_URL"
    lines = []
    for address, field in named.items():
        if address == "auto":  # Ray finds it
            continue
        url = urlsplit(address if "://" in address else f"//{address}")
        try:
            port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
            socket.create_connection((url.hostname or "", port), timeout=REACH_SECONDS).close()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            lines.append(f"{field}: nobody answers at {address} ({why})")
    return lines


def _files(spec: RunSpec) -> list[str]:
    if isinstance(spec.task, FileTask):
        named = [("task.train", source.path) for source in spec.task.train if source.path]
        named += [(f"task.benchmarks.{name}", s.path) for name, s in spec.task.benchmarks.items() if s.path]
    elif isinstance(spec.task, MathTask) and not is_name(spec.task.train):
        named = [("task.train", Path(spec.task.train))]
    else:
        return []
    lines = []
    for field, path in named:
        if not path.exists():
            lines.append(f"{field}: {path}: no such file")
        elif not path.is_file():
            lines.append(f"{field}: {path}: is a folder; expected a file of problems")
        elif not path.stat().st_size:
            lines.append(f"{field}: {path}: the file is empty")
    return lines


def _model(spec: RunSpec, layout: Layout) -> list[str]:
    if not isinstance(spec.model, PretrainedModel):
        return []
    if spec.backend.type == "verl" and spec.backend.ray.type == "job":
        return []  # it is the cluster's file system that counts
    path = located(spec.model.path, layout.home) or Path(spec.model.path).expanduser()
    if path.is_dir():
        missing = [] if (path / "config.json").is_file() else ["config.json"]
        missing += [] if any(path.glob("*.safetensors")) else ["*.safetensors"]
        missing += [] if any(path.glob("tokenizer*")) else ["a tokenizer"]
        return (
            [f"model.path: {path} is no Hugging Face model: it lacks {', '.join(missing)}"] if missing else []
        )
    if path.suffix == ".gguf" and path.is_file():
        return [
            f"model.path: {path} is a GGUF file; convert it first: rpg model {path}, then name it {path.stem.lower()}"
        ]
    if path.exists():
        return [f"model.path: {path} is a file; expected the folder of a Hugging Face model"]
    if spec.model.path in KNOWN_MODELS:
        return []  # fetched when it is first needed
    if _HUB.fullmatch(spec.model.path) and not spec.model.path.startswith("."):
        return []  # may be on the hub, which is not asked here
    return [
        f"model.path: {path}: no such folder; expected one, a model that is known or kept here ({', '.join(KNOWN_MODELS)}: "
        "rpg model), or an id of the hub such as Qwen/Qwen3-0.6B"
    ]


def _lengths(specs: Sequence[RunSpec]) -> list[str]:
    """Of the chain task, whose longest answer is known: a limit that cuts off every right response."""
    lines = []
    for spec in specs:
        if isinstance(spec.task, ChainTask):
            operations = max(spec.task.tiers.values())
            need = 4 * operations + 3  # a step is `b+70`, the end `#5` and the end of the sequence
            if spec.rollout.max_response_tokens < need:
                lines.append(
                    f"rollout.max_response_tokens: {spec.rollout.max_response_tokens} cuts off every response to the "
                    f"longest problems of task.tiers ({operations} operations, about {need} tokens)"
                )
    return lines


def _packages(specs: Sequence[RunSpec]) -> list[str]:
    wanted: dict[str, str] = {}
    for spec in specs:
        if lora_of(spec.model) and spec.backend.type == "local":
            wanted["peft"] = "model.lora"
        if spec.backend.type == "verl" and spec.backend.ray.type != "job":
            wanted |= {"ray": "backend.type: verl", "verl": "backend.type: verl"}
            if (server := spec.backend.rollout.type) != "huggingface":
                wanted[server] = f"backend.rollout.type: {server}"
            if spec.backend.device == "cuda" and spec.backend.sequence_parallel > 1:
                wanted["flash_attn"] = "backend.sequence_parallel"
        if spec.backend.type == "local":
            wanted["transformers"] = "backend.type: local"
            if spec.backend.place.type == "ray":
                wanted["ray"] = "backend.place.type: ray"
        if spec.evaluation.engine.type == "vllm" and spec.evaluation.place.type == "here":
            wanted["vllm"] = "evaluation.engine.type: vllm"
    return [
        f"{field} needs the package {name}, which is not installed"
        for name, field in wanted.items()
        if importlib.util.find_spec(name) is None
    ]


def _of_verl(specs: Sequence[RunSpec]) -> list[str]:
    """Settings of verl itself that verl does not know."""
    return [line for spec in specs if spec.backend.type == "verl" for line in unknown(spec.backend.verl)]


def free_memory() -> float:
    """Bytes that a process of this machine, or of this container, can have."""
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):  # it has no limit, or the system says it elsewhere
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return float(free)


def _memory(specs: Sequence[RunSpec]) -> list[str]:
    """Of the embedded trainer on a CPU of this machine, one training alone."""
    here = [spec for spec in specs if spec.backend.device == "cpu" and spec.backend.workers_here()]
    needs = [(need, spec) for spec in here if (need := memory(spec))]
    if not needs:
        return []
    (need, spec), free = max(needs, key=lambda one: one[0].most), free_memory()
    if need.most < free:
        return []
    line = f"memory: a training takes about {need.most / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
    again = memory(with_layers_again(spec))
    if again is not None and again.most < need.most:
        line += (
            f"; with backend.gradient_checkpointing: true it is {again.most / 1e9:.1f} GB, and the same bits"
        )
    return [line]


def _folder(specs: Sequence[RunSpec], layout: Layout) -> list[str]:
    there = next(path for path in (layout.home, *layout.home.parents) if path.exists())
    if not os.access(there, os.W_OK):
        return [f"{layout.home}: cannot be written; set RPG_HOME or --home to a writable folder"]
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return [f"{layout.home}: {error.strerror}; set RPG_HOME or --home to a writable folder"]
    needs = [disk(spec, problems_of(spec, Assumptions())) for spec in specs]
    need, free = sum(one.after for one in needs if one), shutil.disk_usage(there).free
    if need > free:
        return [
            f"{layout.home}: {free / 1e9:.1f} GB are free, and the runs will leave about {need / 1e9:.1f} GB: free some "
            "(rpg gc), or keep fewer checkpoints (training.keep_checkpoints: last)"
        ]
    return []
