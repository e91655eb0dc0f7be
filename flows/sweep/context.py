"""What the stages of a sweep share within one process, and how a stage says that it failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from flows.machine.children import Children
from flows.machine.disk_space import DiskSpace
from flows.machine.slots import Machine
from flows.sweep.sharing import Claims
from rpg.errors import UserError

if TYPE_CHECKING:
    from flows.monitor import Progress


class StageFailed(UserError):
    """A stage all runs need (data, warm start) failed; the message is for people and names the log."""


@dataclass
class Context:
    """What the stages share within one process: never stored, never sent to the API."""

    children: Children
    progress: Progress | None
    machine: Machine
    claims: Claims
    disk: DiskSpace = field(default_factory=DiskSpace)
    evaluation_waits: threading.Event = field(default_factory=threading.Event)
    """Set while the evaluator waits for GPUs (flows.sweep.gpu_evaluation): it goes before the next training of the sweep."""
    flow_run: UUID | None = None
    """The sweep's own flow run, once it has begun."""
    log: Callable[[str], None] = lambda line: None
    """A line for the log of the sweep's own flow run; a command that another flow run started prints its lines instead."""
    adopted_by: UUID | None = None
    """The flow run of another process that started this command, where there is one; its state is not ours to set."""

    def say(self, phase: str) -> None:
        self.log(phase)
        if self.progress:
            self.progress.phase = phase

    def note(self, line: str) -> None:
        """A line about the phase that changes often."""
        if self.progress:
            self.progress.note = line
