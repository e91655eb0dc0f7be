"""The flow of a sweep: prepare -> train -> evaluate checkpoints as they appear -> aggregate -> report.

Files are the truth and Prefect's states a view of them: every stage derives what is still owed from the run
folders, so running the same sweep again does exactly what is missing.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flows.processes import Children
from flows.register import register
from flows.sharing import Claims
from flows.slots import Machine, machine
from rpg.config.sweep import Sweep
from rpg.errors import UserError
from rpg.evaluation import owed
from rpg.guard import end_orphans
from rpg.store import Layout, RunFolder, StoreError, locks
from rpg.store.files import read_json_object

if TYPE_CHECKING:
    from flows.live import Progress

PREPARE, EVALUATOR = "rpg.backends.local.prepare", "rpg.evaluation"
EVALUATION_LOG = "evaluation.log"
AGGREGATE_SECONDS = 15.0
"""While runs finish, the database is rebuilt at most this often."""
EVALUATOR_TRIES = 3
_TAIL_BYTES = 8192


class SweepBusy(UserError):
    """Another process is running this sweep on the same data folder."""


class StageFailed(UserError):
    """A stage all runs need (data, warm start) failed; the message is for people and names the log."""


@dataclass
class Outcome:
    """What a call did. `failed` maps run folder names to their one-line errors; `error` is a failed stage's."""

    total: int
    trained: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    seconds: float = 0.0


def unfinished(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """Runs that lack DONE.json, or an evaluation that their manifest promises."""
    return [folder for folder in folders if not folder.done_path.exists() or owed(folder)]


@contextmanager
def sweep_lock(layout: Layout, name: str) -> Iterator[None]:
    """One conductor per sweep and data folder; the kernel frees the lock however its holder ends."""
    path = layout.sweep_folder(name) / ".conductor"
    try:
        lock = locks.take(path)
    except StoreError as error:
        raise StoreError(f"{error}; set RPG_HOME or --home to a writable folder") from None
    if lock is None:
        raise SweepBusy(
            f"sweep {name!r} is already being run by process {locks.note(path).get('pid', '?')} in {layout.home}; "
            f"follow it with: rpg status {name}, or run this one beside it under another name: --name"
        )
    with lock:
        yield


def conduct(sweep: Sweep, layout: Layout, workers: int, progress: Progress | None = None) -> Outcome:
    """Run what a sweep still owes, under Prefect, and rebuild database and report.

    `workers` trainings go on at a time. Interrupting (Ctrl-C, SIGTERM) ends every child before it is re-raised.

    Raises:
        flows.server.ServerError, rpg.store.layout.StoreError
    """
    from flows.server import prefect_api

    started = time.time()
    end_orphans()  # of a conductor that was killed
    folders = register(sweep, layout)
    due = unfinished(folders)
    outcome = Outcome(total=len(folders), trained=len(due))
    if due:
        children, claims = Children(), Claims(layout)
        try:
            with prefect_api(layout.home):
                from prefect import tags

                from flows.follow import folder_tag
                from flows.stages import sweep_flow

                with tags(folder_tag(layout.home)):
                    sweep_flow.with_options(flow_run_name=sweep.spec.name)(
                        sweep.spec.name, [folder.name for folder in due], str(layout.home), workers,
                        Context(children, progress, machine(), claims),
                    )  # fmt: skip
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


@dataclass
class Context:
    """What the stages share within one process: never stored, never sent to the API."""

    children: Children
    progress: Progress | None
    machine: Machine
    claims: Claims

    def say(self, phase: str) -> None:
        if self.progress:
            self.progress.phase = phase

    def note(self, line: str) -> None:
        """A line about the phase that changes often."""
        if self.progress:
            self.progress.note = line


def finish(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """Write DONE.json for each run that is trained and evaluated; returns those that are done or failed."""
    over = []
    for folder in folders:
        if folder.done_path.exists() or folder.failed_path.exists():
            over.append(folder)
            continue
        if folder.state() == "running":
            continue
        manifest = folder.read_manifest()
        if not folder.checkpoint(manifest["steps"]).exists() or owed(folder):
            continue
        rows = folder.read_metrics().rows
        seconds = sum(row.get("seconds_step", 0.0) for row in rows)
        folder.write_done(seconds=seconds, attempts=len(folder.attempts()))
        over.append(folder)
    return over


def fail_unevaluated(folders: Sequence[RunFolder]) -> None:
    """When no evaluation will come any more, a trained run that still lacks one has failed, and says why."""
    for folder in folders:
        if folder.done_path.exists() or folder.failed_path.exists():
            continue
        missing = owed(folder)
        if not missing or not folder.checkpoint(folder.read_manifest()["steps"]).exists():
            continue
        benchmark, step = missing[0]
        record = folder.eval_path(benchmark, step).with_suffix(".error.json")
        try:
            why = read_json_object(record)["error"]
        except (StoreError, KeyError):
            why = f"step {step} was not evaluated on {benchmark}"
        folder.write_failed(str(why), step=step, log=str(folder.path.parent / EVALUATION_LOG))


def run_evaluator(
    layout: Layout,
    sweep: str,
    children: Children,
    trainings_over,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """One evaluation process for all runs; it is told by closing its input that no more checkpoints will come.

    `tell` gets the last line of its log now and then.
    """
    log = layout.sweep_folder(sweep) / EVALUATION_LOG
    for attempt in range(1, EVALUATOR_TRIES + 1):
        child = children.start(EVALUATOR, layout.sweep_folder(sweep), log=log, stdin=subprocess.PIPE)
        while child.poll() is None:
            if not child.stdin.closed and trainings_over.wait(0.2):
                child.stdin.close()
            elif child.stdin.closed:
                time.sleep(0.2)
            tell(last_line(log))
        child.stdin.close()
        code = children.wait(child)
        if code == 0:
            return
        if attempt == EVALUATOR_TRIES:
            raise StageFailed(f"evaluation ended with code {code} {EVALUATOR_TRIES} times; its log: {log}")


def last_line(path: Path) -> str:
    """The last line with text in a log, "" while there is none: a child's last word is its one-line error."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
