"""`python .ci/lock.py`: write requirements*.lock, each release with its hashes.

The releases of requirements.lock are those of constraints.txt, for what `make setup` installs.
PyTorch and its CUDA are in requirements-torch.lock, since a machine without a GPU takes another
build of it, from another index. requirements-gpu.lock is what the image installs, from
constraints-gpu.txt, which wants another torch. vLLM on CPUs has no lock. Needs uv and a network.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "local models math tasks orchestration dashboard studies quantized verl dev".split()
GPU_EXTRAS = "local models math orchestration dashboard verl vllm".split()
GPU_IMAGE = ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_35"]
"""The Python of the image's base, and a system as old as its wheels allow."""
TORCH = re.compile(r"(torch|triton|cuda-[\w-]+|nvidia-[\w-]+)==")
"""What a build of PyTorch for CPUs does without."""
HEADINGS = {
    "requirements.lock": (
        "# What `make setup` installs, but for PyTorch: written by `make lock` from pyproject.toml "
        "and constraints.txt."
    ),
    "requirements-torch.lock": (
        "# PyTorch as PyPI has it, with CUDA on Linux: written by `make lock` from pyproject.toml "
        "and constraints.txt."
    ),
    "requirements-gpu.lock": (
        "# What the image for GPUs installs: written by `make lock` from pyproject.toml and "
        "constraints-gpu.txt."
    ),
}


def compiled(extras: list[str], constraints: str, where: list[str]) -> str:
    """What uv resolves, with hashes; `where` are its options for systems and Pythons."""
    uv = runpy.run_path(str(ROOT / ".ci" / "install.py"))["find_uv"]()
    if uv is None:
        sys.exit("uv is needed: pip install uv")
    command = [uv, "pip", "compile", "pyproject.toml", "-c", constraints, *where]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    for extra in extras:
        command += ["--extra", extra]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout


def entries(text: str) -> list[str]:
    """Each requirement with its hashes, on several lines."""
    return re.findall(r"^\S.*(?:\n    .*)*", text, re.M)


def parted(text: str) -> dict[str, list[str]]:
    """File -> its entries, PyTorch apart from all else."""
    files: dict[str, list[str]] = {"requirements.lock": [], "requirements-torch.lock": []}
    for entry in entries(text):
        name = "requirements-torch.lock" if TORCH.match(entry) else "requirements.lock"
        files[name].append(entry)
    return files


def main() -> None:
    """Write all files."""
    files = parted(compiled(EXTRAS, "constraints.txt", ["--universal"]))
    files["requirements-gpu.lock"] = entries(compiled(GPU_EXTRAS, "constraints-gpu.txt", GPU_IMAGE))
    for name, lines in files.items():
        (ROOT / name).write_text("\n".join([HEADINGS[name], *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
