"""`rpg serve` with two sweeps started as the UI starts them. Everything is real, the trainings
too."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import httpx
import psutil

from benchmarks.chaos.patient import ROOT, Patient
from flows.prefect.server import HOST

SWEEP = """\
name: {name}
description: Real trainings of seconds.
run:
  task: {{type: chain, tiers: {{easy: 2}}, train_problems: 500, benchmark_problems: 8}}
  model: {{type: tiny, warm_start: null}}
  training: {{steps: 40, prompts_per_step: 8, mini_batch_prompts: 4}}
  rollout: {{group_size: 4}}
  evaluation: {{every: 10, samples_per_problem: 2}}
axes:
  seed: {seeds}
"""
UP_SECONDS = 240.0
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Served(Patient):
    """Kills reach `rpg serve`, its server, worker and dashboard, flow runs, commands, trainings and
    evaluators."""

    seeds: ClassVar = {"one": range(0, 2), "two": range(1, 3)}
    longest = 15.0

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        (self.home / "configs").mkdir()
        for name, seeds in self.seeds.items():
            (self.home / "configs" / f"{name}.yaml").write_text(
                SWEEP.format(name=name, seeds=list(seeds))
            )
        self.serve: subprocess.Popen | None = None
        self.runs: dict[str, str] = {}
        with socket.socket() as one, socket.socket() as two:  # both at once, so that they differ
            one.bind((HOST, 0))
            two.bind((HOST, 0))
            self.port, self.dashboard_port = one.getsockname()[1], two.getsockname()[1]
        self.api = httpx.Client(base_url=f"http://{HOST}:{self.port}/api", timeout=30)

    def start(self) -> None:
        """Serve; begin each sweep, or do what *Retry* in the UI does."""
        deadline = time.monotonic() + UP_SECONDS
        while True:
            try:
                self._serve()
                for name in self.seeds:
                    self._begin(name)
                return
            except (httpx.HTTPError, KeyError):  # the server is on its way, or has just been killed
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def _serve(self) -> None:
        if self.serve is not None and self.serve.poll() is None:
            return
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "RPG_"))}
        environment |= {"PYTHONPATH": str(ROOT), "RPG_SLOTS_FOLDER": str(self.root / "slots")}
        command = [
            sys.executable,
            "-m",
            "rpg.system.processes",
            "rpg",
            "serve",
            "--home",
            str(self.home),
            "--nightly",
            "",
        ]
        command += ["--port", str(self.port), "--dashboard-port", str(self.dashboard_port)]
        with (self.root / "log").open("ab") as log:
            self.serve = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
                cwd=self.root,
            )

    def _begin(self, name: str) -> None:
        if name not in self.runs:
            found = self._ask("GET", "/deployments/name/sweep/sweep")
            body = {"parameters": {"config": f"own/{name}"}, "state": {"type": "SCHEDULED"}}
            self.runs[name] = self._ask(
                "POST", f"/deployments/{found['id']}/create_flow_run", json=body
            )["id"]
        elif self._state(name) in FINAL[1:]:
            retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}}
            self._ask("POST", f"/flow_runs/{self.runs[name]}/set_state", json=retry)

    def _ask(self, method: str, path: str, **body: Any) -> dict:
        answer = self.api.request(method, path, **body)
        answer.raise_for_status()
        return answer.json()

    def _state(self, name: str) -> str:
        return self._ask("GET", f"/flow_runs/{self.runs[name]}")["state"]["type"]

    def states(self) -> list[str]:
        """Of both flow runs; none while the server cannot be asked."""
        try:
            return [self._state(name) for name in self.runs]
        except (httpx.HTTPError, KeyError):
            return []

    def busy(self) -> bool:
        states = self.states()
        return not states or any(state not in FINAL for state in states)

    def complete(self) -> bool:
        return self.states() == ["COMPLETED"] * len(self.seeds)

    def roots(self) -> list[int]:
        return [self.serve.pid] if self.serve else []

    def settle(self) -> list[psutil.Process]:
        """Nothing: what is left serves on."""
        return []
