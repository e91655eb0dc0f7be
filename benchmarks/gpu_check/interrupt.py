"""Ctrl-C in a training: it ends, and leaves neither a process nor memory of the card behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import torch

from benchmarks.gpu_check.exactness import chain_spec, run_of
from benchmarks.gpu_check.lines import Line, Size
from benchmarks.waiting import until
from rpg.backends.local.training_loop import train
from rpg.store.run_folder import RunFolder

PATIENCE = 150.0
CHILD = "--training"
"""The option with which this program is the training that is interrupted."""


def training(folder: Path, home: Path) -> None:
    train(RunFolder(folder), home, lambda line: print(line, flush=True))


def check(size: Size) -> list[Line]:
    with tempfile.TemporaryDirectory() as home:
        folder = run_of(Path(home), "interrupted", chain_spec(size, steps=100_000))
        before = _free(size)
        command = [sys.executable, "-m", "benchmarks.gpu_check", CHILD, str(folder.path), home]
        child = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started = until(lambda: folder.checkpoint(1).exists(), seconds=PATIENCE, child=child)
        family = [child.pid, *(each.pid for each in psutil.Process(child.pid).children(True))]
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        began = time.monotonic()
        ended = until(lambda: child.poll() is not None, seconds=PATIENCE)
        taken = time.monotonic() - began
        left = [pid for pid in family if psutil.pid_exists(pid) and pid != child.pid]
        if not ended:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        held = before - _free(size)
    figure = f"first step seen: {started}, ended in {taken:.1f} s, {len(left)} processes left"
    lines = [Line("Ctrl-C", figure, started and ended and not left)]
    if size.cuda:
        lines.append(Line("memory after it", f"{held / 1e6:.0f} MB held", held < 2**28))
    return lines


def _free(size: Size) -> int:
    return torch.cuda.mem_get_info()[0] if size.cuda else 0
