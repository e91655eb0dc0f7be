"""The sweeps of a study: its trials, and what it reports, as runs that the conductor of sweeps
trains."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rpg import stats
from rpg.config.identity import identity
from rpg.config.load import without_folders
from rpg.config.run_spec import RunSpec
from rpg.config.sweep_file import Budget, SweepSpec
from rpg.config.sweep_spec import PlannedRun, Sweep
from rpg.config.variant_names import run_folder, value_text
from rpg.study.registration import STOPPING, reported_sweep, reported_variant
from rpg.study.spec import FEWEST_SEEDS, Study, resolved
from rpg.study.trials import Tuning, tuning_sweep
from rpg.study.tuning import Trial, few_searches

DataDigest = Callable[[RunSpec], str]


def _planned(
    base: dict[str, Any],
    name: str,
    variant: str,
    values: dict[str, Any],
    path: Path,
    data: DataDigest,
) -> PlannedRun:
    """The run with these values by dotted field, in the folder <name>-s<seed>-<identity>."""
    spec = resolved(base, values, path)
    digest = data(spec)
    run_id = identity(spec, digest)
    return PlannedRun(run_folder(name, spec.seed, run_id), run_id, variant, values, spec, digest)


def trial_runs(study: Study, tuning: Tuning, trial: Trial, data: DataDigest) -> list[PlannedRun]:
    """The runs of a trial, by tuning seed."""
    values = study.variants[tuning.variant] | trial.settings
    values |= {"evaluation.benchmarks": list(tuning.benchmarks)}
    named = f"{tuning.variant}-{trial.number:03d}", f"{tuning.variant} trial {trial.number}"
    return [
        _planned(study.base, *named, {**values, "seed": seed}, study.path, data)
        for seed in tuning.seeds
    ]


def tuning_plan(study: Study, runs: Sequence[PlannedRun]) -> Sweep:
    """The sweep of the trials that have been run, or are to be run now."""
    spec = SweepSpec(
        name=tuning_sweep(study.spec.name),
        description=f"Trials of the study {study.spec.name}: settings that were tried, "
        "on seeds that are not reported.",
    )
    text = study.path.read_text(encoding="utf-8")
    return Sweep(spec, tuple(runs), None, text, study.path, reported=False)


def registration_plan(
    study: Study,
    tunings: Sequence[Tuning],
    winners: Mapping[str, Sequence[Trial]],
    data: DataDigest,
) -> dict[str, Any]:
    """What will be compared, for rpg.study.registration.register; `winners` are the trials that
    won, by variant and search. The reported seeds take the searches in turn."""
    report = study.spec.report
    factors = study.spec.factors
    variants = {}
    for variant, settings in study.variants.items():
        # A searched setting is shown as one value, or as a list with one for each search.
        searched = [won.settings for won in winners[variant]]
        shown = searched[0]
        if len(searched) > 1:
            shown = {field: [each[field] for each in searched] for field in shown}
        variants[variant] = settings | shown
    plan: dict[str, Any] = {
        "study": study.spec.name,
        "question": study.spec.question,
        "base": without_folders(study.base),
        "variants": variants,
        "trials": {variant: [trial.number for trial in won] for variant, won in winners.items()},
        "tuning": {tuning.variant: tuning.digest for tuning in tunings},
        "baseline": report.baseline or next(iter(variants)),
        "seeds": report.seeds,
        "benchmarks": study.reported_benchmarks(),
        "matters": report.matters,
        "budget": report.budget.tokens if report.budget else None,
        "looks": report.looks,
        "stopping": STOPPING,
        "factors": factors,
        "runs": {},
    }
    crossed = [
        dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())
    ]
    for variant, levels, (place, seed) in itertools.product(
        variants, crossed, enumerate(report.seeds)
    ):
        won = winners[variant][place % len(winners[variant])].settings
        planned = {"variant": variant, "seed": seed, "settings": won, "factors": levels}
        run = _reported_run(plan, planned, study, data)
        plan["runs"][run.folder] = planned | {"run_id": run.run_id}
    # As it will be read: the digest is that of the file's content.
    return dict(json.loads(json.dumps(plan)))


def _reported_run(
    plan: Mapping[str, Any], planned: Mapping[str, Any], study: Study, data: DataDigest
) -> PlannedRun:
    """A run of a plan, whose variant is that of the plan at one level of every factor. The study
    says where its files lie; that their content is what was registered, the run's identity says."""
    variant = planned["variant"]
    levels = planned["factors"]
    values = plan["variants"][variant] | planned["settings"] | levels
    values |= {"evaluation.benchmarks": list(plan["benchmarks"]), "seed": planned["seed"]}
    name = "-".join([variant, *map(value_text, levels.values())])
    return _planned(study.base, name, reported_variant(variant, levels), values, study.path, data)


def reported_plan(record: Mapping[str, Any], study: Study, data: DataDigest) -> Sweep:
    """The sweep that a record of rpg.study.registration plans. Its variants are those of the
    record, per level of its factors. The study looks at it (flows.study.steps), when all runs of a
    portion are done."""
    planned = record["runs"].items()
    runs = [
        replace(_reported_run(record, each, study, data), folder=folder) for folder, each in planned
    ]
    first = {field: levels[0] for field, levels in record["factors"].items()}
    baseline = reported_variant(record["baseline"], first)
    spec = SweepSpec(
        name=reported_sweep(record["study"], record["digest"]),
        description=record["question"],
        matters=record["matters"],
        budget=Budget(tokens=record["budget"]) if record["budget"] else None,
    )
    text = json.dumps(record, indent=1, ensure_ascii=False)
    searches = len(next(iter(record["trials"].values())))
    return Sweep(
        spec,
        tuple(runs),
        baseline,
        text,
        study.path,
        reported=False,
        caution=few_searches(searches, len(record["seeds"])),
    )


def portions(seeds: Sequence[int], looks: int) -> list[list[int]]:
    """The seeds that are in at each look: as many more each time; at the first of several as many
    as a test needs."""
    if looks == 1:
        return [list(seeds)]
    step = (len(seeds) - FEWEST_SEEDS) / (looks - 1)
    return [list(seeds[: FEWEST_SEEDS + round(step * look)]) for look in range(looks)]


def decided(results: Mapping[str, Sequence[Any]], headline: str, matters: float) -> bool:
    """Whether the differences of a look (rpg.stats.Look.results) need no more seeds: each is
    better, worse, or has an interval within `matters`. Those of single benchmarks do not count,
    `headline` names what variants are judged by."""
    on_headline = [result for key, result in results.items() if json.loads(key)[1] == headline]
    for low, high, verdict in on_headline:
        negligible = -matters <= low and high <= matters
        if verdict not in (stats.BETTER, stats.WORSE) and not negligible:
            return False
    return bool(on_headline)
