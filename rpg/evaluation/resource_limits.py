"""Limits of the evaluator on the machine where trainings run."""

import os
import resource
from collections.abc import Iterable
from pathlib import Path

from rpg.config.evaluation import Place, ThisMachine
from rpg.errors import UserError, first_line, is_no_memory

_FIELD = "evaluation.place.memory_gib"


class LimitError(UserError):
    """A limit too low for the process; `str(error)` names the field."""


def strictest(places: Iterable[Place]) -> ThisMachine | None:
    """One process evaluates all runs of a sweep: the strictest of each limit applies. None if none
    is on this machine."""
    local = [place for place in places if isinstance(place, ThisMachine)]
    if not local:
        return None
    memory = min(
        (place.memory_gib for place in local if place.memory_gib is not None), default=None
    )
    gpu = min((place.gpu_memory for place in local if place.gpu_memory is not None), default=None)
    threads = min(place.threads for place in local)
    niceness = max(place.niceness for place in local)
    return ThisMachine(threads=threads, niceness=niceness, memory_gib=memory, gpu_memory=gpu)


def confine(place: ThisMachine) -> None:
    """Apply the limits of `place` to this process and to the threads and processes it starts.
    Raises LimitError: the process uses more memory already.
    """
    os.nice(place.niceness)
    import torch  # noqa: PLC0415 (the limits below count from before it is loaded)

    torch.set_num_threads(place.threads)
    if place.gpu_memory is not None and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(place.gpu_memory)
    gib = place.memory_gib
    if gib is None:
        return
    taken = _data_bytes()
    if taken and taken > gib * 2**30:
        uses = f"uses {taken / 2**30:.2f} GiB before it has loaded any model"
        raise LimitError(f"{_FIELD}: {gib:g}, but the process {uses}")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30), hard))


def _data_bytes() -> int | None:
    """What RLIMIT_DATA counts of this process; None if the system does not report it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), None)


def explained(error: Exception, limits: ThisMachine | None) -> str:
    """The error in one line, which says if the memory limit caused it."""
    if limits is not None and limits.memory_gib is not None and is_no_memory(error):
        return (
            f"{_FIELD}: {limits.memory_gib:g} is not enough for this model and these lengths "
            f"({first_line(error)})"
        )
    return first_line(error)
