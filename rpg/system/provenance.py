"""What a training is computed with: the source files it imports, the packages they use, and the
machine.

A commit says too much (it changes with the documentation) and too little (files that are edited but
not committed, an installed copy). What can change a training's numbers is the source that its
process has imported.
"""

import contextlib
import hashlib
import os
import platform
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
"""The folder that the package `rpg` lies in: a checkout, or site-packages."""

PINS = (
    "python",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "schedulefree",
    "math-verify",
    "sympy",
    "verl",
    "ray",
    "vllm",
)
"""Packages that a training's numbers depend on. Ours is not among them: its source files say more
than a version."""
_OTHERS = ("rpg-lab", "prefect", "duckdb", "pandas", "scipy")
_EMBEDDED = ("torch", "transformers", "tokenizers", "numpy", "schedulefree", "math-verify", "sympy")

_BESIDE = (
    "rpg/system/fork_server/",
    "rpg/evaluation/",
    "rpg/report/",
    "rpg/planning/",
    "rpg/cli/",
    "flows/",
    "dashboard/",
)
"""Rooms that no training uses; a process that is forked (rpg.system.fork_server) has loaded them
all the same."""

Sources = dict[str, str]
"""File -> digest of its text; files below ROOT by their path relative to it, others by their
absolute path."""


def loaded() -> Sources:
    """The Python files that this process has imported so far: ours, and those of no installed
    package (a user's own). A file keeps the digest that it has when it is first seen here, in this
    process and those forked from it."""
    digests = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (
            file
            and file.endswith(".py")
            and (name.partition(".")[0] == "rpg" or not _installed(file))
        ):
            digests[_name(file)] = _digest(Path(file))
    return {
        name: digest for name, digest in sorted(digests.items()) if not name.startswith(_BESIDE)
    }


def below(*packages: str) -> Sources:
    """All files of some of our packages, e.g. `rpg.losses`: for what other processes compute
    with."""
    files = [
        file for package in packages for file in (ROOT / Path(*package.split("."))).rglob("*.py")
    ]
    return dict(sorted((_name(str(file)), _digest(file)) for file in files))


def code(sources: Mapping[str, str]) -> str:
    """One digest of all files, 8 hexadecimal digits."""
    lines = "".join(f"{name}\0{digest}\n" for name, digest in sorted(sources.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:8]


def changed(sources: Mapping[str, str]) -> list[str]:
    """The files that have changed since, or are gone."""
    return [name for name, digest in sources.items() if _now(name) != digest]


def record(sources: Sources) -> dict[str, Any]:
    """What is kept about an attempt at a training: {code, sources, versions, machine, git_revision,
    time}."""
    return {
        "code": code(sources),
        "sources": sources,
        "versions": {name: version for name, version in versions().items() if name in PINS},
        "machine": machine(),
        "git_revision": git_revision(),
        "time": time.time(),
    }


@cache
def versions() -> dict[str, str]:
    """Installed versions of what a run's numbers depend on, of this package, and of what stores the
    numbers."""
    installed = {"python": platform.python_version()}
    for name in (*PINS[1:], *_OTHERS):
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def embedded() -> dict[str, str]:
    """Versions of what the embedded trainer computes with, without their builds (`+cpu`,
    `+cu128`)."""
    return {
        name: version.partition("+")[0] for name, version in versions().items() if name in _EMBEDDED
    }


@cache
def git_revision() -> str | None:
    """Commit of the source tree, with `+` when tracked files differ from it; None outside a
    checkout."""
    if not (ROOT / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(ROOT)]
        commit = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, check=True, timeout=10
        )
        dirty = subprocess.run(
            [*git, "diff", "--quiet", "HEAD"], capture_output=True, timeout=30
        ).returncode
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.decode().strip() + ("+" if dirty else "")


@cache
def machine() -> dict[str, Any]:
    """This machine: host name, system, processor, cores, and the GPU where this process uses
    one."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        processor = next(models, processor)
    description: dict[str, Any] = {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor,
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        description["gpu"] = torch.cuda.get_device_name()
    return description


def _name(file: str) -> str:
    path = Path(file).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def _now(name: str) -> str:
    path = ROOT / name  # an absolute path stays what it is
    try:
        stat = path.stat()
    except OSError:
        return ""
    return _digest(path, stat.st_mtime_ns, stat.st_size)


@cache
def _digest(path: Path, *_state: int) -> str:
    """Of a file as it is when it is first asked for in this state; without one, for good: what is
    imported stays."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError:
        return ""


@cache
def _packages() -> tuple[str, ...]:
    paths = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return tuple(f"{os.path.realpath(path)}{os.sep}" for path in paths)


@cache
def _installed(file: str) -> bool:
    """Whether a file belongs to Python itself or to an installed package: those are known by their
    version."""
    path = os.path.realpath(file)
    return path.startswith(_packages()) or "site-packages" in path or "dist-packages" in path
