"""What a night does to a sweep on purpose: run an earlier version of its file first, import logs
beside its runs, kill its trainings. So each night compares runs that went on, that superseded
others, and that came from elsewhere."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rpg.config.sweep_file import Drill, ImportedLog
from rpg.config.sweep_spec import Sweep
from rpg.errors import UserError
from rpg.interop.importing import read, take_over
from rpg.store import Layout
from rpg.system.processes import KILL_AFTER

Run = Callable[[Sweep], object]
"""Does what is missing of a sweep."""


def run_drill(sweep: Sweep, earlier: Sweep | None, layout: Layout, run: Run) -> None:
    """Run a sweep after everything that its file wants done to it; `earlier`: the version before
    its edit. Raises UserError: a log cannot be imported."""
    drill = sweep.spec.drill or Drill()
    if earlier is not None:
        run(earlier)
    for log in drill.imports:
        _import(log, sweep, layout)
    if drill.kill_after is not None:
        with _killing_after(drill.kill_after):
            run(sweep)
    run(sweep)


def _import(log: ImportedLog, sweep: Sweep, layout: Layout) -> None:
    """As `rpg import` does it."""
    folder = sweep.path.parent.resolve()
    file = (folder / log.file).resolve()
    if file.parent != folder:
        raise UserError(f"{sweep.path}: drill.imports: {log.file} leads out of {folder}")
    take_over(
        layout,
        read(log.kind, file, scores=log.scores, updates=log.updates),
        kind=log.kind,
        source=file,
        sweep=sweep.spec.name,
        variant=log.variant,
        seed=log.seed,
    )


@contextmanager
def _killing_after(step: int) -> Iterator[None]:
    """Trainings that are started meanwhile kill themselves after this step."""
    os.environ[KILL_AFTER] = str(step)
    try:
        yield
    finally:
        del os.environ[KILL_AFTER]
