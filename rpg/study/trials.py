"""The trials of a study: what was proposed, from the records of its batches, written before their
first run starts and never again; and what came of it, from the run folders."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas
from pydantic import TypeAdapter

from rpg.config.identity import digest, results_identity
from rpg.config.run_spec import RunSpec
from rpg.store import Layout, RunFolder, atomic_write_json
from rpg.store.run_folder import FORMAT, folders, read_checked
from rpg.store.samples import accuracy
from rpg.study.spec import Space, Study
from rpg.study.tuning import Outcome, Trial, pruned_and_due, winner


class Tuning(NamedTuple):
    """How one variant is tuned, from study.json: all that decides its trials, and how many batches
    there are in all."""

    variant: str
    digest: str
    space: Space
    benchmarks: tuple[str, ...]
    seeds: tuple[int, ...]
    batches: int
    halving: bool


def tuning_sweep(study: str) -> str:
    """Name of the sweep whose runs are the trials."""
    return f"{study}.tuning"


def studies(layout: Layout) -> list[str]:
    """Names of the studies in the data folder, sorted."""
    names = folders(layout.home / "studies")
    return [name for name in names if (layout.study_folder(name) / "study.json").is_file()]


def write_study(layout: Layout, study: Study, tunings: list[Tuning]) -> None:
    """Write study.json: the file as it was read last, and how each variant is tuned."""
    spec = study.spec
    record = {
        "format": FORMAT,
        "name": spec.name,
        "question": spec.question,
        "path": str(study.path),
        "spec": spec.model_dump(mode="json"),
        "variants": study.variants,
        "searches": study.searches,
        "tuning": [tuning._asdict() | {"space": _json(tuning.space)} for tuning in tunings],
    }
    atomic_write_json(layout.study_folder(spec.name) / "study.json", record)


def read_study(layout: Layout, study: str) -> dict[str, Any]:
    """The content of study.json. Raises StoreError: there is no such study, or the file cannot be
    read."""
    return read_checked(
        layout.study_folder(study) / "study.json", ("name", "spec", "variants", "tuning")
    )


def tunings_of(
    study: Study, data: Callable[[RunSpec], str], before: Mapping[str, str]
) -> list[Tuning]:
    """How the variants of a study file are tuned; `data` gives the digest of a run's data, `before`
    has the digests that the study has been tuned under. One of the form until November 2026, which
    depended on the folder, is kept."""
    tune = study.spec.tune
    benchmarks = study.tuning_benchmarks()
    shared = data(study.run(study.spec.set))
    tunings = []
    for variant, settings in study.variants.items():
        space = study.space(variant)
        decisive = {
            "space": _json(space),
            "benchmarks": benchmarks,
            **tune.model_dump(mode="json", include={"trials", "batch", "seeds", "prune"}),
        }
        former = digest({"base": study.base, "settings": settings, "data": shared, **decisive})
        run = study.run(study.first_corner(variant))
        results = results_identity(run, data(run))
        kept = former if before.get(variant) == former else digest({"results": results, **decisive})
        count = study.searches * study.batches
        halving = tune.prune != "none"
        tunings.append(Tuning(variant, kept, space, benchmarks, tune.seeds, count, halving))
    return tunings


def _json(space: Space) -> dict[str, Any]:
    return {
        field: values.model_dump(mode="json", exclude_none=True) for field, values in space.items()
    }


def batch_path(layout: Layout, study: str, tuning: Tuning, number: int) -> Path:
    folder = layout.study_folder(study) / "batches"
    return folder / f"{tuning.variant}.{tuning.digest[:8]}-{number:03d}.json"


def batch_trials(
    layout: Layout, study: str, tuning: Tuning, number: int
) -> tuple[list[Trial], list[tuple[int, int]]]:
    """The trials of a batch that was proposed, with what their runs have come to, and the runs that
    are due (rpg.study.tuning.pruned_and_due). Raises StoreError: the record cannot be read."""
    record = read_checked(batch_path(layout, study, tuning, number), ("search", "trials"))
    batch = {"search": record["search"], "batch": number}
    trials = []
    for proposed in record["trials"]:
        runs = [layout.run(tuning_sweep(study), run) for run in proposed["runs"]]
        outcomes = tuple(outcome(run, tuning.benchmarks) for run in runs)
        trials.append(
            Trial(proposed["trial"], proposed["settings"], outcomes, runs=proposed["runs"], **batch)
        )
    return pruned_and_due(trials, tuning.halving)


def tried(layout: Layout, study: str, tuning: Tuning) -> list[Trial]:
    """The trials of a variant that were proposed, one search after another."""
    paths = (batch_path(layout, study, tuning, number) for number in range(tuning.batches))
    proposed = [number for number, path in enumerate(paths) if path.exists()]
    return [
        trial for number in proposed for trial in batch_trials(layout, study, tuning, number)[0]
    ]


def by_search(trials: Sequence[Trial]) -> list[list[Trial]]:
    return [
        list(of_search) for _, of_search in itertools.groupby(trials, lambda trial: trial.search)
    ]


def tuned(layout: Layout, study: str, tuning: Tuning) -> list[list[Trial]] | None:
    """The searches of a variant whose trials have all ended; None before."""
    record = read_study(layout, study)
    trials = tried(layout, study, tuning)
    ended = sum(trial.state != "pending" for trial in trials)
    return (
        by_search(trials)
        if ended == record["spec"]["tune"]["trials"] * record["searches"]
        else None
    )


def outcome(folder: RunFolder, benchmarks: tuple[str, ...]) -> Outcome:
    """Mean over benchmarks of the accuracy at the last checkpoint; NaN for a failed run, None for
    one that is not done."""
    if not folder.done_path.exists():
        return math.nan if folder.failed_path.exists() and folder.state() == "failed" else None
    return accuracy(folder, benchmarks, folder.read_manifest()["steps"])


COLUMNS = ("seeds", "objective", "best", "pruned", "state", "tokens", "seconds", "run_ids")


def trials(layout: Layout, study: str) -> pandas.DataFrame:
    """One row per trial of each variant: variant, search, trial, batch, a column per searched field
    (NaN where the variant does not have it), seeds (runs that are there), objective (mean accuracy
    over them; NaN without), best (whether it won its search), pruned, state (pending, finished,
    pruned or failed), tokens and seconds (spent by its runs), run_ids (their folders in the sweep
    <study>.tuning). Raises StoreError: there is no such study, or a record cannot be read.
    """
    record = read_study(layout, study)
    rows: list[dict[str, Any]] = []
    for tuning in tunings_from(record):
        of_variant = tried(layout, study, tuning)
        won = [winner(trials) for trials in by_search(of_variant)]
        for trial in of_variant:
            began = [layout.run(tuning_sweep(study), run) for run in trial.runs]
            spent = [_spent(folder) for folder in began]
            rows.append(
                {
                    "variant": tuning.variant,
                    "search": trial.search,
                    "trial": trial.number,
                    "batch": trial.batch,
                    **trial.settings,
                    "seeds": sum(
                        value is not None and not math.isnan(value) for value in trial.outcomes
                    ),
                    "objective": trial.objective,
                    "best": trial in won,
                    "pruned": trial.pruned,
                    "state": trial.state,
                    "tokens": sum(tokens for tokens, _ in spent),
                    "seconds": sum(seconds for _, seconds in spent),
                    "run_ids": [folder.name for folder in began if folder.path.is_dir()],
                }
            )
    columns = ["variant", "search", "trial", "batch"]
    columns += dict.fromkeys(field for entry in record["tuning"] for field in entry["space"])
    columns += COLUMNS
    return pandas.DataFrame(rows, columns=columns)


def tunings_from(record: dict[str, Any]) -> list[Tuning]:
    """How each variant is tuned, of the content of study.json."""
    return TypeAdapter(list[Tuning]).validate_python(record["tuning"])


def _spent(folder: RunFolder) -> tuple[float, float]:
    """(tokens, seconds) that a run has spent so far."""
    done = folder.read_done()
    if not done:
        return 0.0, 0.0
    rows = folder.last_metrics()
    return float(rows[-1].get("tokens", 0.0)) if rows else 0.0, float(done.get("seconds", 0.0))
