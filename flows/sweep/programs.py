"""The modules that run as child processes of a sweep."""

from __future__ import annotations

import sys

from rpg.config.sweep_spec import Sweep
from rpg.fork_server import FORKED, ForkServer
from rpg.processes import owner_mark
from rpg.store import Layout

PREPARE, TRAINER, EVALUATOR = "rpg.backends.local.prepare", "rpg.backends.{}", "rpg.evaluation"
"""A trainer's module is that of the run's back end."""
TRACKING = "rpg.tracking"


def fork_server(sweep: Sweep, layout: Layout) -> ForkServer | None:
    """One process for the imports of all children, when they are of the kind that it forks."""
    backends = [run.spec.backend for run in sweep.runs]
    one_thread = all(backend.device == "cpu" and backend.threads == 1 for backend in backends)
    if not one_thread or sys.platform != "linux" or TRAINER.format("local") not in FORKED:
        return None
    return ForkServer(layout.sweep_folder(sweep.spec.name) / "fork-server.log", FORKED, owner_mark())
