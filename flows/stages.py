"""The stages of a sweep as Prefect tasks, and the flow that chains them. Imported only inside `prefect_api`."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture
from prefect.task_runners import ThreadPoolTaskRunner

from flows.sweep import (
    AGGREGATE_SECONDS,
    StageFailed,
    fail_unevaluated,
    finish,
    last_line,
    run_evaluator,
    run_trainer,
)
from rpg.store import Layout, RunFolder

# Nothing of a stage is cached or kept by Prefect: the run folders say what is done.
_plain = {"cache_policy": NO_CACHE, "persist_result": False}


@task(name="prepare", **_plain)
def prepare(sweep: str, home: str, context: Any) -> None:
    """Data and warm starts of all runs, once each, in a process of its own (it imports torch)."""
    layout = Layout.at(home)
    log = layout.sweep_folder(sweep) / "prepare.log"
    child = context.children.start("rpg.backends.local.prepare", layout.sweep_folder(sweep), log=log)
    while child.poll() is None:
        context.note(last_line(log))
        time.sleep(0.3)
    context.note("")
    if context.children.wait(child) != 0:
        raise StageFailed(f"{last_line(log)} (log: {log})")


@task(name="train", task_run_name="train {run}", **_plain)
def train(run: str, folder: str, threads: int, context: Any) -> None:
    """One run's training, in a process group of its own."""
    run_trainer(RunFolder(Path(folder)), context.children, threads)


@task(name="evaluate", **_plain)
def evaluate(sweep: str, home: str, context: Any, trainings_over: threading.Event) -> None:
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


@flow(name="sweep", task_runner=ThreadPoolTaskRunner(max_workers=64), persist_result=False)
def sweep_flow(sweep: str, runs: list[str], home: str, workers: int, context: Any) -> None:
    """Train and evaluate `runs` of a registered sweep, `workers` trainings at a time; failures stay their own."""
    try:
        _sweep(sweep, runs, home, workers, context)
    except BaseException:
        # Before Prefect waits for the tasks' threads: those wait for their children.
        context.children.stop()
        raise


def _sweep(sweep: str, runs: list[str], home: str, workers: int, context: Any) -> None:
    layout = Layout.at(home)
    folders = [layout.run(sweep, name) for name in runs]
    context.say("preparing data and warm start")
    prepare(sweep, home, context)

    context.say("training and evaluating")
    over = threading.Event()
    evaluation = evaluate.submit(sweep, home, context, over)
    queue, trainings = list(folders), []
    aggregated = time.time()
    try:
        while queue or not all(_ended(t) for t in trainings):
            if queue and sum(not _ended(t) for t in trainings) < workers:
                folder = queue.pop(0)
                threads = folder.read_manifest()["spec"]["backend"]["threads"]
                trainings.append(train.submit(folder.name, str(folder.path), threads, context))
                continue
            time.sleep(0.2)
            if finish(folders) and time.time() - aggregated > AGGREGATE_SECONDS:
                aggregate(home)
                aggregated = time.time()
        context.say("evaluating the last checkpoints")
    finally:
        over.set()
    failures = [_failure(future) for future in (evaluation, *trainings)]
    finish(folders)
    fail_unevaluated(folders)
    context.say("building database and report")
    aggregate(home)
    report(sweep, home)
    if any(failures):
        raise StageFailed("; ".join(filter(None, failures)))


def _ended(future: PrefectFuture) -> bool:
    return future.wrapped_future.done()


def _failure(future: PrefectFuture) -> str | None:
    """The one-line error of a stage that failed; anything unexpected, and a stop, is raised."""
    try:
        future.result()
    except StageFailed as error:
        return str(error)
    return None
