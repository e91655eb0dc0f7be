"""What a sweep of 1,000 runs costs besides the runs, side by side with Ray Tune on the same number
of trivial trials.

    python -m benchmarks.thousand_runs [--runs 1000] [--workers 2] [--trials 1000]

Every run is a real process with a real run folder (manifest, metrics, two checkpoints, two
evaluations), a Prefect task, claims and slots; only training and evaluation do nothing
(benchmarks/trivial). A Ray Tune trial is a function that reports one number, on as many CPUs.
Printed: seconds per run, memory of the conductor and of the Prefect server as the sweep goes on,
their processor seconds, how quickly the API answers what the UI asks meanwhile, and, where there is
a Chromium, how long the UI's pages take in a new browser and when they are opened again, of the
empty server and of the finished sweep. Exit code 1 above 0.1 s per run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.browser import CHROMIUM, FLAGS
from benchmarks.trivial import SWEEP
from flows.prefect.server import HOST
from flows.serve.services import Plan, services_of
from rpg.store import Layout

BOUND = 0.1
RAY = """
import sys, time, json, os
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
import ray
from ray import tune
runs, workers, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
def trial(config):
    tune.report({"reward": config["seed"] / 1000})
began = time.time()
tuner = tune.Tuner(
    tune.with_resources(trial, {"cpu": 1}),
    param_space={"seed": tune.grid_search(list(range(runs)))},
    tune_config=tune.TuneConfig(reuse_actors=False),
    run_config=tune.RunConfig(storage_path=folder, name="trivial", verbose=0),
)
found = tuner.fit()
seconds = time.time() - began
print(json.dumps({"seconds": seconds, "errors": found.num_errors, "trials": len(found)}))
"""

ROOT = Path(__file__).resolve().parents[1]


def asked(url: str) -> float:
    """Seconds until the API has answered what the page of flow runs asks."""
    began = time.perf_counter()
    for path in ("flow_runs/filter", "task_runs/count", "flow_runs/count"):
        body = json.dumps({"limit": 100} if path.endswith("filter") else {}).encode()
        request = urllib.request.Request(
            f"{url}/{path}", body, {"content-type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=60).read()
    return time.perf_counter() - began


def ours(runs: int, workers: int, root: Path) -> float:
    """Seconds from the command to its end, the start of Prefect's server not included; prints
    memory on the way."""
    layout, file = Layout.at(root / "data"), root / "many.yaml"
    file.write_text(SWEEP.format(name="many", steps=1, every=1, seeds=list(range(runs))))
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        plan = Plan("rpg.__main__", probe.getsockname()[1], 0, None, "")
    server = services_of(layout, plan)[0]  # as `rpg serve` starts it, with the UI
    server.start()
    try:
        while not server.answers():
            time.sleep(0.2)
        assert server.process is not None
        if CHROMIUM:
            look(plan.ui)  # of an empty server
        seconds = swept(layout, file, runs, workers, plan.api, psutil.Process(server.process.pid))
        if CHROMIUM:
            look(plan.ui)
    finally:
        server.stop(3)
    return seconds


def swept(
    layout: Layout, file: Path, runs: int, workers: int, api: str, server: psutil.Process
) -> float:
    command = [
        sys.executable,
        "-m",
        "benchmarks.trivial",
        "sweep",
        str(file),
        "--home",
        str(layout.home),
    ]
    environment = {
        **os.environ,
        "PREFECT_API_URL": api,
        "RPG_SLOTS": str(workers),
        "PYTHONPATH": str(ROOT),
    }
    environment["RPG_SLOTS_FOLDER"] = str(file.with_name("slots"))
    log, began, before = file.with_name("log"), time.monotonic(), seconds_of(server)
    children, own = resource.getrusage(resource.RUSAGE_CHILDREN), 0.0
    with log.open("wb") as out:
        sweep = subprocess.Popen(
            [*command, f"--workers={workers}"], env=environment, stdout=out, stderr=out
        )
    conductor, said = psutil.Process(sweep.pid), 0
    while sweep.poll() is None:
        time.sleep(1)
        with contextlib.suppress(psutil.Error):  # it has just ended
            own = seconds_of(conductor)
        done = len(list(layout.home.glob("runs/many/*/DONE.json")))
        if done >= said + runs // 5 or (done and not said):
            said, answered, at = max(done, 1), asked(api), time.monotonic() - began
            sizes = (
                f"conductor {conductor.memory_info().rss >> 20} MB, server "
                f"{server.memory_info().rss >> 20} MB"
            )
            print(
                f"  {done:5d} done after {at:5.0f} s: {sizes}; the API answers in {answered:.2f} s",
                flush=True,
            )
    seconds = time.monotonic() - began
    done = len(list(layout.home.glob("runs/many/*/DONE.json")))
    if sweep.returncode or done != runs:
        raise SystemExit(
            f"{log.read_text()[-3000:]}\n{done} of {runs} runs are done, code {sweep.returncode}"
        )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    all_of_it = used.ru_utime + used.ru_stime - children.ru_utime - children.ru_stime
    print(
        f"processor seconds: conductor {own:.0f}, server {seconds_of(server) - before:.0f}, "
        f"per run {(all_of_it - own) / runs:.2f} in its own processes"
    )
    return seconds


def seconds_of(process: psutil.Process) -> float:
    """Processor seconds of a process without its children."""
    times = process.cpu_times()
    return float(times.user + times.system)


def look(ui: str) -> None:
    """Print how long the UI's pages take to show what they are for: the list of flow runs, also of
    a server that has none, and the newest sweep's page and its task runs."""
    from playwright.sync_api import Page, sync_playwright

    def list_of_runs(page: Page) -> str:
        page.locator(
            "a[href*='/runs/flow-run/'], :text('Run a task or flow to get started')"
        ).first.wait_for()
        return "list of flow runs"

    def sweep(page: Page) -> str:
        page.get_by_text(re.compile(r"\d Task runs")).first.wait_for()
        return "the sweep"

    def tasks(page: Page) -> str:
        page.get_by_text("Task Runs", exact=True).click()
        page.get_by_role("link", name=re.compile("^train ")).first.wait_for()
        return "its task runs"

    def times(address: str, *shown: Callable[[Page], str]) -> str | None:
        """Open the address three times in a new profile, print when each was shown; returns the
        first flow run's address."""
        seconds: dict[str, list[str]] = {}
        with tempfile.TemporaryDirectory() as profile:
            browser = runner.chromium.launch_persistent_context(
                profile,
                executable_path=CHROMIUM,
                args=FLAGS,
                viewport={"width": 1366, "height": 1000},
            )
            for _ in range(3):
                page, began = browser.new_page(), time.perf_counter()
                page.goto(address)
                for show in shown:
                    seconds.setdefault(show(page), []).append(f"{time.perf_counter() - began:.1f}")
                page.wait_for_load_state("networkidle")
                api = (
                    "performance.getEntriesByType('resource').filter(entry => "
                    "entry.name.includes('/api/'))"
                )
                slowest = page.evaluate(f"Math.max(...{api}.map(entry => entry.duration))")
                link = page.locator("a[href*='/runs/flow-run/']")
                found = link.first.get_attribute("href") if link.count() else None
                page.close()
            browser.close()
        for name, each in seconds.items():
            print(
                f"UI: {name} in a new browser after {each[0]} s, again after {each[1]} and "
                f"{each[2]} s"
            )
        print(f"    the API's slowest answer took {slowest / 1000:.2f} s", flush=True)
        return found

    with sync_playwright() as runner:
        if link := times(f"{ui}/runs", list_of_runs):
            times(f"{ui}{link}", sweep, tasks)


def ray_tune(runs: int, workers: int, root: Path) -> float:
    """Seconds of Tuner.fit() alone, the start of Ray not included."""
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", RAY, str(runs), str(workers), str(root / "ray")],
        env=environment,
        capture_output=True,
        text=True,
    )
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise SystemExit(f"Ray Tune did not finish:\n{done.stderr[-3000:]}") from None
    assert found["errors"] == 0 and found["trials"] == runs, found
    return found["seconds"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--trials", type=int, help="trials of Ray Tune; default: as many as runs; 0: none"
    )
    args = parser.parse_args()
    print(
        f"{args.runs} trivial runs, {args.workers} at a time, on {HOST}; load "
        f"{os.getloadavg()[0]:.1f} at the start"
    )
    with tempfile.TemporaryDirectory() as scratch:
        seconds = ours(args.runs, args.workers, Path(scratch))
        print(
            f"rpg sweep: {seconds:.0f} s, {seconds / args.runs:.3f} s per run, database and "
            "report included"
        )
        trials = args.runs if args.trials is None else args.trials
        if trials:
            other = ray_tune(trials, args.workers, Path(scratch))
            print(
                f"Ray Tune:  {other:.0f} s for {trials} trials, {other / trials:.3f} s per "
                "trial, without its start"
            )
            print(f"ratio:     {(other / trials) / (seconds / args.runs):.1f} x per run")
    return 1 if seconds / args.runs > BOUND else 0


if __name__ == "__main__":
    sys.exit(main())
