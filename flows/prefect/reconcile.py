"""Files and kernel locks show what is alive; Prefect's states and limits follow them, also after a
crash."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.prefect.flow_runs import ALIVE, alive_path, folder_tag
from flows.prefect.server import SERVE_LOCK, quiet_environment, using_api
from rpg.store import Layout, RunFolder, StoreError, lease_alive, locks
from rpg.store.lease import read_lease
from rpg.store.run_writer import clear_waiting, release_run
from rpg.system.processes import end_orphans, is_here

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State

WORKERS = Path("serve") / "workers"
"""In the data folder: a file for each other machine that works for `rpg serve`, locked by its `rpg
worker`."""
NEVER_STARTED_SECONDS = 600.0
"""A flow run that is Pending or Cancelling for so long, and never had a process, has lost its
worker."""
NO_PROCESS_SECONDS = 300.0
"""A flow run that is Running for so long, and has no process, was killed just before it could say
which it has. Its process imports Prefect first, which may take more than a minute on a machine with
much else to do."""
UNHEARD_SECONDS = 30.0
"""A flow run that is Cancelling for so long beside its living process: nobody told that process.
Prefect's runner hears of cancellations by a web socket, and asks for them itself only after that
broke with an error, not when it was closed."""
GRACE_SECONDS = 15.0
"""Between SIGTERM and SIGKILL of such a process, whose command takes
flows.prefect.flow_runs.GRACE_SECONDS."""
UNFINISHED = ["RUNNING", "PENDING", "CANCELLING"]
NOTHING_LOST = "nothing finished is lost: retry, or run the same sweep again"


def reconcile(
    layout: Layout, api: str | None = None, worker_since: float | None = None
) -> list[str]:
    """Repair and say what was repaired, a line each. Safe at any time, also beside sweeps that are
    running.

    `api` is the URL of the Prefect API; without one, that of the settings, else that of `rpg serve`
    of this folder. `worker_since` is when the only worker of this data folder was started (seconds
    since 1970), where that is known.

    - processes whose owner was killed are ended (rpg.system.processes.end_orphans);
    - leases and waiting notes of dead processes are removed from run folders, those of other hosts
      and containers never;
    - processes of flow runs whose cancellation did not reach them are ended;
    - flow runs that Prefect believes alive and whose process is gone become Crashed, or Cancelled
      where that was asked for, with their task runs; `rpg sweep` or the UI's Retry goes on from
      there.
    """
    done = [f"ended process {pid}: the command that started it is gone" for pid in end_orphans()]
    for sweep in layout.sweeps():
        for folder in layout.run_folders(sweep):
            done += _tidy(folder)
    os.environ.update(quiet_environment(layout.home))
    from prefect.settings import PREFECT_API_URL

    served = layout.home / SERVE_LOCK
    api = (
        api
        or PREFECT_API_URL.value()
        or (locks.note(served).get("api") if locks.held(served) else None)
    )
    if api:
        with using_api(api):
            done += _flow_runs(layout, worker_since)
    return done


def _tidy(folder: RunFolder) -> Iterator[str]:
    lease = folder.lease()
    if lease and is_here(lease) and not lease_alive(lease):
        with contextlib.suppress(StoreError):
            release_run(folder)
            yield (
                f"{folder.sweep}/{folder.name}: removed the lease of process "
                f"{lease.get('pid')}, which is gone"
            )
    note = read_lease(folder.path / "waiting.json")
    if note and is_here(note) and not lease_alive(note):
        with contextlib.suppress(StoreError):
            clear_waiting(folder)
            where = f"{folder.sweep}/{folder.name}"
            yield f"{where}: removed the waiting note of a process that is gone"


def _flow_runs(layout: Layout, worker_since: float | None) -> Iterator[str]:
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Cancelled

    if any(locks.alive(path) for path in (layout.home / WORKERS).glob("*")):
        worker_since = None  # of another machine's worker (`rpg worker`) it says nothing
    with get_client(sync_client=True) as client:
        for path in sorted((layout.home / ALIVE).glob("*")):
            identifier, _, attempt = path.name.partition(".")
            run = None
            with contextlib.suppress(ObjectNotFound, ValueError):
                run = client.read_flow_run(UUID(identifier))
            # Of the retry, which may still be starting, what an earlier attempt left says nothing.
            state = run.state if run and attempt == str(run.run_count) else None
            why = "its process is gone"
            if _may_live(path):
                if not state or not state.is_cancelling() or not _ended_unheard(path, state):
                    continue
                why = "its process had not heard of the cancellation"
            if run and state and (state.is_running() or state.is_cancelling()):
                yield _close(client, run, why)
            path.unlink(missing_ok=True)
        yield from _without_process(client, layout, worker_since)
        # Prefect calls the tasks of a cancelled flow run Crashed, which would alarm every
        # automation.
        ours = {
            "tags": {"all_": [folder_tag(layout.home)]},
            "state": {"type": {"any_": ["CANCELLED"]}},
        }
        _set_tasks(client, ours, ["CRASHED"], Cancelled(message="its flow run was cancelled"))


def _may_live(path: Path) -> bool:
    """Whether the process of an attempt may be alive: it holds its lock, or locks where we do not
    see it.

    An attempt that ends removes its file before it lets go of the lock. So a file that is still
    there once the lock is free is that of a process which was killed; one without a note is that of
    a process which is just taking the lock.
    """
    note = locks.note(path)
    if locks.other_machine(note):
        return locks.alive(path) or not path.exists()
    try:
        young = not note and time.time() - path.stat().st_mtime < NO_PROCESS_SECONDS
    except FileNotFoundError:
        return True
    return young or locks.held(path) or not path.exists()


def _ended_unheard(path: Path, cancelling: State) -> bool:
    """Ends the process of an attempt that should have ended long ago; whether there was one here,
    and it is gone."""
    note = locks.note(path)
    if time.time() - cancelling.timestamp.timestamp() < UNHEARD_SECONDS or not is_here(note):
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_SECONDS
        with contextlib.suppress(ProcessLookupError):
            if locks.held(path):  # else the process that has this number by now is another
                os.kill(note["pid"], number)
        while locks.held(path) and time.monotonic() < deadline:
            time.sleep(0.1)
    return not locks.held(path)


def _without_process(
    client: SyncPrefectClient, layout: Layout, worker_since: float | None
) -> Iterator[str]:
    """Flow runs of this data folder that were killed before they could hold a lock."""
    from prefect.client.schemas.filters import FlowRunFilter

    ours = {"state": {"type": {"any_": UNFINISHED}}, "tags": {"all_": [folder_tag(layout.home)]}}
    for run in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(ours)):
        if run.state is None or alive_path(layout.home, str(run.id), run.run_count).exists():
            continue
        since = run.state.timestamp.timestamp()
        allowed = NO_PROCESS_SECONDS if run.state.is_running() else NEVER_STARTED_SECONDS
        before_worker = worker_since is not None and run.deployment_id and since < worker_since
        if before_worker or time.time() - since > allowed:
            yield _close(client, run, "its worker was lost before it started")


def _close(client: SyncPrefectClient, run: FlowRun, why: str) -> str:
    """Give a flow run and its unfinished task runs the state that is true."""
    from prefect.states import Cancelled, Crashed

    new = Cancelled if run.state and run.state.is_cancelling() else Crashed
    _set_tasks(client, {"id": {"any_": [str(run.id)]}}, UNFINISHED, new(message=why))
    client.set_flow_run_state(run.id, new(message=f"{why}; {NOTHING_LOST}"), force=True)
    return f"flow run {run.name}: {new.__name__}, {why}"


def cancelled(flow_run: UUID, only_tasks: bool) -> None:
    """Say at the API in the settings that a flow run was stopped on purpose: Prefect takes every
    interrupt for a crash.

    `only_tasks`: the flow run's own process sets its state.
    """
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelled

    why = "stopped on purpose"
    with get_client(sync_client=True) as client:
        states = [*UNFINISHED, "CRASHED"]
        _set_tasks(client, {"id": {"any_": [str(flow_run)]}}, states, Cancelled(message=why))
        if not only_tasks:
            client.set_flow_run_state(
                flow_run, Cancelled(message=f"{why}; {NOTHING_LOST}"), force=True
            )


def _set_tasks(
    client: SyncPrefectClient, flow_runs: dict[str, Any], states: list[str], new: State
) -> None:
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter

    for task in client.read_task_runs(
        flow_run_filter=FlowRunFilter.model_validate(flow_runs),
        task_run_filter=TaskRunFilter.model_validate({"state": {"type": {"any_": states}}}),
    ):
        client.set_task_run_state(task.id, new, force=True)
