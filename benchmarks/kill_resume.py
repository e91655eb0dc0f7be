"""Kill a whole sweep at random moments, run it again, and compare every number with an undisturbed
sweep.

    python -m benchmarks.kill_resume [--kills 10] [--seed 0]

Prints a row per kill: when, what was on disk then, and whether the final metrics, graded samples
and weights are those of the undisturbed sweep, bit for bit. Exit code 1 when one is not, or when a
process is left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.digest import digest
from rpg.store import Layout

SWEEP = """\
name: kills
description: >-
  A small sweep with both kinds of loss, dynamic sampling, a reference of its own and samples of old
  policies.
run:
  task: {type: chain, tiers: {easy: 2, medium: 4}, train_problems: 2000, benchmark_problems: 16}
  training: {steps: 12, prompts_per_step: 16, mini_batch_prompts: 4}
  evaluation: {every: 4, samples_per_problem: 2}
axes:
  algorithm: [dapo, {name: rpg-reinforce-urkl, reference: {type: every_k, k: 6}}]
  rollout.staleness: [0, 4]
  seed: [0]
zip: [[algorithm, rollout.staleness]]
"""


def fingerprint(home: Path) -> dict[str, str]:
    """Run -> digest of all its numbers."""
    return {folder.name: digest(folder) for folder in Layout.at(home).run_folders("kills")}


def start(file: Path, home: Path) -> subprocess.Popen:
    log = (home.parent / f"{home.name}.log").open("ab")
    command = [
        sys.executable,
        "-m",
        "rpg",
        "sweep",
        str(file),
        "--home",
        str(home),
        "--workers",
        "2",
    ]
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def family(process: subprocess.Popen) -> list[psutil.Process]:
    try:
        root = psutil.Process(process.pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def on_disk(home: Path) -> tuple[int, int]:
    """(metric lines, evaluations) that are there."""
    steps = sum(1 for f in home.glob("runs/kills/*/metrics-*.jsonl") for _ in f.open("rb"))
    return steps, len(list(home.glob("runs/kills/*/evals/*/step-*.parquet")))


def one_kill(
    file: Path, home: Path, events: int, jitter: float, want: dict[str, str]
) -> tuple[str, bool]:
    """Kill everything `jitter` seconds after `events` metric lines and evaluations are there, and
    run it again."""
    process = start(file, home)
    while sum(on_disk(home)) < events and process.poll() is None:
        time.sleep(0.02)
    time.sleep(jitter)
    victims = family(process)
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    process.wait()
    psutil.wait_procs(victims, timeout=5)
    left = sum(v.is_running() and v.status() != psutil.STATUS_ZOMBIE for v in victims)
    lines, evals = on_disk(home)
    code = start(file, home).wait()
    good = bool(victims) and code == 0 and left == 0 and fingerprint(home) == want
    why = "" if good else f"; rerun exit {code}, {left} left, {fingerprint(home)} instead of {want}"
    return (
        f"{len(victims)} processes killed, {lines} metric lines, {evals} evaluations there{why}",
        good,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        file = root / "kills.yaml"
        file.write_text(SWEEP)
        began = time.monotonic()
        if start(file, root / "calm").wait() != 0:
            print((root / "calm.log").read_text())
            return 1
        print(f"undisturbed, with its warm start: {time.monotonic() - began:.0f} s")
        want = fingerprint(root / "calm")
        # The clock of the kills starts from a data folder that already has its warm start, as a
        # user's has.
        shutil.copytree(root / "calm" / "cache", root / "warm" / "cache")
        began = time.monotonic()
        start(file, root / "warm").wait()
        span = time.monotonic() - began
        same = fingerprint(root / "warm") == want
        total = sum(on_disk(root / "warm"))
        print(f"undisturbed, warm start cached:   {span:.0f} s, same numbers: {same}")
        bad = 0 if same else 1
        for i in range(args.kills):
            home = root / f"kill{i}"
            shutil.copytree(root / "calm" / "cache", home / "cache")
            text, good = one_kill(file, home, rng.randrange(total), rng.uniform(0, 1), want)
            bad += not good
            print(f"kill {i + 1:2d}: {'identical' if good else 'DIFFERS'}  ({text})", flush=True)
            shutil.rmtree(home)
    print(f"{args.kills - bad} of {args.kills} identical" if args.kills else "")
    return 1 if bad else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
