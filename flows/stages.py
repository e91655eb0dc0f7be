"""The stages of a sweep as Prefect tasks, and the flow that chains them. Imported only inside `prefect_api`."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from uuid import UUID

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.urls import url_for

from flows import processes
from flows.context import Context, StageFailed
from flows.evaluating import fail_unevaluated, finish, last_line, run_evaluator
from flows.follow import alive
from flows.training import run_trainer
from rpg.store import Layout, RunFolder

AGGREGATE_SECONDS = 15.0
"""While runs finish, the database is rebuilt at most this often."""
LOOK_SECONDS = 0.2
CLAIM_SECONDS = 1.0
"""How often the conductor looks for evaluations that have ended, and for runs that another sweep has let go."""

AGGREGATE_SHARE = 20
"""While a large sweep goes on, building the database takes at most one part in so many of the time."""

# Nothing of a stage is cached or kept by Prefect: the run folders say what is done.
_plain = {"cache_policy": NO_CACHE, "persist_result": False}


@task(name="prepare", **_plain)
def prepare(sweep: str, home: str, context: Context) -> None:
    """Data and warm starts of all runs, once each, in a process of its own (it imports torch)."""
    layout = Layout.at(home)
    log = layout.sweep_folder(sweep) / "prepare.log"
    child = context.children.start(processes.PREPARE, layout.sweep_folder(sweep), log=log)
    while child.poll() is None:
        context.note(last_line(log))
        time.sleep(0.3)
    context.note("")
    code = context.children.wait(child)
    if code != 0:
        why = last_line(log) if code > 0 else f"preparing data was killed by signal {-code}"
        raise StageFailed(f"{why} (log: {log})")


@task(name="train", task_run_name="train {run}", **_plain)
def train(run: str, folder: str, context: Context) -> None:
    """One run's training, in a process group of its own."""
    run_trainer(RunFolder(Path(folder)), context)


@task(name="evaluate", **_plain)
def evaluate(sweep: str, home: str, context: Context, trainings_over: threading.Event) -> None:
    """All checkpoints of all runs, as they appear."""
    run_evaluator(Layout.at(home), sweep, context.children, trainings_over, context.note)
    context.note("")


@task(name="aggregate", **_plain)
def aggregate(home: str) -> str:
    """Bring the results database up to date; returns its file name."""
    from rpg.store.database import build

    return build(Layout.at(home)).path.name


@task(name="report", **_plain)
def report(sweep: str, home: str) -> list[str]:
    """Write the report's files; returns their paths."""
    from rpg.report import write_report

    return [str(path) for path in write_report(Layout.at(home), sweep)]


# validate_parameters: the context is ours and lives in this process; pydantic would look for a schema of it.
@flow(
    name="stages",
    task_runner=ThreadPoolTaskRunner(max_workers=64),
    persist_result=False,
    validate_parameters=False,
)
def sweep_flow(sweep: str, runs: list[str], home: str, workers: int, context: Context) -> None:
    """Train and evaluate `runs` of a registered sweep, `workers` trainings at a time; failures stay their own."""
    # For the dashboard's link; a private server has no page to link to.
    Layout.at(home).write_flow_run(sweep, url_for("flow-run", obj_id=flow_run.id))
    context.flow_run = UUID(str(flow_run.id))
    try:
        with alive(Path(home), str(flow_run.id), flow_run.run_count):
            _sweep(sweep, runs, home, workers, context)
    except BaseException:
        # Before Prefect waits for the tasks' threads: those wait for their children.
        context.children.stop()
        raise


def _sweep(sweep: str, runs: list[str], home: str, workers: int, context: Context) -> None:
    layout = Layout.at(home)
    folders = [layout.run(sweep, name) for name in runs]
    context.say("preparing data and warm start")
    prepare(sweep, home, context)

    context.say("training and evaluating")
    over = threading.Event()
    evaluation = evaluate.submit(sweep, home, context, over)
    try:
        failures = _train_all(folders, home, workers, context)
        context.say("evaluating the last checkpoints")
    finally:
        over.set()
    failures.append(_failure(evaluation))
    finish(folders)
    fail_unevaluated(folders)
    context.say("building database and report")
    aggregate(home)
    report(sweep, home)
    if any(failures):
        raise StageFailed("; ".join(filter(None, failures)))


def _train_all(folders: list[RunFolder], home: str, workers: int, context: Context) -> list[str | None]:
    """Every training, `workers` at a time; a run that another sweep works on is left for last. Returns errors."""
    queue, running, trained, failures = list(folders), {}, [], []
    building, began, due, look = None, 0.0, time.monotonic() + AGGREGATE_SECONDS, 0.0
    while queue or running:
        while queue and len(running) < workers and time.monotonic() >= look:
            folder = next((one for one in queue if context.claims.take(one)), None)
            if folder is None:  # other sweeps work on all that is left
                look = time.monotonic() + CLAIM_SECONDS
                break
            queue.remove(folder)
            running[train.submit(folder.name, str(folder.path), context)] = folder
        futures = {future.wrapped_future: future for future in running}
        for ended in wait(futures, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED).done:
            folder = running.pop(futures[ended])
            failures.append(_failure(futures[ended]))
            trained.append(folder)
        if not running:
            time.sleep(LOOK_SECONDS if queue else 0)
        over = finish(trained)
        for folder in over:  # only now: until its last evaluation another sweep would do it again
            trained.remove(folder)
            context.claims.release(folder)
        if building and building.wrapped_future.done():
            took, building = time.monotonic() - began, None
            due = time.monotonic() + max(AGGREGATE_SECONDS, AGGREGATE_SHARE * took)
        if over and not building and time.monotonic() > due:
            building, began = aggregate.submit(home), time.monotonic()
    if building:
        building.wait()
    return failures


def _failure(future: PrefectFuture) -> str | None:
    """The one-line error of a stage that failed; anything unexpected, and a stop, is raised."""
    try:
        future.result()
    except StageFailed as error:
        return str(error)
    return None
