"""One conductor for a sweep: it writes down what is to be done, and runs what is missing under
Prefect."""

import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from flows.machine import programs
from flows.machine.children import Children
from flows.machine.slots import machine
from flows.machine.slurm_queue import require_slurm
from flows.monitor import Progress
from flows.prefect.server import prefect_api
from flows.sweep.context import Context
from flows.sweep.evaluation import mark_done
from flows.sweep.renewal import refuse_older_format, renew, renew_digests
from flows.sweep.sharing import Claims
from rpg import next_steps
from rpg.config.backend import OnSlurm
from rpg.config.code import kept_sources
from rpg.config.identity import identities
from rpg.config.sweep_spec import PlannedRun, Sweep
from rpg.errors import UserError, first_line
from rpg.store import Layout, RunFolder, StoreError, locks
from rpg.store.current import imported_runs
from rpg.store.run_folder import pending_evaluations
from rpg.store.run_writer import write_manifest
from rpg.system import provenance
from rpg.system.fork_server import ForkServer
from rpg.system.processes import owner_mark, quick_imports
from rpg.tasks.preparation import older_data_digests

FULL = 2**20
"""Bytes that are free on a disk to which a database can write no more."""
TRACKING_LOG = "tracking.log"
TRACKING_SECONDS = 60.0
"""For the numbers that are still to be sent when a sweep is over; those that are not are sent with
the next call."""


@contextmanager
def sweep_lock(layout: Layout, name: str) -> Iterator[None]:
    """One conductor per sweep and data folder; the kernel frees the lock however its holder ends.
    Raises Busy: another process is running this sweep."""
    path = layout.sweep_folder(name) / ".conductor"
    try:
        lock = locks.take(path, beat=True)
    except StoreError as error:
        raise StoreError(f"{error}; set RPG_HOME or --home to a writable folder") from None
    if lock is None:
        status = next_steps.command("status", name, layout=layout)
        raise locks.Busy(
            f"sweep {name!r} is already being run by {locks.who(path)} in {layout.home}; "
            f"follow it with: {status}, or run this one beside it under another name: --name"
        )
    with lock:
        yield


def register(sweep: Sweep, layout: Layout) -> list[RunFolder]:
    """Write sweep.json and a manifest for every run; what is already there for the same run stays
    untouched.

    StoreError if a folder cannot be written, a run's folder holds the manifest of another run, or a
    run is of an older format.
    """
    specs = {run.data: run.spec for run in sweep.runs}
    older = {old: data for data, spec in specs.items() for old in older_data_digests(spec)}
    older = {old: data for old, data in older.items() if old != data}
    refuse_older_format(layout, sweep.spec.name)
    renew_digests(layout, sweep.spec.name, older)
    folders = [layout.run(sweep.spec.name, run.folder) for run in sweep.runs]
    created = time.time()
    with suppress(StoreError):
        created = layout.read_sweep(sweep.spec.name).get("created") or created
    layout.write_sweep(
        {
            "name": sweep.spec.name,
            "description": sweep.spec.description,
            "labels": dict(sweep.labels),
            "source": sweep.source,
            "path": str(sweep.path),
            "baseline": sweep.baseline,
            "matters": sweep.spec.matters,
            "budget": sweep.spec.budget.tokens if sweep.spec.budget else None,
            "caution": sweep.caution,
            "created": created,
            "runs": [*(run.folder for run in sweep.runs), *imported_runs(layout, sweep.spec.name)],
            "benchmarks": list(
                dict.fromkeys(name for run in sweep.runs for name in run.spec.benchmarks())
            ),
        }
    )
    for folder, run in zip(folders, sweep.runs, strict=True):
        manifest = _manifest(sweep, run)
        if folder.manifest_path.exists() and _same_run(folder, run):
            renew(folder, manifest)
        else:
            write_manifest(folder, manifest)
    mark_done([folder for folder in folders if folder.reopened_path.exists()])
    return folders


def unfinished(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """Runs that lack DONE.json, or an evaluation that their manifest promises."""
    return [
        folder for folder in folders if not folder.done_path.exists() or pending_evaluations(folder)
    ]


def conduct(
    sweep: Sweep, layout: Layout, due: Sequence[RunFolder], workers: int, progress: Progress
) -> str | None:
    """Run what is `due` of a registered sweep, `workers` trainings at a time. Returns what failed
    in a line, or None.

    Interrupting (Ctrl-C, SIGTERM) ends every child before it is re-raised.
    """
    name = sweep.spec.name
    claims = Claims(layout)
    soft, hard = resource.getrlimit(
        resource.RLIMIT_NOFILE
    )  # a claim is open until its run's last evaluation
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2**16)), hard))
    children = Children(_fork_server(sweep, layout) if due else None)
    is_tracked = any(run.spec.track for run in sweep.runs)
    try:
        if due and any(
            isinstance(getattr(run.spec.backend, "place", None), OnSlurm) for run in sweep.runs
        ):
            require_slurm()
            children.slurm(layout.sweep_folder(name))
        with tracking(layout.sweep_folder(name), children) if is_tracked else nullcontext():
            if due:
                slots = machine()
                with prefect_api(layout.home):
                    with (
                        quick_imports()
                    ):  # here, because Prefect reads its settings when it is imported
                        from flows.prefect.ui import TaskOwner  # noqa: PLC0415 - see above
                        from flows.sweep.flow import run_flow  # noqa: PLC0415 - see above
                    owner = TaskOwner(layout, name)
                    context = Context(
                        layout, name, slots, children, claims, progress, owner, sweep.reported
                    )
                    run_flow([folder.name for folder in due], workers, context)
    except Exception as error:
        line = _one_line(error)
        if line is None:
            raise
        is_full = "no space" not in line and shutil.disk_usage(layout.home).free < FULL
        return f"{line}; no space is left in {layout.home}" if is_full else line
    finally:
        children.stop()
        claims.close()
    return None


@contextmanager
def tracking(folder: Path, children: Children) -> Iterator[None]:
    """Send the numbers of a sweep's runs to their trackers while it goes on inside; no failure of
    it fails the sweep."""
    child = children.start(
        programs.TRACKING, folder, log=folder / TRACKING_LOG, stdin=subprocess.PIPE
    )
    try:
        yield
    finally:
        with suppress(OSError):
            if child.stdin:
                child.stdin.close()
        deadline = time.monotonic() + TRACKING_SECONDS
        while (
            child.poll() is None and time.monotonic() < deadline and not children.stopping.wait(0.1)
        ):
            pass
        children.kill(child)
        children.wait(child)


def _fork_server(sweep: Sweep, layout: Layout) -> ForkServer | None:
    """One process for the imports of all children, when they are of the kind that it forks."""
    backends = [run.spec.backend for run in sweep.runs]
    one_thread = all(backend.device == "cpu" and backend.threads == 1 for backend in backends)
    if (
        not one_thread
        or sys.platform != "linux"
        or programs.TRAINER.format("local") not in programs.FORKED
    ):
        return None
    return ForkServer(
        layout.sweep_folder(sweep.spec.name) / "fork-server.log", programs.FORKED, owner_mark()
    )


def _one_line(error: BaseException) -> str | None:
    """An error that a person can do something about, in a line; None for a bug, which keeps its
    traceback.

    Files are the truth: when only the Prefect API failed (a full disk under its database, a lost
    server), the runs are as far as their folders say, and running the sweep again goes on from
    there.
    """
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    ours = next((link for link in chain if isinstance(link, UserError)), None)
    if ours:
        return str(ours)
    for link in chain:
        if type(link).__module__.split(".")[0] in ("prefect", "httpx"):
            return f"the Prefect server failed: {first_line(link)}"
    return None


def _same_run(folder: RunFolder, run: PlannedRun) -> bool:
    """True when the manifest is this run's; a torn one is written again (its content is derived
    from the sweep)."""
    try:
        run_id = folder.read_manifest()["run_id"]
    except StoreError:
        return False
    if run_id != run.run_id:
        mismatch = f"belongs to run {run_id}, not {run.run_id}; move that folder away"
        raise StoreError(f"{folder.manifest_path}: {mismatch}")
    return True


def _manifest(sweep: Sweep, run: PlannedRun) -> dict[str, Any]:
    spec = run.spec
    return {
        **identities(spec, run.data),
        "variant": run.variant,
        "algorithm": spec.algorithm.name,
        "display_name": spec.algorithm.display_name,
        "seed": spec.seed,
        "axes": run.axes,
        "baseline": sweep.baseline,
        "spec": spec.model_dump(mode="json"),
        "versions": provenance.versions(),
        "git_revision": provenance.git_revision(),
        "machine": provenance.machine(),
        "created": time.time(),
        "steps": spec.training.steps,
        "eval_steps": list(spec.eval_steps()),
        "benchmarks": list(spec.benchmarks()),
        **({"rewards": kept} if (kept := kept_sources(spec)) else {}),
    }
