"""How long the results database takes: a full build, adding one run, and finding that nothing is
new.

    python -m benchmarks.aggregate [--runs 1000] [--steps 400] [--metrics 30] [--seeds 3]
        [--evals 5] [--home DIR]

Invented run folders are made once (kept in --home, else in a temporary folder): metrics, and of
every run --evals evaluations on each of three benchmarks, 240 samples each. The full build is
repeated three times and each is printed, with the processor time it took; the other figures are
medians of three.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.synthetic import VARIANTS, Shape, write_run, write_sweep
from rpg.store import Layout
from rpg.store.database import build, connect

PER_SWEEP = 14  # variants; with three seeds a sweep has 42 runs


def make(layout: Layout, runs: int, seeds: int, shape: Shape) -> None:
    """Write sweeps until there are `runs` runs."""
    left, number = runs, 0
    betas = ["", " algorithm.beta=0.001"]
    variants = [name + beta for beta in betas for name in VARIANTS]
    while left > 0:
        take = variants[: max(1, min(PER_SWEEP, left // seeds))]
        write_sweep(layout.home, f"sweep-{number:03d}", take, range(min(seeds, left)), shape)
        left -= len(take) * min(seeds, left)
        number += 1


def seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--metrics", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--evals", type=int, default=5, help="evaluations per run and benchmark; 0: none"
    )
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    folder = options.home or Path(tempfile.mkdtemp(prefix="rpg-aggregate-"))
    try:
        measure(Layout.at(folder), options)
    finally:
        if options.home is None:
            shutil.rmtree(folder)


def measure(layout: Layout, options: argparse.Namespace) -> None:
    names = ("chain-easy", "chain-medium", "chain-hard") if options.evals else ()
    every = max(1, options.steps // max(1, options.evals - 1))
    shape = Shape(options.steps, every, 30, 8, names, options.metrics)
    if not layout.sweeps():
        making = seconds(lambda: make(layout, options.runs, options.seeds, shape))
        print(f"making {options.runs} runs: {making:.0f} s")
    shutil.rmtree(layout.analytics, ignore_errors=True)
    for _ in range(3):
        shutil.rmtree(layout.analytics, ignore_errors=True)
        used = time.process_time()
        wall = seconds(lambda: build(layout))
        used = time.process_time() - used
        print(
            f"full build: {wall:.2f} s ({used:.1f} s of processor time, load "
            f"{os.getloadavg()[0]:.1f})"
        )
    with connect(layout) as db:
        counts = {
            name: db.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]
            for name in ("runs", "metrics", "evals", "samples")
        }
    size = sum(path.stat().st_size for path in layout.analytics.glob("*.duckdb")) / 1e6
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()), f"({size:.0f} MB)")
    added = []
    for number in range(3):
        run = layout.run("sweep-000", f"added-{time.time_ns()}-{number}")
        write_run(run, "grpo", 100 + number, 0.3, shape, None)
        added.append(seconds(lambda: build(layout)))
        shutil.rmtree(run.path)
    print(f"adding one run: {statistics.median(added):.2f} s")
    build(layout)
    print(
        f"nothing new: {statistics.median(seconds(lambda: build(layout)) for _ in range(3)):.2f} s"
    )


if __name__ == "__main__":
    main()
