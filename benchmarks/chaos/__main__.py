"""Kill everything at random moments, again and again, and count what is lost, doubled or left behind.

    python -m benchmarks.chaos [--kills 200] [--seed 0] [--seconds 0.05]

Two sweeps with common runs go on at once on one data folder. At a random moment one or more random processes of all
(conductors, trainings, evaluators, the Prefect server) get SIGKILL, then both sweeps are run again. Orchestration,
files, locks and database are the real ones; trainings and evaluations are trivial (benchmarks/trivial), so that 200
kills take minutes: benchmarks/kill_resume.py kills real trainings. After the kills come a full disk, a read-only
folder, torn files, clocks that jump, and a server that is lost. Exit code 1 when a column is not 0 or a number differs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.chaos.bench import Bench, lives
from benchmarks.chaos.faults import FAULTS

FINISH_SECONDS = 240.0


class Tally:
    """The table's columns."""

    def __init__(self) -> None:
        self.kills = self.processes = self.reruns = self.lost = self.twice = self.orphans = self.different = 0

    @property
    def clean(self) -> bool:
        return not (self.lost or self.twice or self.orphans or self.different)

    def row(self, name: str) -> str:
        return (
            f"| {name} | {self.kills} | {self.processes} | {self.reruns} | {self.lost} | {self.twice} | {self.orphans} "
            f"| {self.different} |"
        )


HEAD = (
    "| fault | times | processes killed | reruns | finished steps lost | counted twice | orphans | runs that differ |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def one_kill(bench: Bench, rng: random.Random, tally: Tally) -> None:
    """Start what is not running, wait a random while, kill a random part, look."""
    bench.start_server()
    bench.start_sweeps()
    tally.reruns += 1
    until = time.monotonic() + rng.uniform(0.2, 6.0)
    while time.monotonic() < until and any(p.poll() is None for p in bench.sweeps.values()):
        time.sleep(0.05)
    before, attempts = bench.snapshot(), bench.attempts()
    there = bench.processes()
    victims = rng.sample(there, k=min(len(there), rng.choice((1, 1, 1, 2, 3, len(there)))))
    below = [c for v in victims for c in _below(v)]
    for victim in victims:
        try:
            victim.kill()
            tally.processes += 1
        except psutil.NoSuchProcess:
            continue
    tally.kills += 1
    psutil.wait_procs([*victims, *below], timeout=5)
    tally.orphans += sum(lives(p) for p in below)
    # What was hit goes on, or not; either way both sweeps are started anew from the files alone.
    tally.orphans += len(bench.kill_sweeps())
    tally.lost += bench.lost(before, attempts)


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def finish(bench: Bench, tally: Tally, want: dict[str, str]) -> None:
    """One more run of both sweeps, to the end; then everything must be there, once, and equal."""
    before, attempts = bench.snapshot(), bench.attempts()
    for _ in range(2):  # a sweep whose server has just been killed ends with exit code 1, and is run again
        bench.start_server()
        bench.start_sweeps()
        tally.reruns += 1
        if bench.wait(FINISH_SECONDS):
            break
    tally.lost += bench.lost(before, attempts)
    tally.twice += bench.twice()
    found = bench.fingerprint()
    tally.different += sum(found.get(key) != want[key] for key in want) + len(found.keys() - want.keys())
    if not bench.finished() or tally.different:
        print((bench.root / "log").read_text(errors="replace")[-3000:], flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.05, help="how long a trivial step takes")
    parser.add_argument(
        "--faults", default=",".join(FAULTS), help="which of the others to do, separated by commas"
    )
    args = parser.parse_args()
    rng, rows, began = random.Random(args.seed), [], time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="rpg-chaos-"))
    try:
        calm = Bench(scratch / "calm", free_port(), args.seconds)
        try:
            tally = Tally()
            calm.start_server()
            calm.start_sweeps()
            if not calm.wait(FINISH_SECONDS):
                print((calm.root / "log").read_text(errors="replace")[-3000:])
                return 1
            want = calm.fingerprint()
            print(f"undisturbed: {len(want)} runs, {time.monotonic() - began:.0f} s", flush=True)
        finally:
            calm.close()
        tally, generation = Tally(), 0
        while tally.kills < args.kills:
            generation += 1
            bench = Bench(scratch / f"kills{generation}", free_port(), args.seconds)
            try:
                while tally.kills < args.kills and not bench.finished():
                    one_kill(bench, rng, tally)
                    if tally.kills % 10 == 0:
                        print(
                            f"  {tally.row('SIGKILL so far')}  {time.monotonic() - began:.0f} s", flush=True
                        )
                finish(bench, tally, want)
            finally:
                bench.close()
                shutil.rmtree(bench.root, ignore_errors=True)
        if args.kills:
            rows.append((f"SIGKILL, {generation} data folders", tally))
        for name in filter(None, args.faults.split(",")):
            tally = Tally()
            bench = Bench(scratch / name.replace(" ", "-"), free_port(), args.seconds)
            try:
                said = FAULTS[name](bench, rng, tally)
                finish(bench, tally, want)
            finally:
                bench.close()
            rows.append((f"{name}{f' ({said})' if said else ''}", tally))
            print(f"  {tally.row(name)}  {time.monotonic() - began:.0f} s", flush=True)
    finally:
        for mount in scratch.glob("*/data"):
            if mount.is_mount():
                subprocess.run(["umount", "-l", str(mount)], check=False)
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n{HEAD}")
    for name, tally in rows:
        print(tally.row(name))
    print(f"\nseed {args.seed}, {time.monotonic() - began:.0f} s")
    return 0 if all(tally.clean for _, tally in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
