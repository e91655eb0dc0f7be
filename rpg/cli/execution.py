"""`rpg sweep`, `rpg train` and `rpg nightly`: runs conducted in the foreground, with their progress
shown."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rpg.cli.app import File, Home, Set, app, complain, console, layout_at, refuse, say
from rpg.cli.recorded import result
from rpg.errors import UserError
from rpg.next_steps import command, this_again
from rpg.store import Layout, RunFolder, StoreError, locks
from rpg.system.processes import end_orphans, quick_imports

if TYPE_CHECKING:
    from rpg.config.run_spec import RunSpec
    from rpg.config.sweep_spec import Sweep
    from rpg.study.spec import Study

MOST_AT_ONCE = 60
"""Trainings that one conductor follows (flows.sweep.flow has as many threads, and some for the
other stages)."""
_AT_ONCE = "Trainings at the same time. Default: one per core (one on verl; all on a Ray cluster)."
Workers = Annotated[int | None, typer.Option("--workers", "-w", min=1, help=_AT_ONCE)]
_NAME = typer.Option("--name", help="Store the results under this name instead of the file's own.")
Name = Annotated[str | None, _NAME]


@app.command()
def sweep(
    file: File,
    set_: Set = [],
    axis: Annotated[list[str], typer.Option("--axis", "-a")] = [],
    name: Name = None,
    home: Home = None,
    workers: Workers = None,
) -> int:
    """Run a sweep: train, evaluate, report. Run it again and it does only what is missing.

    Args:
        file: Sweep file (YAML), or the name of a shipped one, e.g. quickstart.
        axis: Replace or add an axis, e.g. seed=[0,1,2]. Repeatable.
    """
    from rpg.config.load import parse_assignments, parse_axes
    from rpg.config.sweep_spec import load_sweep
    from rpg.tasks.preparation import data_digest

    axes = parse_axes(axis)
    planned = load_sweep(file, parse_assignments(set_), data_digest, axes=axes, name=name)
    return conduct_and_conclude(planned, home, workers)


@app.command()
def train(file: File, set_: Set = [], name: Name = None, home: Home = None) -> int:
    """Train one run. It is evaluated and reported like a sweep of one run.

    Args:
        file: Run file (YAML), or the name of a shipped one, e.g. chain.
    """
    from rpg.config.load import parse_assignments
    from rpg.config.sweep_spec import single_run
    from rpg.tasks.preparation import data_digest

    return conduct_and_conclude(
        single_run(file, parse_assignments(set_), data_digest, name=name), home, 1
    )


def conduct_and_conclude(planned: Sweep, home: Path | None, workers: int | None) -> int:
    """Conduct a sweep in the foreground, showing its progress. Returns the exit code."""
    layout = layout_at(home)
    try:
        folders, error = register_and_conduct(planned, layout, workers)
    except KeyboardInterrupt:
        return stopped()
    return _conclude(layout, planned, folders, error)


def stopped() -> int:
    """Say what a command that was interrupted leaves behind; returns its exit code."""
    complain(
        "\nstopped; all its processes here have ended. Nothing finished is lost. Continue with: "
        f"{this_again()}"
    )
    return 130


def register_and_conduct(
    planned: Sweep, layout: Layout, workers: int | None, wanted: Collection[str] | None = None
) -> tuple[list[RunFolder], str | None]:
    """Register a sweep, and run what is not finished of it, or of the runs `wanted`. Returns its
    runs, and what failed in a line. Raises KeyboardInterrupt when every process has ended."""
    from flows.monitor import Progress
    from flows.sweep.conductor import conduct, register, sweep_lock, unfinished
    from rpg.cli.missing_packages import require
    from rpg.config.shipped import short
    from rpg.planning.preflight import mistakes, preflight

    require(*dict.fromkeys(package for run in planned.runs for package in run.spec.backend.needs))
    specs = [run.spec for run in planned.runs]
    lines = mistakes(specs, layout)
    if lines:
        refuse("\n".join(f"{short(planned.path)}: {line}" for line in lines))
    with console.status(f"{short(planned.path)}: reading the problems"):
        _check_problems(planned, layout)
        _check_hub_models(specs, layout)
    name = planned.spec.name
    workers = workers or default_workers(planned)
    with sweep_lock(layout, name), _interrupted_by_sigterm():
        for line in preflight(specs, layout):
            complain(f"! {line}", "yellow")
        end_orphans()  # of a conductor that was killed
        folders = register(planned, layout)
        due = [folder for folder in unfinished(folders) if wanted is None or folder.name in wanted]
        if due:
            to_do = f"{len(due)} of {len(folders)} runs to do, {workers} at a time"
            say(f"{name}: {to_do}, in {layout.sweep_folder(name)}")
        else:
            say(f"{name}: all {len(folders)} runs were already done; nothing was trained.")
        progress = Progress(console, name, due if wanted else folders)
        with progress if due else nullcontext():
            return folders, conduct(planned, layout, due, workers, progress)


class _Owed(Exception):
    """There are runs to train."""


def _owed(*_: object) -> NoReturn:
    raise _Owed


def conduct_study(
    study: Study, layout: Layout, workers: int | None, only: str | None = None, again: bool = False
) -> str | None:
    """Run a study, or only one of its steps. Returns what failed in a line. Raises
    KeyboardInterrupt as `register_and_conduct`."""
    from flows.prefect.server import prefect_api
    from flows.study.steps import STEPS, Running, run_steps

    def train_owed(sweep: Sweep, runs: Collection[str]) -> str | None:
        return register_and_conduct(sweep, layout, workers, wanted=runs)[1]

    name = study.spec.name
    steps = [only] if only else STEPS
    with locks.only_one(
        layout.study_folder(name) / ".conductor", f"study {name!r} is already being run"
    ):
        with suppress(_Owed):  # first as far as it goes without training, which needs no server
            return run_steps(steps, Running(study, layout, _owed, say, again))
        try:
            with prefect_api(layout.home):
                with quick_imports():
                    from flows.study.study_flow import run
                return run(steps, Running(study, layout, train_owed, say, again))
        except UserError as failed:
            return str(failed)


def _check_problems(planned: Sweep, layout: Layout) -> None:
    """Prepare the problems of the user's own files, before any server or training starts. Raises
    DataError."""
    from rpg.config.task import FileTask
    from rpg.models.warm_start_cache import is_prepared
    from rpg.tasks import Splits, demonstrations_of
    from rpg.tasks.preparation import prepare_data, read_problems

    for spec in {run.data: run.spec for run in planned.runs}.values():
        if isinstance(spec.task, FileTask):
            prepared = prepare_data(spec, layout.home)
            if spec.model.warm_start and not is_prepared(spec, layout.home):
                demonstrations_of(spec.task, Splits(read_problems(prepared.train), {}))


def _check_hub_models(specs: Sequence[RunSpec], layout: Layout) -> None:
    """The hub has the models that are not on this machine. Raises DataError: it has not, or cannot
    be reached."""
    from rpg.config.model import KNOWN_MODELS, PretrainedModel, located
    from rpg.models.hub_models import hub_commit

    for model in {spec.model for spec in specs if isinstance(spec.model, PretrainedModel)}:
        if model.path not in KNOWN_MODELS and not located(model.path, layout.home):
            hub_commit(model.path, model.revision)


def _conclude(
    layout: Layout, planned: Sweep, folders: Sequence[RunFolder], error: str | None
) -> int:
    """Bring database and report to what the files say, whatever was due; print the report and what
    failed. Returns the exit code."""
    from rpg.cli.archive import VARIABLE, archived
    from rpg.report.sweep_report import as_values, print_summary
    from rpg.report.upkeep import refresh
    from rpg.store.damage import damage_notes
    from rpg.store.run_provenance import other_code_notes, recorded

    name = planned.spec.name
    try:
        summary = refresh(layout, name, planned.reported)
        print_summary(summary, console)
        result(**as_values(summary))
        archive = os.environ.get(VARIABLE)
        if archive:
            archived(archive, folders)
    except StoreError as unreadable:
        error = error or str(unreadable)
    for line in other_code_notes(recorded(folders)):
        complain(f"! {line}", "yellow")
    failures = {
        folder.name: failed["error"] for folder in folders if (failed := folder.read_failed())
    }
    lines = [f"failed: {run}: {why}" for run, why in failures.items()]
    lines += damage_notes(folders)
    result(failures=failures)
    if error and not failures:
        lines.append(f"error: {error}")
    if error or failures:
        outcome = f"{len(failures)} of {len(folders)} runs failed" if failures else "not finished"
        lines.append(f"{outcome}; try again with: {this_again()}")
    for line in lines:
        complain(line)
    return 1 if lines else 0


def default_workers(planned: Sweep) -> int:
    """One training per core; one at a time when a run fills what it is given, as verl does; on a
    cluster all at once, which begins as many as it has room for.
    """
    backends = [run.spec.backend for run in planned.runs]
    if not all(backend.shares_machine() for backend in backends):
        return 1
    elsewhere = sum(backend.workers_here() is None for backend in backends)
    return max(cores(), min(elsewhere, MOST_AT_ONCE))


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM stops a sweep the way Ctrl-C does, so that a service manager's stop ends the children
    too."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@app.command()
def nightly(
    words: Annotated[list[str] | None, typer.Argument(metavar="[accept] [FOLDER]")] = None,
    why: str | None = None,
    set_: Set = [],
    home: Home = None,
    workers: Workers = None,
    keep: Annotated[int, typer.Option(min=1)] = 30,
    only: Annotated[list[str], typer.Option(hidden=True)] = [],
) -> int:
    """Run small sweeps from scratch and compare their numbers with earlier nights. Exit code 1 if
    they have changed.

    `rpg nightly accept --why ...` accepts the newest night; later nights are compared with it.

    Args:
        words: Folder of sweep files. Default: the shipped nightly sweeps.
        why: With accept: why the numbers were meant to change.
        keep: Number of nights whose runs stay on disk; the numbers always stay.
        only: Only these sweeps of the set. Repeatable.
    """
    from flows.nightly import accept, run_night
    from flows.other_code import night_of
    from rpg.config.load import parse_assignments
    from rpg.config.shipped import NIGHTLY
    from rpg.report.nightly_bands import ALREADY

    layout = layout_at(home)
    words = list(words or [])
    accepting = words[:1] == ["accept"]
    folders = words[1:] if accepting else words
    if len(folders) > 1:
        refuse(f"nightly {' '.join(words)}: expected one folder; run one command per set")
    folder = Path(folders[0]) if folders else NIGHTLY
    if accepting:
        say(
            f"accepted: night {accept(layout, folder, why or '')}; later nights are "
            "compared with it"
        )
        return 0
    if why is not None:
        refuse("--why only works with accept: rpg nightly accept --why '...'")
    overrides = parse_assignments(set_)
    other = partial(night_of, module="rpg", folder=folder, cache=layout.cache, overrides=overrides)

    run = partial(_of_night, home=home, workers=workers)
    night = run_night(layout, folder, overrides, run, keep, only, other)
    if night is None:
        say(f"{ALREADY} in {layout.home}; this one is skipped")
        return 0
    result(night=night.name, red=night.red, failures=night.failures, table=night.table)
    say(night.table.read_text(encoding="utf-8"))
    for line in night.failures:
        complain(f"failed: {line}")
    if night.red and not night.failed:
        accept_it = command("nightly", "accept", *folders, "--why", "...", layout=layout)
        complain(f"if this change is intended: {accept_it}")
    return 1 if night.red else 0


def _of_night(planned: Sweep | Study, home: Path | None, workers: int | None) -> None:
    """A sweep or study of a night, which goes on without one that fails. Raises KeyboardInterrupt:
    the night was stopped."""
    from rpg.study.spec import Study

    try:
        if isinstance(planned, Study):
            error = conduct_study(planned, layout_at(home), workers)
            if error:
                complain(f"error: {error}")
        elif conduct_and_conclude(planned, home, workers) == 130:  # as `stopped`
            raise KeyboardInterrupt
    except UserError as error:
        complain(f"error: {planned.spec.name}: {error}")
