"""The patient: two sweeps with common runs on one data folder and one Prefect server, and what must hold about it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from benchmarks.trivial import SECONDS, SWEEP
from flows.server import EPHEMERAL, HOST, quiet_environment, wait_healthy
from rpg.store import Layout, RunFolder, StoreError
from rpg.store.database import build, connect

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = {"one": range(0, 6), "two": range(4, 10)}
STEPS = 30
COMMON = 2
"""Runs that both sweeps have."""


class Bench:
    """Starts, kills and inspects. `port` is the Prefect server's; its database is thrown away with the folder."""

    def __init__(self, root: Path, port: int, seconds: float) -> None:
        self.root, self.home, self.port, self.seconds = root, root / "data", port, seconds
        self.layout = Layout.at(self.home)
        self.home.mkdir(parents=True, exist_ok=True)
        self.server: subprocess.Popen | None = None
        self.sweeps: dict[str, subprocess.Popen] = {}
        self.environment: dict[str, str] = {}
        self.server_home = root
        for name, seeds in SWEEPS.items():
            text = SWEEP.format(name=name, steps=STEPS, every=10, seeds=list(seeds))
            (root / f"{name}.yaml").write_text(text)

    def _start(self, module: str, *args: str, **environment: str) -> subprocess.Popen:
        path = os.pathsep.join([str(ROOT), str(Path(__file__).parent / "site")])
        base = {**os.environ, **quiet_environment(self.server_home), "PYTHONPATH": path, **environment}
        with (self.root / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *args], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True, env=base, cwd=self.root,
            )  # fmt: skip

    def start_server(self) -> None:
        if self.server is None or self.server.poll() is not None:
            self.server = self._start("flows.server", str(self.port), PREFECT_UI_ENABLED="0", **EPHEMERAL)
            wait_healthy(self.server, f"http://{HOST}:{self.port}/api", self.root / "log")

    def start_sweeps(self) -> None:
        for name in SWEEPS:
            if name not in self.sweeps or self.sweeps[name].poll() is not None:
                self.sweeps[name] = self._start(
                    "benchmarks.trivial", "sweep", f"{name}.yaml", "--home", str(self.home), "--workers=2",
                    PREFECT_API_URL=f"http://{HOST}:{self.port}/api", RPG_SLOTS="3",
                    RPG_SLOTS_FOLDER=str(self.root / "slots"), **{SECONDS: str(self.seconds)}, **self.environment,
                )  # fmt: skip

    def processes(self) -> list[psutil.Process]:
        """Everything that runs now, the server included."""
        found = []
        for one in [*self.sweeps.values(), *([self.server] if self.server else [])]:
            try:
                me = psutil.Process(one.pid)
                found += [me, *me.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return [p for p in found if lives(p)]

    def wait(self, within: float) -> bool:
        """Whether both sweeps ended with exit code 0 in time."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline and any(p.poll() is None for p in self.sweeps.values()):
            time.sleep(0.1)
        return all(p.poll() == 0 for p in self.sweeps.values())

    def kill_sweeps(self) -> list[psutil.Process]:
        """SIGKILL to the conductors alone; returns what of their families is still there after five seconds."""
        families = []
        for one in self.sweeps.values():
            try:
                families += [psutil.Process(one.pid), *psutil.Process(one.pid).children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
            one.send_signal(signal.SIGKILL)
        for one in self.sweeps.values():
            one.wait()
        psutil.wait_procs(families, timeout=5)
        return [p for p in families if lives(p)]

    def close(self) -> None:
        for process in self.processes():
            process.kill()

    def folders(self) -> list[RunFolder]:
        return [folder for name in SWEEPS for folder in self.layout.run_folders(name)]

    def finished(self) -> bool:
        found = self.folders()
        return len(found) == sum(map(len, SWEEPS.values())) and all(f.done_path.exists() for f in found)

    def snapshot(self) -> dict[str, int]:
        """Folder -> newest checkpoint: the steps up to there are finished."""
        return {f"{f.sweep}/{f.name}": (f.checkpoint_steps() or [-1])[-1] for f in self.folders()}

    def lost(self, before: dict[str, int], attempts: dict[str, int]) -> int:
        """Finished steps that are gone, or that an attempt after `attempts` computed again."""
        count = 0
        for folder in self.folders():
            key = f"{folder.sweep}/{folder.name}"
            done = before.get(key, -1)
            rows = folder.read_metrics().rows
            count += len(set(range(1, done + 1)) - {row["step"] for row in rows})
            if (folder.path / "shared.json").exists():
                continue  # the numbers of its attempts are those of its twin
            count += sum(row["step"] <= done and row["attempt"] > attempts.get(key, 0) for row in rows)
        return count

    def attempts(self) -> dict[str, int]:
        return {f"{f.sweep}/{f.name}": (f.attempts() or [0])[-1] for f in self.folders()}

    def twice(self) -> int:
        """Steps and samples the database counts more than once, and common runs that were trained twice to the end."""
        build(self.layout)
        with connect(self.layout) as db:
            steps = db.execute(
                "select count(*) - count(distinct (sweep, run, step)) from metrics"
            ).fetchone()[0]
            samples = db.execute(
                "select count(*) - count(distinct (sweep, run, benchmark, step, problem_id, sample)) from samples"
            ).fetchone()[0]
        shared = sum((f.path / "shared.json").exists() for f in self.folders())
        return steps + samples + max(COMMON - shared, 0)

    def fingerprint(self) -> dict[str, str]:
        """Run id -> digest of all numbers; runs in both sweeps must agree."""
        out: dict[str, str] = {}
        for folder in self.folders():
            try:
                rows = [(r["step"], r["optimizer_step"], r["reward"]) for r in folder.read_metrics().rows]
                evals = {
                    s: folder.read_eval("chain-easy", s).to_pylist() for s in folder.eval_steps("chain-easy")
                }
                key = folder.read_manifest()["run_id"]
            except StoreError as error:
                rows, evals, key = [str(error)], {}, folder.name
            digest = hashlib.sha256(json.dumps([rows, evals], sort_keys=True).encode()).hexdigest()[:12]
            out[key] = digest if out.get(key, digest) == digest else "the two sweeps differ"
        return out


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
