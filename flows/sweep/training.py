"""One run of a sweep: taken over from another sweep that has it, else trained in a process of its
own with a slot."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from pydantic import TypeAdapter, ValidationError

from flows.machine import programs
from flows.machine.children import Child, Stopped
from flows.machine.disk_space import WaitingNote
from flows.machine.ray_cluster import Remote
from flows.machine.slots import Held, need_of
from flows.machine.slurm_queue import Job
from flows.sweep.context import Context, RunFailed
from flows.sweep.sharing import take_over
from rpg.config.backend import BACKENDS, Backend, BackendSection, OnNodes, OnSlurm
from rpg.errors import UserError
from rpg.store import RunFolder
from rpg.store.live_status import TRAINING, read_progress
from rpg.store.run_folder import pending_evaluations
from rpg.store.run_writer import clear_waiting, write_failed, write_waiting
from rpg.system.processes import BUSY, LOST

_BACKEND: TypeAdapter[BackendSection] = TypeAdapter(Backend)
LEASE_SECONDS = 2.0
"""How often a run that somebody else works on is looked at."""
CLUSTER_LOG = "ray.log"
"""In the sweep's folder: what the connection to a Ray cluster has to say."""
BACKOFF = 5
LONGEST = 300.0
"""A run whose machine failed is started again after LEASE_SECONDS, then after this many times as
long, up to LONGEST s."""
SHARED_SECONDS = 60.0
"""How long shared storage may take until it shows here what a node has written."""


def train_in_process(folder: RunFolder, context: Context) -> None:
    """One training to its end, in its own process that holds a slot; nothing is trained that
    another sweep has already. Raises RunFailed: it failed; FAILED.json holds the same line.
    Stopped: the sweep is being stopped."""
    duplicate = context.claims.duplicate(folder)
    if duplicate:
        take_over(folder, duplicate)
        trained = folder.checkpoint(folder.read_manifest()["steps"]).exists()
        if trained and not pending_evaluations(folder):
            clear_waiting(folder)
            return
    backend = backend_of(folder)
    is_slurm = isinstance(getattr(backend, "place", None), OnSlurm)
    queue = context.children.slurm(folder.path.parent) if is_slurm else None
    code = BUSY
    losses = 0
    newest = -1
    # Another host was quicker: its run is waited for, a Slurm job of this sweep followed.
    while code in (BUSY, LOST):
        while folder.holder() and not (queue and queue.has(folder)):
            if context.children.stopping.wait(LEASE_SECONDS):
                raise Stopped
        space = context.disk.reserve(folder, context.children.stopping)
        with space, slot(folder, backend, context) as held:
            clear_waiting(folder)
            _put_failure_aside(folder)
            began = time.time()
            child = _start_process(folder, backend, context, held)
            code = context.children.wait(child)
        before = newest
        newest = (folder.checkpoint_steps() or [-1])[-1]
        losses = (0 if newest > before else losses) + (code == LOST)
        if isinstance(child, Remote):
            _settle(folder, child, context)
        if code == LOST:
            _note_loss(folder, child, losses, backend.attempts, context)
        wait = min(LEASE_SECONDS * BACKOFF ** max(losses - 1, 0), LONGEST)
        if code in (BUSY, LOST) and context.children.stopping.wait(wait):
            raise Stopped
    if code != 0:
        raise RunFailed(f"{folder.name}: {_failure(folder, backend, code, began)}")


def _failure(folder: RunFolder, backend: BackendSection, code: int, began: float) -> str:
    """What FAILED.json says; written here when the training process could not."""
    if folder.read_failed() is None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if code == -9:
            last = read_progress(folder.path / TRAINING) or {}
            phase = last.get("phase") if last.get("time", 0) > began else None
            how += f" in step {last['step']}, {phase}" if phase else ""
            advice = backend.less_memory(phase)
            how += f" (out of memory? {advice})" if advice else " (out of memory?)"
        write_failed(folder, f"the training process {how}")
    return str((folder.read_failed() or {}).get("error"))


def _start_process(
    folder: RunFolder, backend: BackendSection, context: Context, held: Held
) -> Child:
    """The training process: a child of this one, a process on a node of a Ray cluster, or a Slurm
    job."""
    module = programs.TRAINER.format(backend.type)
    place = getattr(backend, "place", None)
    if isinstance(place, OnSlurm):
        job = Job(module, backend.threads, backend.node(), place)
        return context.children.slurm(folder.path.parent).start(folder, job)
    if not isinstance(place, OnNodes):
        return context.children.start(
            module,
            folder.path,
            log=folder.log_path,
            threads=backend.threads,
            keep=[context.claims.fd(folder), *held.fds],
            extra=held.environment,
        )
    cpus = backend.threads if place.cpus is None else place.cpus
    needs = {"num_cpus": cpus, "num_gpus": place.gpus}
    if place.memory_gib:
        needs["memory"] = int(place.memory_gib * 2**30)
    write_waiting(folder, f"waits for a place on the Ray cluster at {place.address}")
    cluster = context.children.cluster(place.address, folder.path.parent / CLUSTER_LOG)
    return cluster.start(module, folder, backend.threads, needs, place.wait_minutes)


def _put_failure_aside(folder: RunFolder) -> None:
    """FAILED.json of an earlier attempt is kept, for those who look back."""
    if folder.failed_path.exists():
        folder.failed_path.replace(folder.path / f"FAILED-{max(folder.next_attempt() - 1, 0)}.json")


def _settle(folder: RunFolder, child: Remote, context: Context) -> None:
    """What the end of a training on a cluster means for its folder; RunFailed when the cluster
    cannot run it, or its files do not get here.
    """
    clear_waiting(folder)
    refused = child.answer.get("refused")
    if child.returncode == 0 and not _arrived(folder, child.answer["newest"], context):
        refused = (
            f"the node {child.answer['node']} wrote checkpoint {child.answer['newest']}, "
            "which this machine "
            f"does not see after {SHARED_SECONDS:.0f} s: the data folder must be on storage "
            "that both share"
        )
    if refused:
        write_failed(folder, refused)
        raise RunFailed(f"{folder.name}: {refused}")


def _note_loss(
    folder: RunFolder, child: Child, losses: int, attempts: int, context: Context
) -> None:
    """Say that a training was lost and starts again; RunFailed when that happened too often without
    a new checkpoint."""
    failed = folder.read_failed() or {}
    lost = child.answer.get("lost") if isinstance(child, Remote) else None
    lost = lost or failed.get("error") or "Ray or Slurm ended it"
    if losses >= attempts:
        why = (
            f"lost {losses} times in a row without a new checkpoint (backend.attempts), the "
            f"last time because {lost}"
        )
        write_failed(folder, why, **{name: failed.get(name) for name in ("step", "log", "tail")})
        raise RunFailed(f"{folder.name}: {why}")
    _put_failure_aside(folder)
    context.owner.log(
        f"{folder.name}: {lost}; it is restarted and continues from its last checkpoint"
    )


def _arrived(folder: RunFolder, step: int, context: Context) -> bool:
    """Wait until this machine sees a checkpoint that another one has written; False after
    SHARED_SECONDS."""
    deadline = time.monotonic() + SHARED_SECONDS
    while (folder.checkpoint_steps() or [-1])[-1] < step:
        if time.monotonic() > deadline:
            return False
        if context.children.stopping.wait(0.3):
            raise Stopped
    return True


def backend_of(folder: RunFolder) -> BackendSection:
    """The back end of a run; RunFailed (and FAILED.json) when its manifest names one that this
    version lacks."""
    section = folder.read_manifest()["spec"]["backend"]
    try:
        return _BACKEND.validate_python(section)
    except ValidationError as error:
        why = f"{error.errors()[0]['msg']} (back ends here: {', '.join(BACKENDS)})"
        line = f"{folder.manifest_path}: spec.backend: {why}"
        write_failed(folder, line)
        raise RunFailed(f"{folder.name}: {line}") from None


@contextmanager
def slot(folder: RunFolder, backend: BackendSection, context: Context) -> Iterator[Held]:
    """What the run needs of this machine; while it waits, its folder says for what."""
    need = need_of(backend, context.machine)
    if need is None:
        yield Held()
        return
    who = f"{folder.sweep}/{folder.name}"
    note = WaitingNote(folder)
    first = context.evaluation_waits if need.kind == "gpu" else None
    try:
        held = context.machine.wait(
            need, who, note.write, context.children.stopping, yield_to=first
        )
    except UserError as error:
        write_failed(folder, str(error))
        raise RunFailed(f"{folder.name}: {error}") from None
    with closing(held):
        yield held
