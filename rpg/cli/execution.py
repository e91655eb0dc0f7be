"""Runs conducted in the foreground with their progress shown, for `rpg sweep`, `rpg train` and `rpg nightly`."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpg.cli.app import complain, console, say

if TYPE_CHECKING:
    from flows.monitor import Progress
    from flows.sweep.conductor import Outcome
    from rpg.config.sweep_spec import Sweep
    from rpg.store import Layout


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers(planned: Sweep) -> int:
    """One training per core; one at a time when a run fills what it is given, as verl does; on a cluster all at once,
    which begins as many as it has room for.
    """
    backends = [run.spec.backend for run in planned.runs]
    if any(one.fills_machine for one in backends):
        return 1
    elsewhere = sum(one.workers_here() is None for one in backends)
    return max(cores(), min(elsewhere, MOST_AT_ONCE))


MOST_AT_ONCE = 60
"""Trainings that one conductor follows (flows.sweep.flow has as many threads, and some for the other stages)."""

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "-w",
        min=1,
        help="Trainings at the same time. Default: one per core (one on verl; all on a Ray cluster).",
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", help="Store the results under this name instead of the file's own.")
]


Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh", help="Train again what other code than today's has trained; the older runs are superseded."
    ),
]


def execute(planned: Sweep, home: Path | None, workers: int | None, fresh: bool = False) -> int:
    """Conduct a sweep in the foreground, showing its progress. Returns the exit code."""
    from rpg.cli.data_digest import refuse_wrong_paths
    from rpg.cli.missing_packages import require
    from rpg.config.shipped import short

    require(*dict.fromkeys(package for run in planned.runs for package in run.spec.backend.needs))
    specs = [run.spec for run in planned.runs]
    from rpg.store import Layout
    from rpg.store.run_provenance import of_other_code

    layout = Layout.at(home)
    refuse_wrong_paths(specs, short(planned.path), layout)
    from flows.monitor import Progress
    from flows.sweep.conductor import conduct, sweep_lock, unfinished
    from rpg.planning.preflight import preflight

    name, workers = planned.spec.name, workers or default_workers(planned)
    folders = [layout.run(name, run.folder) for run in planned.runs]
    again = f"rpg {'sweep' if planned.spec.axes else 'train'} {short(planned.path)}"
    try:
        with sweep_lock(layout, name):
            for line in preflight(specs, layout):
                complain(f"! {line}", "yellow")
            due = unfinished(folders, fresh)
            older = of_other_code(folders)[0] if fresh else []
            if older:
                say(
                    f"{name}: {len(older)} runs that other code has trained are set aside: {', '.join(older)}"
                )
            if due:
                say(
                    f"{name}: {len(due)} of {len(folders)} runs to do, {workers} at a time, in {layout.sweep_folder(name)}"
                )
            progress = Progress(console, name, folders, workers)
            with _terminal(progress) if due else _nothing(), _sigterm_is_interrupt():
                outcome = conduct(planned, layout, workers, progress, fresh)
    except KeyboardInterrupt:
        complain(f"\nstopped; every process has ended. Nothing finished is lost. Continue with: {again}")
        return 130
    return _conclude(outcome, layout, planned, again)


def _conclude(outcome: Outcome, layout: Layout, planned: Sweep, again: str) -> int:
    from rpg.report.sweep_report import print_report
    from rpg.store import StoreError
    from rpg.store.run_provenance import other_code_notes

    name = planned.spec.name
    if not outcome.trained:
        say(f"{name}: all {outcome.total} runs were already done; nothing was trained.")
    try:
        print_report(layout, name, console)
    except StoreError as error:
        outcome.error = outcome.error or str(error)
    for line in other_code_notes(layout.run(name, run.folder) for run in planned.runs):
        complain(f"! {line}", "yellow")
    lines = [f"failed: {run}: {error}" for run, error in outcome.failed.items()]
    if outcome.error and not outcome.failed:
        lines.append(f"error: {outcome.error}")
    if lines:
        left = f"{len(outcome.failed)} of {outcome.total} runs failed" if outcome.failed else "not finished"
        lines.append(f"{left}; try again with: {again}")
    for line in lines:
        complain(line)
    return 1 if lines else 0


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class _terminal:
    """Draws the progress from a thread of its own: a live table on a terminal, lines elsewhere."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self._over = progress, threading.Event()
        self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=10)

    def _draw(self) -> None:
        if not console.is_terminal:
            while not self._over.wait(1.0):
                self.progress.lines()
            self.progress.lines()
            return
        from rich.live import Live

        with Live(console=console, auto_refresh=False, transient=False) as live:
            while not self._over.wait(0.5):
                live.update(self.progress.render(), refresh=True)
            live.update(self.progress.render(), refresh=True)


class _sigterm_is_interrupt:
    """SIGTERM stops a sweep the way Ctrl-C does, so that a service manager's stop ends the children too."""

    def __enter__(self) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        self._before = signal.signal(signal.SIGTERM, interrupt)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)
