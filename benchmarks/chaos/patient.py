"""What is done to a data folder with two sweeps that share runs, and what must hold about it
afterwards."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import psutil

from benchmarks.digest import digest
from rpg.store import Layout, RunFolder, StoreError
from rpg.store.database import build, connect

ROOT = Path(__file__).resolve().parents[2]


class Patient(ABC):
    """Two sweeps on one data folder below `root`. `seeds` are the runs of each; those in both are
    computed once."""

    seeds: ClassVar[dict[str, range]]
    longest = 6.0
    """Seconds between a start and the next kill, at most."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "data"
        self.layout = Layout.at(self.home)
        self.home.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def start(self) -> None:
        """Start whatever is not running and not complete."""

    @abstractmethod
    def busy(self) -> bool:
        """Whether a sweep is going on."""

    @abstractmethod
    def roots(self) -> list[int]:
        """Process ids whose families are all there is."""

    @abstractmethod
    def settle(self) -> list[psutil.Process]:
        """Make ready for the next start; returns the processes that should have ended before it and
        have not."""

    @abstractmethod
    def complete(self) -> bool:
        """Whether both sweeps ended well."""

    def wait(self, within: float) -> bool:
        """Whether both sweeps ended well in time."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline and self.busy():
            time.sleep(0.1)
        return self.complete()

    def processes(self) -> list[psutil.Process]:
        """Everything that runs now, servers included."""
        found = []
        for pid in self.roots():
            try:
                found += [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return [p for p in found if lives(p)]

    def close(self) -> None:
        for process in self.processes():
            process.kill()

    def folders(self) -> list[RunFolder]:
        return [folder for name in self.seeds for folder in self.layout.run_folders(name)]

    def finished(self) -> bool:
        found = self.folders()
        return len(found) == sum(map(len, self.seeds.values())) and all(
            f.done_path.exists() for f in found
        )

    def snapshot(self) -> dict[str, int]:
        """Folder -> newest checkpoint: the steps up to there are finished."""
        return {f"{f.sweep}/{f.name}": (f.checkpoint_steps() or [-1])[-1] for f in self.folders()}

    def attempts(self) -> dict[str, int]:
        return {f"{f.sweep}/{f.name}": (f.attempts() or [0])[-1] for f in self.folders()}

    def lost(self, before: dict[str, int], attempts: dict[str, int]) -> int:
        """Finished steps that are gone, or that an attempt after `attempts` computed again."""
        count = 0
        for folder in self.folders():
            key = f"{folder.sweep}/{folder.name}"
            done = before.get(key, -1)
            rows = folder.read_metrics()
            count += len(set(range(1, done + 1)) - {row["step"] for row in rows})
            if (folder.path / "shared.json").exists():
                continue  # the numbers of its attempts are those of the same run in another sweep
            count += sum(
                row["step"] <= done and row["attempt"] > attempts.get(key, 0) for row in rows
            )
        return count

    def twice(self) -> int:
        """Steps and samples the database counts more than once, and common runs that were trained
        twice to the end."""
        build(self.layout)
        with connect(self.layout) as db:
            [(steps,)] = db.execute(
                "select count(*) - count(distinct (sweep, run, step)) from metrics"
            ).fetchall()
            [(samples,)] = db.execute(
                "select count(*) - count(distinct (sweep, run, benchmark, step, problem_id, "
                "sample)) from samples"
            ).fetchall()
        common = set.intersection(*(set(seeds) for seeds in self.seeds.values()))
        shared = sum((f.path / "shared.json").exists() for f in self.folders())
        return steps + samples + max(len(common) - shared, 0)

    def fingerprint(self) -> dict[str, str]:
        """Run id -> digest of all numbers; runs in both sweeps must agree."""
        out: dict[str, str] = {}
        for folder in self.folders():
            try:
                found, key = digest(folder), folder.read_manifest()["run_id"]
            except (StoreError, OSError) as error:
                found, key = str(error), folder.name
            out[key] = found if out.get(key, found) == found else "the two sweeps differ"
        return out


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
