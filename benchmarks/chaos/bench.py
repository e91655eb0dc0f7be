"""Two `rpg sweep` at once on one Prefect server. Trainings and evaluations are trivial, everything
else is real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import psutil

from benchmarks.chaos.patient import ROOT, Patient, lives
from benchmarks.trivial import SECONDS, SWEEP
from flows.prefect.server import HOST, private, quiet_environment
from flows.prefect.service import start_in_turn

STEPS = 30


class Server:
    """A Prefect server for one bench after the other. One may kill it, and its next start begins it
    anew."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.url = root, f"http://{HOST}:{port}/api"
        self.service = private(port, root / "log")
        self.service.environment |= _environment(root)

    def start(self) -> None:
        if self.service.ended() is not None:
            start_in_turn([self.service], self.root)

    def kill(self) -> None:
        self.service.stop(0)


def _environment(root: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent / "site")])
    return {**quiet_environment(root), "PYTHONPATH": path}


def _start(root: Path, module: str, *args: str, **environment: str) -> subprocess.Popen:
    base = {**os.environ, **_environment(root), **environment}
    with (root / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, *args],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=base,
            cwd=root,
        )


class Bench(Patient):
    """`seconds` is what a trivial step takes."""

    seeds: ClassVar = {"one": range(0, 6), "two": range(4, 10)}

    def __init__(self, root: Path, server: Server, seconds: float) -> None:
        super().__init__(root)
        self.server, self.seconds = server, seconds
        self.sweeps: dict[str, subprocess.Popen] = {}
        self.environment: dict[str, str] = {}
        for name, seeds in self.seeds.items():
            text = SWEEP.format(name=name, steps=STEPS, every=10, seeds=list(seeds))
            (root / f"{name}.yaml").write_text(text)

    def start(self) -> None:
        self.server.start()
        self.start_sweeps()

    def start_sweeps(self) -> None:
        for name in self.seeds:
            if name not in self.sweeps or self.sweeps[name].poll() is not None:
                self.sweeps[name] = _start(
                    self.root,
                    "benchmarks.trivial",
                    "sweep",
                    f"{name}.yaml",
                    "--home",
                    str(self.home),
                    "--workers=2",
                    PREFECT_API_URL=self.server.url,
                    RPG_SLOTS="3",
                    RPG_SLOTS_FOLDER=str(self.root / "slots"),
                    **{SECONDS: str(self.seconds)},
                    **self.environment,
                )

    def busy(self) -> bool:
        return any(p.poll() is None for p in self.sweeps.values())

    def complete(self) -> bool:
        return all(p.poll() == 0 for p in self.sweeps.values())

    def roots(self) -> list[int]:
        server = self.server.service.process
        return [p.pid for p in [*self.sweeps.values(), *([server] if server else [])]]

    def close(self) -> None:
        """All but the server, which the next one uses."""
        for left in self.settle():
            left.kill()

    def settle(self) -> list[psutil.Process]:
        """SIGKILL to the conductors alone; returns what of their families is still there after five
        seconds."""
        families = []
        for one in self.sweeps.values():
            try:
                families += [
                    psutil.Process(one.pid),
                    *psutil.Process(one.pid).children(recursive=True),
                ]
            except psutil.NoSuchProcess:
                continue
            one.send_signal(signal.SIGKILL)
        for one in self.sweeps.values():
            one.wait()
        psutil.wait_procs(families, timeout=5)
        return [p for p in families if lives(p)]
