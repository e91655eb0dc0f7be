"""What else can happen to a sweep besides a kill. Each fault is done to a bench that is working;
then it is repaired."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable

from benchmarks.chaos.bench import Bench
from benchmarks.chaos.tally import Tally

Fault = Callable[[Bench, random.Random, Tally], str]


def _working(bench: Bench, tally: Tally, lines: int = 25) -> None:
    """Start both sweeps and wait until that many steps are there."""
    bench.start()
    tally.reruns += 1
    deadline = time.monotonic() + 90
    while (
        time.monotonic() < deadline and sum(len(f.read_metrics()) for f in bench.folders()) < lines
    ):
        time.sleep(0.1)


def _over(bench: Bench, tally: Tally, within: float = 60.0) -> None:
    """Let the sweeps end by themselves, as far as they do; nothing may be left of them."""
    before, attempts = bench.snapshot(), bench.attempts()
    bench.wait(within)
    tally.orphans += len(bench.settle())
    tally.lost += bench.lost(before, attempts)
    tally.kills += 1


def _mounted(bench: Bench, size: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(bench.home)]
    return subprocess.run(command, capture_output=True).returncode == 0


def _remount(bench: Bench, how: str) -> bool:
    """Whether it worked: a file that is open for writing forbids a read-only mount."""
    return (
        subprocess.run(
            ["mount", "-o", f"remount,{how}", str(bench.home)], capture_output=True
        ).returncode
        == 0
    )


STAGES: dict[str, Callable[[Bench], object]] = {
    "prepare": lambda bench: True,
    "train": lambda bench: any(f.read_metrics() for f in bench.folders()),
    "evaluate": lambda bench: any(bench.home.glob("runs/*/*/evals/*/*.parquet")),
    "aggregate": lambda bench: any(bench.home.glob("analytics/*")),
    "report": lambda bench: any(bench.home.glob("reports/*/*")),
}
"""Stage of a sweep -> what says that it has been reached."""


def full_disk(bench: Bench, rng: random.Random, tally: Tally) -> str:
    """A file system that fills up at the beginning of each stage, and has room again for the next
    one."""
    if not _mounted(bench, "64m"):
        return "left out: only root can mount a small file system"
    reached = []
    for stage, begun in STAGES.items():
        bench.start()
        tally.reruns += 1
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and bench.busy() and not begun(bench):
            time.sleep(0.02)
        if bench.busy():
            reached.append(stage)
        free = os.statvfs(bench.home)
        with (bench.home / "filler").open("wb") as filler, contextlib.suppress(OSError):
            filler.write(b"\0" * (free.f_bavail * free.f_frsize))
        _over(bench, tally)
        (bench.home / "filler").unlink()
    return ", ".join(reached)


def read_only(bench: Bench, rng: random.Random, tally: Tally) -> str:
    """A data folder that cannot be written for a while."""
    if not _mounted(bench, "64m"):
        return "left out: only root can mount a file system"
    _working(bench, tally)
    bench.settle()
    if not _remount(bench, "ro"):
        return "left out: it could not be made read-only"
    bench.start_sweeps()
    _over(bench, tally)
    _remount(bench, "rw")
    return ""


def torn_files(bench: Bench, rng: random.Random, tally: Tally) -> str:
    """Every kind of file that is written again and again, cut off in the middle."""
    _working(bench, tally)
    before, attempts = bench.snapshot(), bench.attempts()
    tally.orphans += len(bench.settle())
    tally.lost += bench.lost(before, attempts)
    cut = []
    for folder in bench.folders():
        for path in (folder.manifest_path, folder.lease_path, folder.path / "waiting.json"):
            if path.exists() and rng.random() < 0.5:
                cut.append(path)
        for attempt in folder.attempts():
            with folder.metrics_path(attempt).open("ab") as file:
                file.write(b'{"step": 7, "rew')
    cut += [
        path
        for name in ("one", "two")
        if (path := bench.layout.sweep_folder(name) / "sweep.json").exists()
    ]
    for path in cut:
        os.truncate(path, path.stat().st_size // 2)
    tally.kills += 1
    return f"{len(cut)} files"


def clock_jump(bench: Bench, rng: random.Random, tally: Tally) -> str:
    """One sweep's clock is a day ahead, then a day behind, while the other one goes on."""
    for jump in ("86400", "-86400"):
        bench.environment = {"RPG_CHAOS_CLOCK": jump}
        _working(bench, tally)
        time.sleep(rng.uniform(1, 4))
        before, attempts = bench.snapshot(), bench.attempts()
        bench.sweeps["one"].kill()
        bench.sweeps["one"].wait()
        bench.environment = {}
        bench.start_sweeps()
        time.sleep(rng.uniform(4, 8))
        tally.orphans += len(bench.settle())
        tally.lost += bench.lost(before, attempts)
        tally.kills += 1
    return ""


def lost_server(bench: Bench, rng: random.Random, tally: Tally) -> str:
    """The Prefect server dies in the middle and comes back only for the rerun."""
    _working(bench, tally)
    bench.server.kill()
    _over(bench, tally, 90.0)
    return ""


def two_conductors(bench: Bench, rng: random.Random, tally: Tally) -> str:
    """The same sweeps are started a second time while they are running: that is refused, and
    changes nothing."""
    _working(bench, tally)
    first, bench.sweeps = bench.sweeps, {}
    bench.start_sweeps()
    codes = [second.wait(60) for second in bench.sweeps.values()]
    bench.sweeps = first
    tally.kills += 1
    _over(bench, tally)
    return f"exit codes {codes}"


FAULTS: dict[str, Fault] = {
    "full disk": full_disk,
    "read-only folder": read_only,
    "torn files": torn_files,
    "clock jump": clock_jump,
    "lost server": lost_server,
    "two conductors": two_conductors,
}
