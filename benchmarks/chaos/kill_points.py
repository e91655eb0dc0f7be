"""A sweep of two runs, killed at every moment that matters: each time one rerun of the same command
gives the same bits and a true table.

    python -m benchmarks.chaos.kill_points                 # all points, made-up trainings
    python -m benchmarks.chaos.kill_points --points 8      # evenly spaced ones
    python -m benchmarks.chaos.kill_points --real          # with real trainings
    python -m benchmarks.chaos.kill_points --results FILE  # kept there; the same command goes on

First an undisturbed sweep, which lists what happens to files (benchmarks.chaos.kill_hook). Points
are all moments from the last evaluation to CURRENT, and evenly spaced others, 40 at least.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.chaos import kill_hook
from benchmarks.kept_results import KeptResults
from benchmarks.trivial import SWEEP
from flows.prefect.server import HOST, private, quiet_environment
from flows.prefect.service import start_in_turn
from rpg.store import Layout, StoreError
from rpg.store.database import connect
from rpg.store.run_folder import by_clock
from rpg.store.samples import read_eval

ROOT = Path(__file__).resolve().parents[2]
NAME = "killed"
REAL = """\
name: killed
description: Two short runs.
run:
  task: {type: chain, tiers: {easy: 2}, train_problems: 200, benchmark_problems: 6}
  model:
    type: tiny
    warm_start: {target_accuracy: 0.02, consolidation_steps: 0, behaviour_steps: 5}
  training: {steps: 4, prompts_per_step: 4, mini_batch_prompts: 4}
  rollout: {group_size: 4}
  evaluation: {every: 2, samples_per_problem: 2}
axes:
  seed: [0, 1]
"""
SECONDS = 900
"""More than a sweep of two such runs takes on any machine, unless others take all of it."""


@dataclass(frozen=True)
class Point:
    """Before an event happens for the `time`-th time."""

    event: str
    time: int

    def __str__(self) -> str:
        return f"{self.time} {self.event}"


class Folder:
    """A data folder beside its sweep file, and the command that works in it."""

    def __init__(self, root: Path, api: str, is_real: bool) -> None:
        self.root, self.home = root, root / "data"
        self.api = api
        self.module = "rpg" if is_real else "benchmarks.trivial"
        root.mkdir(parents=True)
        text = REAL if is_real else SWEEP.format(name=NAME, steps=4, every=2, seeds=[0, 1])
        (root / "sweep.yaml").write_text(text)

    def sweep(self, point: Point | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command to its end, or until it is killed."""
        site = Path(__file__).parent / "kill_site"
        environment = {
            **os.environ,
            **quiet_environment(self.root),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)]),
            "PREFECT_API_URL": self.api,
            "RPG_SLOTS_FOLDER": str(self.root / "slots"),
            kill_hook.HOME: f"{self.home}/",
            kill_hook.LOG: str(self.root / "events"),
        }
        if point:
            environment[kill_hook.POINT] = str(point)
        return subprocess.run(
            [sys.executable, "-m", self.module, "sweep", "sweep.yaml", "--home", str(self.home)],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def events(self) -> list[str]:
        return (self.root / "events").read_text("utf-8").splitlines()


def results(home: Path) -> dict[str, Any]:
    """Every bit of the results, without times."""
    layout = Layout.at(home)
    runs = {}
    for folder in layout.run_folders(NAME):
        steps = folder.read_manifest()["steps"]
        runs[folder.name] = {
            "state": folder.state(),
            "damage": folder.damage(),
            "metrics": [
                {name: value for name, value in row.items() if not by_clock(name)}
                for row in folder.read_metrics()
            ],
            "samples": {
                (benchmark, step): read_eval(folder, benchmark, step).to_pylist()
                for benchmark in folder.benchmarks()
                for step in folder.eval_steps(benchmark)
            },
            "weights": (folder.checkpoint(steps) / "model.safetensors").read_bytes(),
        }
    with connect(layout) as db:
        table = db.execute("SELECT run, benchmark, step, accuracy FROM scores ORDER BY ALL")
        scores = table.fetchall()
    return {"runs": runs, "scores": scores, "table": shown(home)}


def shown(home: Path) -> str:
    return (home / "reports" / NAME / "table.md").read_text("utf-8")


def points_of(events: Sequence[str], count: int) -> list[Point]:
    """All from the last evaluation to CURRENT, and evenly spaced ones before; at most `count` in
    all, evenly, where the former alone are more."""
    numbered = []
    seen: Counter[str] = Counter()
    for event in events:
        seen[event] += 1
        numbered.append(Point(event, seen[event]))
    last = max(
        i
        for i, event in enumerate(events)
        if event.startswith("rename runs/") and "/evals/" in event
    )
    end = max(i for i, event in enumerate(events) if event.endswith("/CURRENT")) + 1
    late, early = numbered[last:end], numbered[:last]
    if len(late) >= count:
        return evenly(late, count)
    return [*evenly(early, count - len(late)), *late]


def evenly(points: Sequence[Point], count: int) -> list[Point]:
    if count >= len(points):
        return list(points)
    return [points[(2 * i + 1) * len(points) // (2 * count)] for i in range(count)]


@dataclass(frozen=True)
class Outcome:
    """What became of a sweep that was to be killed at a point, in a few words."""

    words: str
    is_wrong: bool = False
    was_killed: bool = True


def outcome_of(point: Point, folder: Folder, truth: dict[str, Any]) -> Outcome:
    """Kill a sweep there and run it again; whatever becomes of it, the next point is tried."""
    try:
        return killed_at(point, folder, truth)
    except subprocess.TimeoutExpired:
        return Outcome(f"it took more than {SECONDS} s", is_wrong=True)
    except (StoreError, OSError, LookupError) as error:
        return Outcome(f"its results cannot be read: {error}", is_wrong=True)


def killed_at(point: Point, folder: Folder, truth: dict[str, Any]) -> Outcome:
    """Kill a sweep there and run it again."""
    killed = folder.sweep(point)
    was_killed = killed.returncode == -signal.SIGKILL
    if killed.returncode != 0:
        again = folder.sweep()
        if again.returncode != 0:
            said = (again.stdout + again.stderr)[-600:]
            return Outcome(f"the rerun ended with {again.returncode}: {said}", True, was_killed)

    now = results(folder.home)
    wrong = [name for name in truth if now[name] != truth[name]]
    if wrong:
        return Outcome(f"{', '.join(wrong)} differ", is_wrong=True, was_killed=was_killed)
    if not was_killed:
        # The same events came in another order, or fewer times.
        return Outcome("it did not come to this point; the same bits", was_killed=False)
    return Outcome("the same bits")


def tried(
    point: Point, whole: Folder, root: Path, truth: dict[str, Any], is_real: bool
) -> dict[str, Any]:
    """What became of it in a folder of its own, as the fields of an Outcome."""
    folder = Folder(root, whole.api, is_real)
    if is_real:  # data and initial model are not what is killed here
        shutil.copytree(whole.home / "cache", folder.home / "cache")
    outcome = outcome_of(point, folder, truth)
    shutil.rmtree(root, ignore_errors=True)
    return asdict(outcome)


@contextmanager
def server(root: Path, port: int) -> Iterator[str]:
    """One Prefect server for all; its API's URL."""
    service = private(port, root / "server.log")
    service.environment |= quiet_environment(root)
    start_in_turn([service], root)
    try:
        yield f"http://{HOST}:{port}/api"
    finally:
        service.stop(3)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--port", type=int, default=48213)
    parser.add_argument("--results", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and its server stops
    kept = KeptResults(options.results)
    kind = "real" if options.real else "made up"
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="kill-points-") as place:
        root = Path(place)
        with server(root, options.port) as api:
            whole = Folder(root / "whole", api, options.real)
            done = whole.sweep()
            if done.returncode:
                print(done.stdout, done.stderr)
                return 2
            truth = results(whole.home)
            # Another undisturbed sweep may list them in another order: the first list counts.
            events = kept.of(f"moments, {kind}", whole.events)
            points = points_of(events, options.points)
            print(f"{len(events)} moments, {len(points)} kills", flush=True)
            for number, point in enumerate(points):
                trial = partial(tried, point, whole, root / str(number), truth, options.real)
                outcome = Outcome(**kept.of(f"{kind}: {point}", trial))
                outcomes.append(outcome)
                print(f"{number + 1:3} {point}: {outcome.words}", flush=True)

    faults = sum(outcome.is_wrong for outcome in outcomes)
    kills = sum(outcome.was_killed for outcome in outcomes)
    print(f"{faults} of {len(points)} kills left something wrong; {kills} happened")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
