"""What following a verl run costs: `python benchmarks/verl_overhead.py [--steps 20]`.

Trains the tiny chain run on verl's real trainer (device cpu) and compares, over all steps after the
first,
- the launcher's CPU seconds (metrics carried over, checkpoints published, heartbeat) with the
  seconds of the steps,
- the launcher's own seconds before verl's driver is started with the seconds until the first step.
Exit code 1 when following costs 2 % of a step or more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from flows.sweep.conductor import register
from rpg.config.sweep_spec import single_run
from rpg.store import Layout
from rpg.tasks.preparation import data_digest, prepare_data

ROOT = Path(__file__).resolve().parent.parent
MOST = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as home:
        changes = {"backend.type": "verl", "training.steps": steps, "evaluation.every": steps}
        changes["model.warm_start"] = None  # what is learnt does not matter here
        sweep = single_run(ROOT / "configs/runs/chain.yaml", changes, data_digest)
        (folder,) = register(sweep, Layout(Path(home)))
        prepare_data(sweep.runs[0].spec, Path(home))
        began = time.monotonic()
        child = subprocess.Popen([sys.executable, "-m", "rpg.backends.verl", str(folder.path)])
        process = psutil.Process(child.pid)
        started = first = None
        used = at_first = 0.0
        while child.poll() is None:
            try:
                used = sum(process.cpu_times()[:2])  # of the launcher itself, without its children
            except psutil.Error:
                break
            started = started or _driver(process)
            if first is None and folder.attempts():
                first, at_first = time.monotonic(), used
            time.sleep(0.02)
        if child.wait() != 0 or first is None or started is None:
            print("the run failed", file=sys.stderr)
            return 1
        rows = folder.read_metrics()[1:]
        seconds = sum(row["seconds_step"] for row in rows)
    share = (used - at_first) / seconds
    print(f"{len(rows)} steps of {seconds / len(rows):.2f} s on average")
    print(
        f"following: {(used - at_first) / len(rows) * 1000:.1f} ms of CPU a step, "
        f"{share:.2%} of a step"
    )
    print(
        f"launch: {started - began:.1f} s before verl's driver starts, {first - began:.1f} "
        "s until the first step"
    )
    return 0 if share < MOST else 1


def _driver(process: psutil.Process) -> float | None:
    return time.monotonic() if process.children() else None


if __name__ == "__main__":
    sys.exit(main())
