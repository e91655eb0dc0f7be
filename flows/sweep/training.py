"""One run of a sweep: taken over from another sweep that has it, else trained in a process of its own with a slot."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import TypeAdapter, ValidationError

from flows.machine import programs
from flows.machine.children import Stopped
from flows.machine.ray_cluster import LOST, Remote
from flows.machine.slots import Held, need_of
from flows.sweep.context import Context, StageFailed
from flows.sweep.sharing import take_over
from rpg.config.backend import BACKENDS, Backend, BackendSection, LocalBackend, OnNodes
from rpg.errors import UserError
from rpg.fork_server import ForkedProcess
from rpg.processes import BUSY
from rpg.store import RunFolder
from rpg.store.run_folder import pending_evaluations
from rpg.store.run_writer import clear_waiting, write_failed, write_waiting
from rpg.store.step_progress import TRAINING, read_progress

_BACKEND: TypeAdapter[BackendSection] = TypeAdapter(Backend)
SLOT_SECONDS = 0.3
"""A run that waits for a slot looks this often."""
SAID_SECONDS = 60.0
"""What it waits for is written again after so long: other hosts believe a note while it is young."""
LEASE_SECONDS = 2.0
"""A run that somebody else works on is looked at this often."""
CLUSTER_LOG = "ray.log"
"""In the sweep's folder: what the connection to a Ray cluster has to say."""
MOST_LOSSES = 3
"""How often in a row a run may lose its node without a new checkpoint."""
SHARED_SECONDS = 60.0
"""How long shared storage may take until it shows here what a node has written."""


def run_trainer(folder: RunFolder, context: Context) -> None:
    """One training to its end, in a process of its own that holds a slot of this machine.

    Nothing is trained when another sweep has the same run already.

    Raises:
        StageFailed: it failed; FAILED.json holds the same line.
        Stopped: the sweep is being stopped.
    """
    duplicate = context.claims.duplicate(folder)
    if duplicate:
        take_over(folder, duplicate)
    manifest = folder.read_manifest()
    if duplicate and folder.checkpoint(manifest["steps"]).exists() and not pending_evaluations(folder):
        clear_waiting(folder)
        return
    backend = backend_of(folder)
    code, losses, newest = BUSY, 0, -1
    while code in (BUSY, LOST):  # another host was quicker: its run is waited for
        while folder.holder():
            if context.children.stopping.wait(LEASE_SECONDS):
                raise Stopped
        with context.disk.reserve(folder, context.children.stopping), slot(folder, backend, context) as held:
            clear_waiting(folder)
            archive_failure(folder)
            began = time.time()
            child = _start(folder, backend, context, held)
            code = context.children.wait(child)
        if isinstance(child, Remote):
            before, newest = newest, (folder.checkpoint_steps() or [-1])[-1]
            losses = 0 if newest > before else losses
            losses += code == LOST
            code = _settle(folder, child, losses, context)
        if code in (BUSY, LOST) and context.children.stopping.wait(LEASE_SECONDS):
            raise Stopped
    if code == 0:
        return
    failure = folder.read_failed()
    if failure is None:
        how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if code == -9:
            last = read_progress(folder.path / TRAINING) or {}
            phase = last.get("phase") if last.get("time", 0) > began else None
            how += f" in step {last['step']}, {phase}" if phase else ""
            advice = backend.less_memory(phase)
            how += f" (out of memory? {advice})" if advice else " (out of memory?)"
        write_failed(folder, f"the training process was {how}" if code < 0 else f"the training process {how}")
        failure = folder.read_failed() or {}
    raise StageFailed(f"{folder.name}: {failure.get('error')}")


def _start(
    folder: RunFolder, backend: BackendSection, context: Context, held: Held
) -> subprocess.Popen | ForkedProcess | Remote:
    """The training process: a child of this one, or a process on a node of a Ray cluster."""
    module = programs.TRAINER.format(backend.type)
    if not (isinstance(backend, LocalBackend) and isinstance(backend.place, OnNodes)):
        return context.children.start(
            module, folder.path, log=folder.log_path, threads=backend.threads,
            keep=[context.claims.fd(folder), *held.fds], extra=held.environment,
        )  # fmt: skip
    place = backend.place
    cpus = backend.threads if place.cpus is None else place.cpus
    needs = {"num_cpus": cpus, "num_gpus": place.gpus}
    if place.memory_gib:
        needs["memory"] = int(place.memory_gib * 2**30)
    write_waiting(folder, f"waits for a place on the Ray cluster at {place.address}")
    cluster = context.children.cluster(place.address, folder.path.parent / CLUSTER_LOG)
    return cluster.start(module, folder, folder.path.parents[2], backend.threads, needs)


def _settle(folder: RunFolder, child: Remote, losses: int, context: Context) -> int:
    """The exit code of a training on a cluster, after what its end means for the run's folder.

    Raises:
        StageFailed: the cluster cannot run it, or lost it again and again, or its files do not get here.
    """
    clear_waiting(folder)
    refused, lost, code = child.answer.get("refused"), child.answer.get("lost"), child.returncode or 0
    if lost and losses > MOST_LOSSES:
        refused = (
            f"lost {losses} times on the Ray cluster without a new checkpoint, the last time because {lost}"
        )
    elif lost:
        context.log(f"{folder.name}: {lost}; it is started again and goes on from its last checkpoint")
    if code == 0 and not refused:
        deadline = time.monotonic() + SHARED_SECONDS
        while (folder.checkpoint_steps() or [-1])[-1] < child.answer["newest"]:
            if time.monotonic() > deadline:
                refused = (
                    f"the node {child.answer['node']} wrote checkpoint {child.answer['newest']}, which this machine "
                    f"does not see after {SHARED_SECONDS:.0f} s: the data folder must be on storage that both share"
                )
                break
            if context.children.stopping.wait(SLOT_SECONDS):
                raise Stopped
    if refused:
        write_failed(folder, refused)
        raise StageFailed(f"{folder.name}: {refused}")
    return code


def backend_of(folder: RunFolder) -> BackendSection:
    """The back end of a run; StageFailed (and FAILED.json) when its manifest names one that this version lacks."""
    section = folder.read_manifest()["spec"]["backend"]
    try:
        return _BACKEND.validate_python(section)
    except ValidationError as error:
        known = ", ".join(BACKENDS)
        line = f"{folder.manifest_path}: spec.backend: {error.errors()[0]['msg']} (back ends here: {known})"
        write_failed(folder, line)
        raise StageFailed(f"{folder.name}: {line}") from None


@contextmanager
def slot(folder: RunFolder, backend: BackendSection, context: Context) -> Iterator[Held]:
    """What the run needs of this machine, waiting for it where need be; the run's folder says for what."""
    need = need_of(backend, context.machine)
    if need is None:
        yield Held()
        return
    held = gate = why = None
    said_at = 0.0
    try:
        while held is None:
            # Only who is at the gate may take: a request for several GPUs is not starved by those for one.
            if need.kind == "gpu" and context.evaluation_waits.is_set():
                if gate:
                    gate.close()
                gate = None
            else:
                gate = gate or context.machine.gate(need)
            held = context.machine.take(need, f"{folder.sweep}/{folder.name}") if gate else None
            if held is None:
                why, said = context.machine.why(need), why
                if why != said or time.monotonic() - said_at > SAID_SECONDS:
                    write_waiting(folder, why)
                    said_at = time.monotonic()
                if context.children.stopping.wait(SLOT_SECONDS):
                    raise Stopped
    except UserError as error:
        write_failed(folder, str(error))
        raise StageFailed(f"{folder.name}: {error}") from None
    finally:
        if gate:
            gate.close()
    with held:
        yield held


def archive_failure(folder: RunFolder) -> None:
    """Before a run is tried again its FAILED.json is kept beside the new attempt, for those who look back."""
    if folder.failed_path.exists():
        attempt = max(folder.next_attempt() - 1, 0)
        folder.failed_path.replace(folder.path / f"FAILED-{attempt}.json")
