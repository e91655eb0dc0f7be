"""The steps of a study: tune, register, report. Each derives from records and run folders what is
left to do."""

import contextlib
import math
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from rpg import next_steps
from rpg.config.errors import ConfigError
from rpg.config.run_spec import RunSpec
from rpg.config.sweep_spec import PlannedRun, Sweep
from rpg.errors import UserError
from rpg.store import Layout, StoreError, atomic_write_json
from rpg.store.run_folder import FORMAT
from rpg.study import registration
from rpg.study.plans import (
    decided,
    portions,
    registration_plan,
    reported_plan,
    trial_runs,
    tuning_plan,
)
from rpg.study.proposals import batch_seed, propose
from rpg.study.spec import Study
from rpg.study.trials import (
    Tuning,
    batch_path,
    batch_trials,
    read_study,
    tried,
    tuned,
    tuning_sweep,
    tunings_from,
    tunings_of,
    write_study,
)
from rpg.study.tuning import Trial, winner
from rpg.tasks import load_problems
from rpg.tasks.preparation import data_digest

Conduct = Callable[[Sweep, Collection[str]], str | None]
"""Trains those runs of a sweep, by their folders, that are not finished; returns what failed in a
line."""


class StudyError(UserError):
    """A step cannot be done, since runs have failed or others come first; the message says why, and
    what to do."""


@dataclass(frozen=True)
class Running:
    """A study that is being run; `say` tells how far it is."""

    study: Study
    layout: Layout
    conduct: Conduct
    say: Callable[[str], None]
    again: bool = False
    """Register again, where the study's file has changed."""

    @property
    def name(self) -> str:
        return self.study.spec.name

    def data(self, run: RunSpec) -> str:
        """The digest of a run's data, in its identity; where the study is a night's, with the
        night."""
        return f"{data_digest(run)} {self.study.night}".strip()


def begin(running: Running) -> list[Tuning]:
    """Check that the study can be run as its file says, and write study.json. Raises ConfigError:
    tuning problems are also reported, or the file has changed since the registration; a night's
    study starts again."""
    study = running.study
    layout = running.layout
    _check_apart(study)
    before = {}
    with contextlib.suppress(StoreError):  # a new study
        before = {
            tuning.variant: tuning.digest
            for tuning in tunings_from(read_study(layout, running.name))
        }
    tunings = tunings_of(study, data_digest, before)
    write_study(layout, study, tunings)
    record = registration.read_record(layout, running.name)
    changed = [
        made.variant for made in tunings if before.get(made.variant, made.digest) != made.digest
    ]
    if changed and not (record or study.night):
        running.say(
            f"{running.name}: the settings or the tuning of {', '.join(changed)} have changed, "
            "so they are tuned again"
        )
    departures = []
    if record and not running.again:
        departures = registration.changes(layout, record)
    if departures:
        if study.night:  # each begins from scratch; the record goes last, for a kill in between
            for folder in (layout.reports(running.name).parent, layout.runs):
                for done in folder.glob(f"{running.name}.*"):
                    shutil.rmtree(done)
            registration.record_path(layout, running.name).unlink()
            return tunings
        again = next_steps.command("study", str(study.path), "--register-again", layout=layout)
        raise ConfigError(
            f"{study.path}: {'; '.join(departures)}. Undo the change, or register again, "
            f"which reports will show: {again}"
        )
    return tunings


def _check_apart(study: Study) -> None:
    """Check that tuning and reported problems do not overlap."""
    held_out = load_problems(study.run(study.spec.set).task).benchmarks
    tuned = {problem.text: name for name in study.tuning_benchmarks() for problem in held_out[name]}
    for name in study.reported_benchmarks():
        for problem in held_out[name]:
            if problem.text in tuned:
                raise ConfigError(
                    f"{study.path}: tune.objective.benchmarks: a problem of "
                    f"{tuned[problem.text]} is also in {name}: "
                    f"{problem.id}; a problem that is tuned on cannot be reported"
                )


def tune(running: Running, tunings: Sequence[Tuning]) -> None:
    """Every trial of every variant: the first batches of all searches, then the second ones. Raises
    StudyError: runs cannot be done, or no trial of a batch has finished."""
    study = running.study
    for stage in range(study.batches):
        places = [
            (tuning, search * study.batches + stage)
            for tuning in tunings
            for search in range(study.searches)
        ]
        for tuning, number in places:
            if not batch_path(running.layout, running.name, tuning, number).exists():
                _propose(running, tuning, number)
        _train(running, tunings, places)


def _propose(running: Running, tuning: Tuning, number: int) -> None:
    """Write a batch, before any of its runs; it follows from the earlier trials of its search."""
    tune = running.study.spec.tune
    search = number // running.study.batches
    earlier = [
        trial for trial in tried(running.layout, running.name, tuning) if trial.search == search
    ]
    seed = batch_seed(tuning.space, tuning.seeds, number)
    first = search * tune.trials + len(earlier)
    trials = []
    count = min(tune.batch, tune.trials - len(earlier))
    for place, settings in enumerate(propose(tuning.space, earlier, count, seed), first):
        runs = trial_runs(running.study, tuning, Trial(place, settings, ()), running.data)
        trials.append({"trial": place, "settings": settings, "runs": [run.folder for run in runs]})
    record = {
        "format": FORMAT,
        "variant": tuning.variant,
        "search": search,
        "batch": number,
        "seed": seed,
    }
    record["trials"] = trials
    atomic_write_json(batch_path(running.layout, running.name, tuning, number), record)


def _train(
    running: Running, tunings: Sequence[Tuning], places: Sequence[tuple[Tuning, int]]
) -> None:
    """All runs of these batches (variant, number of one of its own) that are due, seed by seed
    where trials are pruned."""
    trained = False
    while due := {run.folder: run for place in places for run in _due(running, *place, trained)}:
        trained = True
        ended = {run.folder: run for tuning in tunings for run in _ended(running, tuning)}
        sweep = tuning_plan(running.study, [*{**ended, **due}.values()])
        error = running.conduct(sweep, due)
        folders = [running.layout.run(sweep.spec.name, name) for name in due]
        if not any(folder.done_path.exists() or folder.failed_path.exists() for folder in folders):
            raise StudyError(error or "no run has ended")


def _due(running: Running, tuning: Tuning, number: int, trained: bool) -> list[PlannedRun]:
    """The runs of a variant's batch that are to be done now. Where all have failed, all of them
    are, once a call."""
    trials, places = batch_trials(running.layout, running.name, tuning, number)
    if all(trial.state == "failed" for trial in trials):
        if trained:
            failed = (
                running.layout.run(tuning_sweep(running.name), trials[0].runs[0]).read_failed()
                or {}
            )
            raise StudyError(
                f"{tuning.variant}: every trial of batch {number + 1} failed, so tuning cannot "
                f"go on; the first one's error: {failed.get('error')}"
            )
        places = [(at, 0) for at in range(len(trials))]
    planned = {at: trial_runs(running.study, tuning, trials[at], running.data) for at, _ in places}
    return [planned[at][seed] for at, seed in places]


def _ended(running: Running, tuning: Tuning) -> Iterator[PlannedRun]:
    """The runs of a variant that are done, of all batches; those that failed are not tried
    again."""
    for trial in tried(running.layout, running.name, tuning):
        runs = trial_runs(running.study, tuning, trial, running.data)
        for run, value in zip(runs, trial.outcomes, strict=True):
            if value is not None and not math.isnan(value):
                yield run


def register(running: Running, tunings: Sequence[Tuning]) -> None:
    """Write down what will be compared, at the settings that won; nothing where it is written down
    already and unchanged. Raises StudyError: tuning is not over, or a variant has no finished
    trial."""
    layout = running.layout
    name = running.name
    former = registration.read_record(layout, name)
    if former and not registration.changes(layout, former):
        return
    winners = {}
    for tuning in tunings:
        ended_searches = tuned(layout, name, tuning)
        if not ended_searches:
            command = next_steps.command(
                "study", str(running.study.path), "--only", "tune", layout=layout
            )
            raise StudyError(
                f"{name}: {tuning.variant} is not tuned yet, so nothing can be registered; "
                f"first: {command}"
            )
        best_of_each = [winner(trials) for trials in ended_searches]
        won = [best for best in best_of_each if best]
        if len(won) < len(ended_searches):
            raise StudyError(
                f"{name}: a search of {tuning.variant} has no finished trial, so it has no "
                "settings to compare"
            )
        winners[tuning.variant] = won
    plan = registration_plan(running.study, tunings, winners, running.data)
    digest = registration.register(layout, plan, former)
    running.say(f"{name}: registered what will be compared, digest {digest}")


def report(running: Running) -> str | None:
    """The reported runs, a portion of the seeds for each look, until the differences are decided.
    Returns what failed in a line, or None. Raises StudyError: nothing is registered, or other runs
    were."""
    from rpg.report.selection import MEAN  # noqa: PLC0415 - the database: not before the first trainings

    layout = running.layout
    name = running.name
    record = registration.read_record(layout, name)
    if record is None:
        command = next_steps.command(
            "study", str(running.study.path), "--only", "register", layout=layout
        )
        raise StudyError(
            f"{name}: nothing is registered yet, and only what is registered is reported; "
            f"first: {command}"
        )
    sweep = reported_plan(record, running.study, running.data)
    for run in sweep.runs:
        # Where data or defaults are others today than when the record was digested.
        registered = record["runs"][run.folder]["run_id"]
        if run.run_id != registered:
            raise StudyError(
                f"{registration.record_path(layout, name)}: runs: {run.folder} would now be run "
                f"{run.run_id}, but {registered} was registered: its data or the record have "
                "changed since"
            )
    looks = portions(record["seeds"], record["looks"])
    headline = MEAN if len(record["benchmarks"]) > 1 else record["benchmarks"][0]
    for number, seeds in enumerate(looks, 1):
        runs = {run.folder for run in sweep.runs if run.spec.seed in seeds}
        error = _look(running, sweep, runs)
        if error:
            return error
        if record["factors"]:
            _look_over_levels(layout, name, runs)
        taken = registration.counted_looks(layout, record)
        if number < len(looks) and any(
            decided(at["results"], headline, record["matters"]) for at in taken
        ):
            running.say(
                f"{name}: decided after {len(seeds)} of {len(record['seeds'])} seeds, by "
                "the registered rule"
            )
            return None
    return None


def _look(running: Running, sweep: Sweep, runs: Collection[str]) -> str | None:
    """Train what is missing of these runs, and look at the differences. Returns what failed in a
    line, or None."""
    layout = running.layout
    name = sweep.spec.name
    folders = [layout.run(name, run) for run in runs]
    if not all(each.done_path.exists() for each in folders):
        error = running.conduct(sweep, runs)
        if error:
            return error
    # A look before all are there would spend what the next one needs.
    left = [folder for folder in folders if not folder.done_path.exists()]
    if left:
        return (
            f"{len(left)} runs are not done; {left[0].name}: "
            f"{(left[0].read_failed() or {}).get('error')}"
        )
    if not any(set(look["runs"]) == set(runs) for look in layout.read_looks(name)):
        from rpg.report.upkeep import write  # noqa: PLC0415 - as above
        from rpg.store.database import build  # noqa: PLC0415 - as above

        build(layout)
        write(layout, name)
    return None


def _look_over_levels(layout: Layout, name: str, runs: Collection[str]) -> None:
    """Look at the differences over the levels of the factors, once for these runs, and keep what is
    found."""
    from rpg.store.database import build, connect  # noqa: PLC0415 - as above
    from rpg.study.analysis import look_over_levels, reported  # noqa: PLC0415 - as above

    registered = registration.registration(layout, name)
    record = registration.read_record(layout, name)
    assert registered and record
    looks = registration.counted_looks(layout, record)
    if any(set(look["runs"]) == set(runs) for look in looks):
        return
    build(layout)
    with connect(layout) as db:
        looked = look_over_levels(reported(db, registered), registered, looks)
        if looked:
            layout.add_look(registered.sweep, looked[1]._asdict())


STEPS = ("tune", "register", "report")


def run_steps(only: Collection[str], running: Running) -> str | None:
    """The steps named in `only`, in their order. Returns what failed in a line, or None."""
    tunings = begin(running)
    if "tune" in only:
        tune(running, tunings)
    if "register" in only:
        register(running, tunings)
    return report(running) if "report" in only else None
