"""The flow of a sweep: prepare -> train -> evaluate checkpoints as they appear -> aggregate -> report.

Files are the truth and Prefect's states a view of them: every stage derives what is still to do from the run
folders, so running the same sweep again does exactly what is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flows.machine import programs
from flows.machine.children import Children
from flows.machine.slots import machine
from flows.prefect.reconcile import cancelled, tasks_cancelled
from flows.sweep.context import Context
from flows.sweep.registration import register
from flows.sweep.sharing import Claims
from flows.sweep.tracking import tracked
from rpg.config.sweep_spec import Sweep
from rpg.errors import UserError
from rpg.fork_server import ForkServer
from rpg.processes import end_orphans, owner_mark, quick_imports
from rpg.store import Layout, RunFolder, StoreError, locks
from rpg.store.run_folder import pending_evaluations
from rpg.store.run_provenance import of_other_code

if TYPE_CHECKING:
    from flows.monitor import Progress


class SweepBusy(UserError):
    """Another process is running this sweep on the same data folder."""


@dataclass
class Outcome:
    """What a call did. `failed` maps run folder names to their one-line errors; `error` is a failed stage's."""

    total: int
    trained: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    seconds: float = 0.0


def unfinished(folders: Sequence[RunFolder], fresh: bool = False) -> list[RunFolder]:
    """Runs that lack DONE.json, or an evaluation that their manifest promises; `fresh`: or were trained by other code."""
    again = set(of_other_code(folders)[0]) if fresh else set()
    return [
        folder
        for folder in folders
        if not folder.done_path.exists() or folder.name in again or pending_evaluations(folder)
    ]


@contextmanager
def sweep_lock(layout: Layout, name: str) -> Iterator[None]:
    """One conductor per sweep and data folder; the kernel frees the lock however its holder ends."""
    path = layout.sweep_folder(name) / ".conductor"
    try:
        lock = locks.take(path, beat=True)
    except StoreError as error:
        raise StoreError(f"{error}; set RPG_HOME or --home to a writable folder") from None
    if lock is None:
        raise SweepBusy(
            f"sweep {name!r} is already being run by {locks.who(path)} in {layout.home}; "
            f"follow it with: rpg status {name}, or run this one beside it under another name: --name"
        )
    with lock:
        yield


def conduct(
    sweep: Sweep, layout: Layout, workers: int, progress: Progress | None = None, fresh: bool = False
) -> Outcome:
    """Run what is missing of a sweep, under Prefect, and rebuild database and report.

    `workers` trainings go on at a time. Interrupting (Ctrl-C, SIGTERM) ends every child before it is re-raised.
    `fresh`: what other code than today's has trained is trained again.

    Raises:
        flows.prefect.server.ServerError, rpg.store.layout.StoreError
    """
    from flows.prefect.server import prefect_api

    started = time.time()
    end_orphans()  # of a conductor that was killed
    folders = register(sweep, layout, fresh)
    due = unfinished(folders)
    outcome = Outcome(total=len(folders), trained=len(due))
    if not due and any(run.spec.track for run in sweep.runs):
        children = Children()
        with tracked(sweep, layout, children):  # what an earlier call could not send
            pass
        children.stop()
    if due:
        children, claims = Children(_fork_server(sweep, layout)), Claims(layout)
        try:
            with tracked(sweep, layout, children), prefect_api(layout.home):
                with quick_imports():
                    from prefect import tags

                    from flows.prefect.flow_runs import folder_tag
                    from flows.sweep.flow import run_stages

                context = Context(children, progress, machine(), claims)
                try:
                    with tags(folder_tag(layout.home)):
                        run_stages(
                            sweep.spec.name,
                            [folder.name for folder in due],
                            str(layout.home),
                            workers,
                            context,
                        )
                except KeyboardInterrupt:
                    with suppress(
                        Exception
                    ):  # the API may be what is being stopped; `rpg reconcile` says less
                        if context.flow_run:
                            cancelled(context.flow_run, "stopped on purpose")
                        elif context.adopted_by:
                            tasks_cancelled(context.adopted_by, "stopped on purpose")
                    raise
        except Exception as error:
            outcome.error = _in_a_line(error)
            if outcome.error is None:
                raise
        finally:
            children.stop()
            claims.close()
    for folder in folders:
        failure = folder.read_failed()
        if failure:
            outcome.failed[folder.name] = failure["error"]
    outcome.seconds = time.time() - started
    return outcome


def _fork_server(sweep: Sweep, layout: Layout) -> ForkServer | None:
    """One process for the imports of all children, where they are of the kind that it forks."""
    backends = [run.spec.backend for run in sweep.runs]
    wanted = all(one.device == "cpu" and one.threads == 1 for one in backends)
    if not wanted or sys.platform != "linux" or programs.TRAINER.format("local") not in programs.FORKED:
        return None
    return ForkServer(layout.sweep_folder(sweep.spec.name) / "fork-server.log", programs.FORKED, owner_mark())


def _in_a_line(error: BaseException) -> str | None:
    """What a person can do something about; None for a mistake of ours, which keeps its traceback.

    Files are the truth: when only the Prefect API failed (a full disk under its database, a lost server), the runs
    are as far as their folders say, and running the sweep again goes on from there.
    """
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    for one in chain:
        if isinstance(one, UserError):
            return str(one)
    for one in chain:
        if type(one).__module__.split(".")[0] in ("prefect", "httpx"):
            return (
                f"the Prefect server failed: {str(one).splitlines()[0] if str(one) else type(one).__name__}"
            )
    return None
