"""A sweep, top down: prepare, train, evaluate as checkpoints appear, aggregate, report.

The names are those that Prefect's pages show. Nothing of a task is cached or kept by Prefect: the
run folders say what is done, and every task derives from them what is left to do. Imported only
inside `prefect_api`.
"""

import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture
from prefect.states import Cancelled, State
from prefect.task_runners import ThreadPoolTaskRunner

from flows.machine import programs
from flows.machine.children import Stopped
from flows.prefect.flow_runs import folder_tag
from flows.sweep.context import Context, RunFailed, StageFailed, SweepFailed
from flows.sweep.evaluation import evaluate_checkpoints, mark_done, mark_unevaluated
from flows.sweep.training import train_in_process
from rpg.errors import UserError, plural
from rpg.store import Layout, RunFolder

AGGREGATE_SECONDS = 15.0
"""While runs finish, the database is rebuilt at most this often."""
AGGREGATE_SHARE = 20
"""While a large sweep goes on, building the database takes at most one part in this many of the
time."""
POLL_SECONDS = 0.2
CLAIM_SECONDS = 1.0
"""How often the conductor looks for evaluations that have ended, and for runs that another sweep
has released."""

P = ParamSpec("P")
R = TypeVar("R")
_uncached: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False}


def stoppable(body: Callable[P, None]) -> Callable[P, State | None]:
    """A task whose child was stopped on purpose was cancelled; raised, Prefect would call that
    failed."""

    @functools.wraps(body)
    def cancelled_if_stopped(*args: P.args, **kwargs: P.kwargs) -> State | None:
        try:
            body(*args, **kwargs)
        except Stopped:
            return Cancelled(message="stopped on purpose")
        return None

    return cancelled_if_stopped


def without_frames(body: Callable[P, R]) -> Callable[P, R]:
    """A task of which a mistake of the user keeps no frames. Prefect holds on to its error, the
    frames would hold the database's objects until the interpreter ends, and nanobind would complain
    of each of them then."""

    @functools.wraps(body)
    def with_a_plain_mistake(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return body(*args, **kwargs)
        except UserError as error:
            mistake = StageFailed(str(error))
        raise mistake

    return with_a_plain_mistake


def run_flow(runs: list[str], workers: int, context: Context) -> None:
    """Run the flow, or its body where the tasks belong to the flow run of another process."""
    arguments = (context.sweep, runs, workers, context)
    try:
        with tags(folder_tag(context.layout.home)):
            if context.owner.adopted:
                with context.owner.adopt(sweep):
                    sweep.fn(*arguments)
            else:
                title = f"sweep {context.sweep}: {plural(len(runs), 'run')}"
                sweep.with_options(flow_run_name=title)(*arguments)
    except KeyboardInterrupt:
        with suppress(
            Exception
        ):  # the API may be what is being stopped; `rpg reconcile` does it later
            context.owner.stopped()
        raise


# validate_parameters: pydantic would look for a schema of the context, which lives in this process
# only.
@flow(
    task_runner=ThreadPoolTaskRunner(max_workers=64),
    persist_result=False,
    validate_parameters=False,
)
def sweep(sweep: str, runs: list[str], workers: int, context: Context) -> None:
    """Train and evaluate `runs` of a registered sweep, `workers` at a time; a run that fails leaves
    the others alone."""
    folders = [context.layout.run(sweep, name) for name in runs]
    with context.owner.shown():
        try:
            failures = run_stages(folders, workers, context)
        except BaseException:
            # Before Prefect waits for the tasks' threads: those wait for their children.
            context.children.stop()
            raise
        if failures:
            raise SweepFailed("; ".join(failures))


def run_stages(folders: Sequence[RunFolder], workers: int, context: Context) -> list[str]:
    """Every stage in order; what failed in it, a sentence for each run or stage."""
    _announce(context, "preparing data and models")
    prepare.submit(context).result()  # in a thread, as all that may be stopped

    _announce(context, "training and evaluating")
    trainings_over = threading.Event()
    evaluation = evaluate.submit(context, trainings_over)
    try:
        failures = train_all(folders, workers, context)
        _announce(context, "evaluating the last checkpoints")
    finally:
        trainings_over.set()
    failures += _failure(evaluation)
    mark_done(folders)
    mark_unevaluated(folders)

    _announce(context, "building database and report")
    aggregate(context.layout)
    if context.reported:
        report(context.layout, context.sweep)
    return failures


@task(task_run_name="prepare", **_uncached)
@stoppable
def prepare(context: Context) -> None:
    """Data and warm starts of all runs, once each, in a process of its own (it imports torch)."""
    folder = context.layout.sweep_folder(context.sweep)
    log = folder / "prepare.log"
    child = context.children.start(programs.PREPARE, folder, log=log)
    [code] = context.children.watch([child], log, context.progress.tell)
    context.progress.tell("")
    if code != 0:
        why = (
            programs.last_line(log) if code > 0 else f"preparing data was killed by signal {-code}"
        )
        raise StageFailed(f"{why} (log: {log})")


@task(task_run_name="train {run}", **_uncached)
@stoppable
def train(run: str, context: Context) -> None:
    """One run's training, in a process group of its own."""
    train_in_process(context.layout.run(context.sweep, run), context)


@task(task_run_name="evaluate", **_uncached)
@stoppable
def evaluate(context: Context, trainings_over: threading.Event) -> None:
    """All checkpoints of all runs, as they appear."""
    evaluate_checkpoints(context, trainings_over)
    context.progress.tell("")


@task(task_run_name="aggregate", **_uncached)
@without_frames
def aggregate(layout: Layout) -> str:
    """Bring the results database up to date; returns its file name."""
    from rpg.store.database import build  # noqa: PLC0415 - pandas and duckdb: not while the first trainings begin

    return build(layout).name


@task(task_run_name="report", **_uncached)
@without_frames
def report(layout: Layout, sweep: str) -> list[str]:
    """Write the report's files; returns their paths."""
    from rpg.report.upkeep import write  # noqa: PLC0415 - as for the database

    return [str(path) for path in write(layout, sweep)]


def train_all(folders: Sequence[RunFolder], workers: int, context: Context) -> list[str]:
    """Every training, `workers` at a time; a run that another sweep works on is left for last.
    Returns errors."""
    queue = list(folders)
    running: dict[PrefectFuture[Any], RunFolder] = {}
    trained: list[RunFolder] = []
    failures: list[str] = []
    database = DatabaseUpdates(context.layout)
    claim_at = 0.0
    while queue or running:
        while queue and len(running) < workers and time.monotonic() >= claim_at:
            folder = next((folder for folder in queue if context.claims.take(folder)), None)
            if folder is None:  # other sweeps work on all that is left
                claim_at = time.monotonic() + CLAIM_SECONDS
                break
            queue.remove(folder)
            running[train.submit(folder.name, context)] = folder
        futures = {future.wrapped_future: future for future in running}
        for ended in wait(futures, POLL_SECONDS, FIRST_COMPLETED).done:
            folder = running.pop(futures[ended])
            failures += _failure(futures[ended])
            failed = folder.read_failed()
            outcome = f"failed: {failed.get('error')}" if failed else "trained"
            context.owner.log(f"{folder.name}: {outcome}")
            trained.append(folder)
        context.owner.trained.show(context.progress.watch.share())
        if queue and not running:
            time.sleep(POLL_SECONDS)
        complete = mark_done(trained)
        for (
            folder
        ) in complete:  # only now: until its last evaluation another sweep would do it again
            trained.remove(folder)
            context.claims.release(folder)
        database.update(changed=bool(complete))
    database.wait()
    context.owner.trained.show(context.progress.watch.share())
    return failures


class DatabaseUpdates:
    """Rebuilds the database while runs finish: now and then, and for a small part of the time."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._building: PrefectFuture[Any] | None = None
        self._began = 0.0
        self._due = time.monotonic() + AGGREGATE_SECONDS

    def update(self, changed: bool) -> None:
        now = time.monotonic()
        if self._building and self._building.wrapped_future.done():
            self._building = None
            self._due = now + max(AGGREGATE_SECONDS, AGGREGATE_SHARE * (now - self._began))
        if changed and not self._building and now > self._due:
            self._building = aggregate.submit(self._layout)
            self._began = now

    def wait(self) -> None:
        if self._building:
            self._building.wait()


def _announce(context: Context, phase: str) -> None:
    context.owner.log(phase)
    context.progress.phase = phase
    context.progress.began = time.monotonic()


def _failure(future: PrefectFuture[Any]) -> list[str]:
    """The error of a task whose run or stage failed, as a list of one; anything unexpected, and a
    stop, is raised."""
    try:
        future.result()
    except (RunFailed, StageFailed) as error:
        return [str(error)]
    return []
