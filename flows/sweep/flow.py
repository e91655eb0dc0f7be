"""The stages of a sweep as Prefect tasks, and the flow that chains them. Imported only inside `prefect_api`."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec
from uuid import UUID

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.context import hydrated_context
from prefect.futures import PrefectFuture
from prefect.logging.handlers import APILogHandler
from prefect.results import get_result_store
from prefect.runtime import flow_run
from prefect.states import Cancelled, State
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.urls import url_for

from flows.machine import programs
from flows.machine.children import Stopped
from flows.prefect import artifacts
from flows.prefect.flow_runs import FLOW_RUN, alive
from flows.sweep.context import Context, StageFailed
from flows.sweep.evaluation import fail_unevaluated, finish, last_line, run_evaluator
from flows.sweep.gpu_evaluation import evaluate_in_turns, takes_turns
from flows.sweep.training import run_trainer
from rpg.store import Layout, RunFolder

AGGREGATE_SECONDS = 15.0
"""While runs finish, the database is rebuilt at most this often."""
LOOK_SECONDS = 0.2
CLAIM_SECONDS = 1.0
"""How often the conductor looks for evaluations that have ended, and for runs that another sweep has let go."""

AGGREGATE_SHARE = 20
"""While a large sweep goes on, building the database takes at most one part in so many of the time."""

P = ParamSpec("P")
# Nothing of a stage is cached or kept by Prefect: the run folders say what is done.
_plain = {"cache_policy": NO_CACHE, "persist_result": False}


def stoppable(body: Callable[P, None]) -> Callable[P, State | None]:
    """A task whose child was stopped on purpose was cancelled; raised, Prefect would call that failed."""

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> State | None:
        try:
            return body(*args, **kwargs)
        except Stopped:
            return Cancelled(message="stopped on purpose")

    return run


@task(name="prepare", task_run_name="prepare", **_plain)
@stoppable
def prepare(sweep: str, home: str, context: Context) -> None:
    """Data and warm starts of all runs, once each, in a process of its own (it imports torch)."""
    layout = Layout.at(home)
    log = layout.sweep_folder(sweep) / "prepare.log"
    child = context.children.start(programs.PREPARE, layout.sweep_folder(sweep), log=log)
    while child.poll() is None:
        context.note(last_line(log))
        time.sleep(0.3)
    context.note("")
    code = context.children.wait(child)
    if code != 0:
        why = last_line(log) if code > 0 else f"preparing data was killed by signal {-code}"
        raise StageFailed(f"{why} (log: {log})")


@task(name="train", task_run_name="train {run}", **_plain)
@stoppable
def train(run: str, folder: str, context: Context) -> None:
    """One run's training, in a process group of its own."""
    run_trainer(RunFolder(Path(folder)), context)


@task(name="evaluate", task_run_name="evaluate", **_plain)
@stoppable
def evaluate(sweep: str, home: str, context: Context, trainings_over: threading.Event) -> None:
    """All checkpoints of all runs, as they appear."""
    layout = Layout.at(home)
    if gpus := takes_turns(layout, sweep, context):
        evaluate_in_turns(layout, sweep, context, trainings_over, gpus, context.note)
    else:
        run_evaluator(layout, sweep, context.children, trainings_over, context.note)
    context.note("")


@task(name="aggregate", task_run_name="aggregate", **_plain)
def aggregate(home: str) -> str:
    """Bring the results database up to date; returns its file name."""
    from rpg.store.database import build

    return build(Layout.at(home)).path.name


@task(name="report", task_run_name="report", **_plain)
def report(sweep: str, home: str) -> list[str]:
    """Write the report's files; returns their paths."""
    from rpg.report.sweep_report import write_report

    return [str(path) for path in write_report(Layout.at(home), sweep)]


def run_stages(sweep: str, runs: list[str], home: str, workers: int, context: Context) -> None:
    """Train and evaluate `runs` of a registered sweep, `workers` trainings at a time; failures stay their own.

    The tasks belong to the flow run that started this command, where one did, else to one of their own.
    """
    owner = os.environ.get(FLOW_RUN)
    if owner is None:
        name = f"sweep {sweep}: {len(runs)} run{'s' * (len(runs) != 1)}"
        sweep_flow.with_options(flow_run_name=name)(sweep, runs, home, workers, context)
        return
    with _inside(UUID(owner)):
        context.adopted_by = UUID(owner)
        _linked(owner, sweep, runs, home, workers, context)


# validate_parameters: the context is ours and lives in this process; pydantic would look for a schema of it.
@flow(
    name="stages",
    task_runner=ThreadPoolTaskRunner(max_workers=64),
    persist_result=False,
    validate_parameters=False,
)
def sweep_flow(sweep: str, runs: list[str], home: str, workers: int, context: Context) -> None:
    context.flow_run = UUID(str(flow_run.id))
    context.log = _log_of(context.flow_run)
    artifacts.link(sweep)
    failure = None
    try:
        with alive(Path(home), str(flow_run.id), flow_run.run_count):
            _linked(str(flow_run.id), sweep, runs, home, workers, context)
    except StageFailed as error:
        failure = error
    artifacts.report(Layout.at(home), sweep)
    if failure:
        raise failure


def _log_of(owner: UUID) -> Callable[[str], None]:
    """Writes lines to the flow run's log at the API, and nowhere else: the terminal shows the progress."""
    log = logging.Logger("rpg.sweep", logging.INFO)
    log.addHandler(APILogHandler())
    return lambda line: log.info(line, extra={"flow_run_id": str(owner)})


@contextmanager
def _inside(owner: UUID) -> Iterator[None]:
    """Tasks that are called here are tasks of a flow run of another process, which waits for this one."""
    with get_client(sync_client=True) as client:
        found = {
            "flow": sweep_flow,
            "flow_run": client.read_flow_run(owner),
            "parameters": {},
            "persist_result": False,
            "result_store": get_result_store().update_for_flow(sweep_flow, _sync=True),
        }
        with hydrated_context({"flow_run_context": found}, client):
            yield


def _linked(owner: str, sweep: str, runs: list[str], home: str, workers: int, context: Context) -> None:
    # For the dashboard's link; a private server has no page to link to.
    Layout.at(home).write_flow_run(sweep, url_for("flow-run", obj_id=owner))
    try:
        _sweep(sweep, runs, home, workers, context)
    except BaseException:
        # Before Prefect waits for the tasks' threads: those wait for their children.
        context.children.stop()
        raise


def _sweep(sweep: str, runs: list[str], home: str, workers: int, context: Context) -> None:
    layout = Layout.at(home)
    folders = [layout.run(sweep, name) for name in runs]
    context.say("preparing data and warm start")
    prepare.submit(sweep, home, context).result()  # in a thread, as all that may be stopped

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
            failed = folder.read_failed() or {}
            context.log(f"{folder.name}: {'failed: ' + str(failed.get('error')) if failed else 'trained'}")
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
