"""`python .ci/lock.py`: write requirements.lock and requirements-torch.lock, each release with its
hashes.

The releases are those of constraints.txt, for what `make setup` installs. PyTorch and its CUDA are
in a file of their own, since a machine without a GPU takes another build of it, from another index.
The sets for GPUs and for vLLM on CPUs stay files of their own (constraints-gpu.txt,
constraints-vllm-cpu.txt): they want another torch. Needs uv and a network.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "local models math tasks orchestration dashboard studies verl dev".split()
TORCH = re.compile(r"(torch|triton|cuda-[\w-]+|nvidia-[\w-]+)==")
"""What a build of PyTorch for CPUs does without."""
HEADINGS = {
    "requirements.lock": "What `make setup` installs, but for PyTorch",
    "requirements-torch.lock": "PyTorch as PyPI has it, with CUDA on Linux",
}


def compiled() -> str:
    """What uv resolves, with hashes, for all systems and Pythons."""
    uv = runpy.run_path(str(ROOT / ".ci" / "install.py"))["find_uv"]()
    if uv is None:
        sys.exit("uv is needed: pip install uv")
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    options = ["--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    command = [uv, "pip", "compile", "pyproject.toml", *extras, "-c", "constraints.txt", *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout


def parted(text: str) -> dict[str, list[str]]:
    """File -> its entries: a requirement and its hashes, on several lines."""
    files: dict[str, list[str]] = {name: [] for name in HEADINGS}
    for entry in re.findall(r"^\S.*(?:\n    .*)*", text, re.M):
        name = "requirements-torch.lock" if TORCH.match(entry) else "requirements.lock"
        files[name].append(entry)
    return files


def main() -> None:
    """Write both files."""
    for name, entries in parted(compiled()).items():
        heading = (
            f"# {HEADINGS[name]}: written by `make lock` from pyproject.toml and constraints.txt."
        )
        (ROOT / name).write_text("\n".join([heading, *entries]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
