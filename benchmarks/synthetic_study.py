"""An invented study for tests and for looking at its report and page. Never a result: every manifest says so.

python -m benchmarks.synthetic_study --home DIR       # a study with three variants, 24 trials each, and five seeds
"""

import argparse
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.synthetic import Shape, write_run
from rpg.store import Layout, atomic_write_json
from rpg.store.atomic_files import read_json_object
from rpg.study.registration import record_path, register, reported_sweep
from rpg.study.spec import Study, load_study
from rpg.study.trials import batch_path, outcome, tuning_sweep, tunings_of, write_study

RATE, BETA = "training.optimizer.learning_rate", "algorithm.beta"
BEST = {"grpo": (0.45, 4e-4), "rpg-reinforce-urkl": (0.6, 1e-3), "dapo": (0.5, 7e-4)}
"""Variant -> how much it gains at its best learning rate, and that rate."""
SPACE = {RATE: {"log": [1e-4, 3e-3]}, BETA: {"log": [1e-2, 1.0]}}
REPORTED = Shape(steps=40, eval_every=2, problems=24, samples=4, benchmarks=("chain-easy", "chain-hard"))


def write(
    home: Path,
    name: str = "kl-forms",
    question: str = "Which KL does a policy need that mostly answers without thinking?",
    trials: int = 24,
    seeds: int = 5,
    factors: Mapping[str, Sequence[Any]] | None = None,
    shape: Shape = REPORTED,
    registered: bool = True,
    unfinished: int = 0,
) -> Layout:
    """Write a study whose tuning is done but for the last `unfinished` trials of the last variant, and its reported runs."""
    layout = Layout.at(home)
    path = home / f"{name}.yaml"
    report = {"seeds": list(range(seeds)), "matters": 0.03}
    tune = {"space": SPACE, "spaces": {"dapo": {BETA: None}}, "trials": trials, "seeds": [100, 101]}
    tune |= {"prune": "successive-halving"}
    task = {"type": "chain", "tiers": {"easy": 2, "hard": 4}, "tuning_problems": 8}
    file = {
        "name": name,
        "question": question,
        "base": "chain",
        "run": {"task": task},
        "variants": list(BEST),
    }
    home.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(file | {"tune": tune, "report": report, "factors": dict(factors or {})}))
    study = load_study(path)
    winners = _tune(layout, study, shape, unfinished)
    if registered:
        _report(layout, study, shape, winners)
    return layout


def _gain(variant: str, settings: Mapping[str, float]) -> float:
    """How much a variant gains with these settings: less, the farther its rate is from the best one, and with a large KL."""
    most, rate = BEST[variant]
    return (
        most
        - 0.22 * np.log10(settings[RATE] / rate) ** 2
        - 0.1 * np.log10(settings.get(BETA, 0.05) / 0.05) ** 2
    )


def _tune(layout: Layout, study: Study, shape: Shape, unfinished: int) -> dict[str, dict[str, Any]]:
    """Trials at random settings, half of each batch pruned after the first seed; the best settings by variant."""
    spec, sweep, rng = study.spec, tuning_sweep(study.spec.name), np.random.default_rng(0)
    tunings = tunings_of(study, "data")
    write_study(layout, study, tunings)
    short = replace(shape, steps=4, eval_every=4, benchmarks=study.tuning_benchmarks())
    runs: list[str] = []
    winners: dict[str, dict[str, Any]] = {}
    for tuning in tunings:
        every: list[dict[str, Any]] = []
        for batch, first in enumerate(range(0, spec.tune.trials, spec.tune.batch)):
            proposed: list[dict[str, Any]] = []
            for trial in range(first, min(first + spec.tune.batch, spec.tune.trials)):
                settings = {
                    f: float(np.exp(rng.uniform(np.log(r.low), np.log(r.high))))
                    for f, r in tuning.space.items()
                }
                names = [f"{tuning.variant}-t{trial}-seed{seed}" for seed in spec.tune.seeds]
                proposed.append({"trial": trial, "settings": settings, "runs": names})
            atomic_write_json(batch_path(layout, spec.name, tuning, batch), {"format": 1, "trials": proposed})
            every += proposed
            left = (
                proposed
                if tuning is not tunings[-1]
                else proposed[: max(0, spec.tune.trials - unfinished - first)]
            )
            for place, seed in enumerate(spec.tune.seeds):
                for one in left:
                    run = layout.run(sweep, one["runs"][place])
                    gain = _gain(tuning.variant, one["settings"])
                    write_run(run, f"{tuning.variant} t={one['trial']}", seed, gain, short, None)
                    runs.append(run.name)
                reached = {
                    one["trial"]: outcome(layout.run(sweep, one["runs"][0]), tuning.benchmarks)
                    for one in left
                }
                left = sorted(left, key=lambda one: -(reached[one["trial"]] or 0.0))[
                    : math.ceil(len(left) / 2)
                ]
        winners[tuning.variant] = max(every, key=lambda one: _gain(tuning.variant, one["settings"]))[
            "settings"
        ]
    layout.write_sweep(_sweep(sweep, runs, None, short.benchmarks))
    return winners


def _sweep(name: str, runs: list[str], baseline: str | None, benchmarks: Sequence[str]) -> dict[str, Any]:
    record = {"name": name, "source": "", "baseline": baseline, "created": 1.7e9, "runs": runs}
    return record | {"benchmarks": list(benchmarks)}


def _report(layout: Layout, study: Study, shape: Shape, winners: Mapping[str, dict[str, Any]]) -> None:
    spec = study.spec
    shape = replace(shape, benchmarks=study.reported_benchmarks())
    levels = [
        dict(zip(spec.factors, values, strict=True)) for values in itertools.product(*spec.factors.values())
    ]
    runs: dict[str, dict[str, Any]] = {}
    labels = {}
    for variant, settings in winners.items():
        for level in levels:
            label = " ".join([variant, *(f"{field}={value}" for field, value in level.items())])
            for seed in spec.report.seeds:
                run = f"{label.replace(' ', '-')}-seed{seed}"
                runs[run] = {"variant": variant, "seed": seed, "factors": level, "run_id": run}
                labels[run] = label, _gain(variant, settings)
    plan = {
        "study": spec.name, "question": spec.question, "base": study.base, "trials": spec.tune.trials,
        "variants": {name: {**study.variants[name], **settings} for name, settings in winners.items()},
        "tuning": {one.variant: one.digest for one in tunings_of(study, "data")}, "baseline": next(iter(winners)),
        "seeds": list(spec.report.seeds), "benchmarks": list(shape.benchmarks), "matters": spec.report.matters,
        "budget": None, "looks": 1, "stopping": "", "factors": {k: list(v) for k, v in spec.factors.items()}, "runs": runs,
    }  # fmt: skip
    register(layout, plan)
    record = read_json_object(record_path(layout, spec.name))
    atomic_write_json(record_path(layout, spec.name), record | {"registered_at": 1.6e9})
    sweep, baseline = reported_sweep(spec.name, record["digest"]), next(iter(labels.values()))[0]
    for run, (label, gain) in labels.items():
        folder = layout.run(sweep, run)
        write_run(folder, label, runs[run]["seed"], gain, shape, baseline)
        atomic_write_json(folder.manifest_path, folder.read_manifest() | {"run_id": run})
    layout.write_sweep(
        _sweep(sweep, list(runs), baseline, shape.benchmarks)
        | {"matters": spec.report.matters, "budget": None}
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--unfinished", type=int, default=0)
    options = parser.parse_args()
    write(options.home, unfinished=options.unfinished, registered=not options.unfinished)
