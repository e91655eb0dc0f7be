"""Kill everything at random moments, again and again, and count what is lost, doubled or left
behind.

    python -m benchmarks.chaos [--kills 200] [--served 40] [--seed 0] [--seconds 0.05]

Two sweeps with common runs go on at once on one data folder. At a random moment one or more random
processes of all get SIGKILL, then both sweeps are run again. Most kills are of conductors,
trainings, evaluators and a Prefect server, where trainings and evaluations are trivial
(benchmarks/trivial); `--served` of them are of `rpg serve`, its worker, server and dashboard, of
flow runs, commands and real trainings, and *Retry* goes on. Orchestration, files, locks and
database are always the real ones. After the kills come a full disk, a read-only folder, torn files,
clocks that jump, and a server that is lost. Exit code 1 when a column is not 0 or a number differs.
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
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.chaos.bench import Bench, Server
from benchmarks.chaos.faults import FAULTS
from benchmarks.chaos.patient import Patient, lives
from benchmarks.chaos.served import Served
from benchmarks.chaos.tally import HEAD, Tally

FINISH_SECONDS = 240.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def one_kill(bench: Patient, rng: random.Random, tally: Tally) -> None:
    """Start what is not running, wait a random while, kill a random part, look."""
    bench.start()
    tally.reruns += 1
    until = time.monotonic() + rng.uniform(0.2, bench.longest)
    while time.monotonic() < until and bench.busy():
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
    tally.orphans += len(bench.settle())
    tally.lost += bench.lost(before, attempts)


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def finish(bench: Patient, tally: Tally, want: dict[str, str]) -> None:
    """One more run of both sweeps, to the end; then everything must be there, once, and equal."""
    before, attempts = bench.snapshot(), bench.attempts()
    for _ in range(
        2
    ):  # a sweep whose server has just been killed ends with exit code 1, and is run again
        bench.start()
        tally.reruns += 1
        if bench.wait(FINISH_SECONDS):
            break
    tally.lost += bench.lost(before, attempts)
    tally.twice += bench.twice()
    found = bench.fingerprint()
    tally.different += sum(found.get(key) != want[key] for key in want) + len(
        found.keys() - want.keys()
    )
    tally.different += not bench.complete()  # exit codes, or the states that Prefect shows
    if not bench.finished() or tally.different:
        print((bench.root / "log").read_text(errors="replace")[-3000:], flush=True)


def undisturbed(bench: Patient) -> dict[str, str]:
    """What the numbers should be."""
    began = time.monotonic()
    try:
        bench.start()
        if not bench.wait(FINISH_SECONDS):
            raise SystemExit((bench.root / "log").read_text(errors="replace")[-3000:])
        want = bench.fingerprint()
        print(f"undisturbed: {len(want)} runs, {time.monotonic() - began:.0f} s", flush=True)
        return want
    finally:
        bench.close()


def kills(
    count: int,
    make: Callable[[Path], Patient],
    scratch: Path,
    rng: random.Random,
    want: dict[str, str],
) -> tuple[str, Tally]:
    """Kill `count` times; whenever both sweeps have ended, go on in a new data folder."""
    tally, generation, began = Tally(), 0, time.monotonic()
    while tally.kills < count:
        generation += 1
        bench = make(scratch / f"kills{generation}")
        try:
            while tally.kills < count and not bench.finished():
                one_kill(bench, rng, tally)
                if tally.kills % 10 == 0:
                    print(
                        f"  {tally.row('SIGKILL so far')}  {time.monotonic() - began:.0f} s",
                        flush=True,
                    )
            finish(bench, tally, want)
        finally:
            bench.close()
            if tally.clean:
                shutil.rmtree(bench.root, ignore_errors=True)
    return f"{generation} data folders", tally


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200, help="how many in all")
    parser.add_argument("--served", type=int, default=40, help="how many of them under rpg serve")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.05, help="how long a trivial step takes")
    parser.add_argument(
        "--faults", default=",".join(FAULTS), help="which of the others to do, separated by commas"
    )
    args = parser.parse_args()
    rng, rows, began = random.Random(args.seed), [], time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="rpg-chaos-"))
    server = Server(scratch, free_port())

    def bench(root: Path) -> Bench:
        return Bench(root, server, args.seconds)

    try:
        if args.served:
            calm = undisturbed(Served(scratch / "served" / "calm"))
            how, tally = kills(args.served, Served, scratch / "served", rng, calm)
            rows.append((f"SIGKILL under rpg serve, {how}", tally))
        faults = [name for name in args.faults.split(",") if name]
        want = undisturbed(bench(scratch / "calm")) if faults or args.kills > args.served else {}
        if args.kills > args.served:
            how, tally = kills(args.kills - args.served, bench, scratch / "sweeps", rng, want)
            rows.append((f"SIGKILL, {how}", tally))
        for name in faults:
            tally, one = Tally(), bench(scratch / name.replace(" ", "-"))
            try:
                said = FAULTS[name](one, rng, tally)
                finish(one, tally, want)
            finally:
                one.close()
            rows.append((f"{name}{f' ({said})' if said else ''}", tally))
            print(f"  {tally.row(name)}  {time.monotonic() - began:.0f} s", flush=True)
    finally:
        server.kill()
        for mount in scratch.glob("*/data"):
            if mount.is_mount():
                subprocess.run(["umount", "-l", str(mount)], check=False)
        if all(tally.clean for _, tally in rows):
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            print(f"what was left of it: {scratch}")
    print(f"\n{HEAD}")
    for name, tally in rows:
        print(tally.row(name))
    print(f"\nseed {args.seed}, {time.monotonic() - began:.0f} s")
    return 0 if all(tally.clean for _, tally in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
