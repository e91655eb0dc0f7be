"""A running `rpg serve`, as its users see it, and small helpers of these tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil

from benchmarks.trivial import SECONDS, SWEEP
from rpg.store import Layout
from tests.waiting import HANG, ended, free_port, until

SMALL = """\
name: small
description: Two variants, seconds each.
run:
  task: {type: chain, tiers: {easy: 2}, train_problems: 500, benchmark_problems: 8}
  model: {type: tiny, warm_start: null}
  training: {steps: 3, prompts_per_step: 4, mini_batch_prompts: 4}
  rollout: {group_size: 4}
  evaluation: {every: 3, samples_per_problem: 2}
axes:
  algorithm: [grpo, rpg-reinforce-urkl]
  seed: [0]
baseline: grpo
"""
TRIVIAL = SWEEP.format(name="trivial", steps=3, every=3, seeds=[0, 1])
"""Its trainings and evaluations are made up (site/sitecustomize.py): for tests of who starts and
ends whom."""
ROOT = Path(__file__).parents[2]
UP = b"Ctrl-C stops"
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def with_these_tests(*arguments):
    """A command that ends with the tests."""
    return [sys.executable, "-m", "rpg.system.processes", *arguments]


class Served:
    """A running `rpg serve` and its API."""

    def __init__(self, root, database=None, secret=None, tree=ROOT, public=None):
        self.home = root / "data"
        self.root = root
        (self.home / "configs").mkdir(parents=True)
        (self.home / "configs" / "small.yaml").write_text(SMALL)
        (self.home / "configs" / "trivial.yaml").write_text(TRIVIAL)
        self.port = free_port()
        self.dashboard_port = free_port()
        self.layout = Layout.at(self.home)
        self.log = root / "serve.log"
        path = os.pathsep.join([str(tree), str(Path(__file__).parent / "site")])
        others = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "RPG_HOME"))}
        self.environment = others | {"PYTHONPATH": path, SECONDS: "0.2"}
        self.arguments = ["--home", str(self.home), "--port", str(self.port)]
        self.arguments += ["--dashboard-port", str(self.dashboard_port)]
        if database:
            self.arguments += ["--database", database]
        if public:
            self.arguments += ["--public-url", public]
        self.ui = f"http://127.0.0.1:{self.port}"
        self.dashboard = f"http://127.0.0.1:{self.dashboard_port}"
        self.environment |= {"RPG_AUTH": secret} if secret else {}
        auth = tuple(secret.split(":")) if secret else None
        self.api = httpx.Client(base_url=f"{self.ui}/api", timeout=HANG, auth=auth)
        self.start()

    def start(self):
        """Until server, worker and dashboard are up, another time as well."""
        before = self.log.read_bytes().count(UP) if self.log.exists() else 0
        with self.log.open("ab") as output:
            command = self.command()
            here = {"env": self.environment, "cwd": self.root, "start_new_session": True}
            self.process = subprocess.Popen(command, stdout=output, stderr=output, **here)
        over = lambda: self.process.poll() is not None  # noqa: E731
        until(lambda: self.log.read_bytes().count(UP) > before or over(), "the start", pause=0.3)
        assert not over(), self.log.read_text()
        nightly = "/deployments/name/nightly/nightly"
        until(lambda: self.api.get(nightly).status_code == 200, "the deployments", pause=0.3)

    def command(self):
        return with_these_tests("rpg", "serve", *self.arguments)

    def family(self):
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    def part(self, name):
        return next(
            p for p in psutil.Process(self.process.pid).children() if f"flows.{name}" in p.cmdline()
        )

    def stop(self):
        if self.process.poll() is None:
            family = self.family()
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(HANG)
            ended(family)

    def begin(self, deployment, **parameters):
        found = self.api.get(f"/deployments/name/{deployment}/{deployment}").json()
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return self.api.post(f"/deployments/{found['id']}/create_flow_run", json=body)

    def run_id(self, deployment, **parameters):
        answer = self.begin(deployment, **parameters)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def state(self, run):
        state = self.api.get(f"/flow_runs/{run}").json()["state"]
        return state["type"], state.get("message") or ""

    def finished(self, run):
        return until(
            lambda: (s := self.state(run))[0] in FINAL and s, f"the end of {run}", pause=1.0
        )

    def tasks(self, run):
        wanted = {"flow_runs": {"id": {"any_": [run]}}}
        return self.api.post("/task_runs/filter", json=wanted).json()

    def log_of(self, run):
        return self.api.post("/logs/filter", json={"logs": {"flow_run_id": {"any_": [run]}}}).json()

    def retry(self, run):
        """What the button of that name does."""
        state = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}}
        self.api.post(f"/flow_runs/{run}/set_state", json=state)
        until(lambda: self.state(run)[0] in ("RUNNING", "PENDING"), "the retry", pause=0.3)

    def trainers(self):
        """The processes of trainings that are made up."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if "benchmarks.trivial.train" in words_of(child)]


def words_of(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
