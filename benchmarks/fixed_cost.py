"""What `rpg train` costs besides training: processor seconds of a run of one step, all its
processes together.

    python -m benchmarks.fixed_cost

A first run fills the cache (data, warm start, the Prefect server's database, bytecode); a second
one, with another learning rate, is measured: user and system time of the command and of everything
it started, by the kernel's account, and about how much of it each process took. Another seed would
learn a warm start of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

WITHOUT_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Environment variable: with it, every process of a checkout compiles our source files again."""
STEPS = ["--set", "training.steps=1", "--set", "evaluation.samples_per_problem=1"]


def run(home: Path, *settings: str) -> tuple[float, float, dict[str, float]]:
    """(processor seconds, seconds of waiting, processor seconds by process) of one `rpg train`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "rpg",
        "train",
        "chain",
        "--home",
        str(home),
        *STEPS,
        *settings,
    ]
    environment = {name: value for name, value in os.environ.items() if name != WITHOUT_BYTECODE}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    seen: dict[int, tuple[str, float]] = {}
    while child.poll() is None:
        for process in _tree(child.pid):
            try:
                times = process.cpu_times()
                seen[process.pid] = (_name(process), times.user + times.system)
            except psutil.Error:
                continue
        time.sleep(0.1)
    if child.returncode:
        sys.exit(child.stdout.read() if child.stdout else "rpg train failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    parts: dict[str, float] = {}
    for name, seconds in seen.values():
        parts[name] = parts.get(name, 0.0) + seconds
    return used, time.monotonic() - began, parts


def _tree(pid: int) -> list[psutil.Process]:
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _name(process: psutil.Process) -> str:
    if process.name().startswith("rpg-"):  # forked: its command is that of the fork server
        return process.name()
    command = process.cmdline()
    module = command[command.index("-m") + 1] if "-m" in command else None
    return module or os.path.basename(command[0] if command else "?")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--home", type=Path, help="data folder to use and keep (default: a temporary one)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        run(home)
        used, waited, parts = run(home, "--set", "training.optimizer.learning_rate=2.0e-4")
    print(f"{used:.1f} processor seconds, {waited:.1f} s of waiting")
    for name, seconds in sorted(parts.items(), key=lambda item: -item[1]):
        print(f"  {seconds:5.1f}  {name}")


if __name__ == "__main__":
    main()
