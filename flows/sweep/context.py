"""What the tasks of a sweep share within one process; none of it is stored, or sent to Prefect's
API."""

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flows.machine.children import Children
from flows.machine.disk_space import DiskSpace
from flows.machine.slots import Machine
from flows.monitor import Progress
from flows.sweep.sharing import Claims
from rpg.errors import UserError
from rpg.store import Layout

if TYPE_CHECKING:
    from flows.prefect.ui import TaskOwner


class RunFailed(UserError):
    """One run failed; its FAILED.json holds the same line."""


class StageFailed(UserError):
    """A stage that all runs need (prepare, evaluate) failed; the message names its log."""


class SweepFailed(UserError):
    """Runs or stages of a sweep failed: what each of them has to say."""


@dataclass(frozen=True)
class Context:
    """The sweep, the machine it runs on, and what its tasks tell each other."""

    layout: Layout
    sweep: str
    machine: Machine
    children: Children
    claims: Claims
    progress: Progress
    owner: "TaskOwner"
    reported: bool = True
    disk: DiskSpace = field(default_factory=DiskSpace)
    evaluation_waits: threading.Event = field(default_factory=threading.Event)
    """Set while the evaluator waits for GPUs: it goes before the next training of the sweep."""
