"""The flows that are started from the Prefect UI or on a schedule. Each runs a command of `rpg` as
its child.

The forms are flat and typed: the server rejects a value of the wrong type before anything starts.
flows.serve.forms checks the rest, and its reason becomes the state of the flow run.
"""

import functools
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from prefect import flow
from prefect.exceptions import FailedRun
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from pydantic import Field

from flows.nightly import place
from flows.prefect import ui
from flows.prefect.flow_runs import FLOW_RUN, WORK, alive, follow
from flows.serve import forms
from flows.serve.form_sizes import END, chooser
from rpg.catalogue import algorithms
from rpg.config.backend import BACKENDS
from rpg.errors import UserError
from rpg.report.nightly_bands import ALREADY
from rpg.store import Layout, home
from rpg.system.processes import PARENT, die_with_parent

# In a flow run's process: its worker may have been killed while it was importing Prefect. The
# worker itself imports this too, to look for hooks when a flow run is cancelled.
if os.environ.get(PARENT, str(os.getpid())) != str(os.getpid()):
    die_with_parent()
if WORK in os.environ:  # Prefect has imported this from an empty folder (flows.serve.flow_runner)
    os.chdir(os.environ.pop(WORK))

_ROOTS = forms.roots(home())


def choice(names: Iterable[str]) -> Any:
    """One of these names, known at run time only. The server accepts no other, and neither does the
    command."""
    return Field(json_schema_extra={"enum": list(names)})


# Prefect takes the texts of a form from the Args of the docstrings below, and the bounds from these
# types.
Config = Annotated[
    str, Field(json_schema_extra=chooser({name: name for name in forms.configs(_ROOTS)}))
]
Studies = Annotated[
    str, Field(json_schema_extra=chooser({name: name for name in forms.studies(_ROOTS)}))
]
Nights = Annotated[str, choice(forms.nights(_ROOTS))]
Seeds = list[Annotated[int, Field(ge=0, lt=2**31)]]
BaselineSeeds = Annotated[int, Field(ge=0, le=1_000)]
Steps = Annotated[int, Field(ge=0, le=10_000_000)]
Name = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]{0,63})?$")]
Workers = Annotated[int, Field(ge=0, le=256)]
Algorithms = list[Annotated[str, choice(algorithms())]]
Backend = Annotated[str, choice([forms.AS_FILE, *BACKENDS])]

LATE_SECONDS = 12 * 3600.0
"""A night that is later than this is skipped; the next one starts at its own time."""
deployed = functools.partial(flow, persist_result=False)
skipped = functools.partial(Completed, name="Skipped")


def command(arguments: list[str]) -> list[str]:
    """Run `rpg ARGUMENTS` as a child whose sweeps add their tasks to this flow run; as `follow`."""
    log = get_run_logger()
    log.info("rpg %s", " ".join(arguments))
    # The log consists of the command's own lines; what Prefect would say about the tasks is in
    # their states.
    environment = {FLOW_RUN: str(flow_run.id), "PREFECT_LOGGING_LEVEL": "CRITICAL"}
    return follow(arguments, log.info, environment)


def _with_its_reason(record: logging.LogRecord) -> bool:
    """The reason in one line; Prefect logs a failed flow run as an exception of its engine, with a
    traceback."""
    raised = record.exc_info[1] if record.exc_info else None
    if isinstance(raised, FailedRun):
        record.msg, record.args, record.exc_info = str(raised), (), None
    return True


logging.getLogger("prefect.flow_runs").addFilter(_with_its_reason)


def reasoned(body: Callable[..., Any]) -> Callable[..., Any]:
    """A flow fails with the reason, without a traceback, when its user made a mistake or its
    command failed."""

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with alive(home(), str(flow_run.id), flow_run.run_count):
                return body(*args, **kwargs)
        except UserError as error:
            return Failed(message=str(error))

    return run


def what_it_is() -> str:
    """The name of a sweep's flow run: the sweep, and what the form has changed in it."""
    given = flow_run.parameters
    name = given.get("name") or str(given.get("config", "")).partition(END)[0]
    changed = [*given.get("algorithms", ()), *(f"seed {seed}" for seed in given.get("seeds", ()))]
    if given.get("baseline_seeds"):
        changed.append(f"{given['baseline_seeds']} seeds of the baseline")
    changed += [f"{given['steps']} steps"] if given.get("steps") else []
    changed += [line.strip() for line in given.get("overrides", "").splitlines() if line.strip()]
    return ", ".join([f"sweep {name}", *changed])[:200]


@deployed(flow_run_name=what_it_is, description="Train, evaluate and compare.")
@reasoned
def sweep(
    config: Config,
    algorithms: Algorithms = [],
    seeds: Seeds = [],
    baseline_seeds: BaselineSeeds = 0,
    steps: Steps = 0,
    backend: Backend = forms.AS_FILE,
    overrides: str = "",
    name: Name = "",
    workers: Workers = 0,
) -> Any:
    """Run a sweep, like `rpg sweep`: only what is missing is done.

    Args:
        config: Required. A shipped sweep, or one of yours (own/...) from $RPG_CONFIGS or configs/
            in the data folder; small ones first, the paper's last. The deployment's description
            says more about each.
        algorithms: Replace the file's algorithms; none: as in the file.
        seeds: Replace the file's seeds; none: as in the file.
        baseline_seeds: Number of seeds (0, 1, ...) of the baseline, if it is to have more than
            the others; the baseline is part of every comparison. 0: as in the file.
        steps: Training steps; 0: as in the file.
        backend: The back end that trains.
        overrides: Further settings, one field=value per line, e.g.
            training.optimizer.learning_rate=2e-4
        name: Name of the sweep; empty: as in the file. Sweeps with the same runs share them.
        workers: Number of simultaneous trainings; 0: one per core.
    """
    sweep_name, arguments = forms.sweep(
        forms.roots(home()),
        config,
        axes=forms.axes_of(algorithms, seeds, baseline_seeds),
        steps=steps,
        backend=backend,
        overrides=overrides,
        name=name,
    )
    ui.link(sweep_name)
    try:
        command([*arguments, *forms.option("workers", int(workers))])
    finally:
        ui.report(Layout.at(), sweep_name)
    return Completed(message=ui.verdict(Layout.at(), sweep_name) or sweep_name, data=sweep_name)


@deployed(
    flow_run_name=lambda: f"study {str(flow_run.parameters.get('config', '')).partition(END)[0]}",
    description="Tune with equal effort, register, compare.",
)
@reasoned
def study(config: Studies, workers: Workers = 0) -> str:
    """Run a study, like `rpg study`: it goes on with the same trials.

    Args:
        config: Required. A shipped study, or one of yours (own/...) from $RPG_CONFIGS or configs/
            in the data folder.
        workers: Number of simultaneous trainings; 0: one per core.
    """
    name, arguments = forms.study(forms.roots(home()), config, workers)
    ui.text("study", name, command(arguments))
    return name


@deployed(
    flow_run_name="nightly {sweeps}",
    description="Small reproductions, compared with the last 30 nights.",
)
@reasoned
def nightly(sweeps: Nights = forms.NIGHTLY, workers: Workers = 0) -> Any:
    """Run every sweep of a set from scratch; fails when a metric leaves its band.

    Args:
        sweeps: The shipped set (configs/nightly), or a folder of your own sweeps (own/...). A set
            is compared with itself.
        workers: Number of simultaneous trainings; 0: one per core.
    """
    due = flow_run.scheduled_start_time
    if due and time.time() - due.timestamp() > LATE_SECONDS:
        return skipped(message=f"was due at {due:%Y-%m-%d %H:%M}, when no server was running")
    folder, arguments = forms.nightly(forms.roots(home()), sweeps, workers)
    try:
        lines = command(arguments)
    finally:
        ui.nightly(place(Layout.at(), folder), "" if sweeps == forms.NIGHTLY else folder.name)
    return skipped(message=lines[-1]) if lines and lines[-1].startswith(ALREADY) else None


DEPLOYED = (sweep, study, nightly)
