"""Eight minutes with one GPU: what the embedded trainer reaches there, and what holds.

    python -m benchmarks.gpu_check                 # on a card
    python -m benchmarks.gpu_check --dry-run       # the same checks on a CPU, with tiny models

Needs neither a network nor vLLM, verl, Ray or Prefect: weights are random, of Qwen3-0.6B's shape.
Every line has a figure and says `ok`, `NO`, or `--` where the check cannot be done here. The exit
code is 1 where something did not hold. For verl and vLLM there is benchmarks/gpu_smoke.py.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.gpu_check import attention, exactness, interrupt, step
from benchmarks.gpu_check.lines import CARD, DRY, Line, Size

BUDGET = 480.0
"""Seconds after which no further check begins."""
CHECKS: dict[str, Callable[[Size], list[Line]]] = {
    "decoding": exactness.decoding,
    "repeats": exactness.repeats,
    "resumed": exactness.resumed,
    "interrupt": interrupt.check,
    "attention": attention.check,
    "adapters": exactness.adapters,
    "step": step.check,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, with tiny models")
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS))
    parser.add_argument(interrupt.CHILD, nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.training:
        interrupt.training(*options.training)
        return 0
    size = DRY if options.dry_run else CARD
    card = torch.cuda.get_device_name() if size.cuda else "CPU, dry run"
    print(f"{card}, torch {torch.__version__}, Python {sys.version.split()[0]}", flush=True)
    began = time.monotonic()
    failed = 0
    for name in options.only:
        if time.monotonic() - began > BUDGET:
            print(f"--  {name}: not begun, {BUDGET:.0f} s are over", flush=True)
            continue
        for line in _lines(name, size):
            failed += line.held is False
            print(f"{time.monotonic() - began:5.0f} s  {line}", flush=True)
    print("all of it held" if not failed else f"{failed} of it did not hold")
    return int(failed > 0)


def _lines(name: str, size: Size) -> list[Line]:
    """A check that fails to run says why, and the others go on."""
    try:
        return CHECKS[name](size)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is reported)
        traceback.print_exc()
        why = (str(error).splitlines() or [type(error).__name__])[0]
        return [Line(name, f"ended with {why[:120]}", False)]


if __name__ == "__main__":
    sys.exit(main())
