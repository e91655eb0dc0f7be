"""A study whose trainings are invented, for tests and for looking at its report and page. Never a
result: every manifest says so. All else is real: proposals, pruning, registration, and the files.

    # three variants, 24 trials each, five seeds
    python -m benchmarks.synthetic_study --home DIR
"""

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.synthetic import Shape, write_run
from flows.study.steps import STEPS, Running, StudyError, run_steps
from rpg.config.sweep_spec import Sweep
from rpg.store import Layout, atomic_write_json
from rpg.store.atomic_files import read_json_object
from rpg.store.run_writer import write_manifest
from rpg.study.registration import record_path
from rpg.study.spec import load_study

RATE, BETA = "training.optimizer.learning_rate", "algorithm.beta"
BEST = {"grpo": (0.45, 4e-4), "rpg-reinforce-urkl": (0.6, 1e-3), "dapo": (0.5, 7e-4)}
"""Variant -> how much it gains at its best learning rate, and that rate."""
SPACE = {RATE: {"log": [1e-4, 3e-3]}, BETA: {"log": [1e-2, 1.0]}}
TASK = {
    "type": "chain",
    "tiers": {"easy": 2, "hard": 4},
    "train_problems": 100,
    "benchmark_problems": 40,
}
REPORTED = Shape(steps=40, eval_every=2, problems=24)
QUESTION = "Which KL does a policy need that mostly answers without thinking?"


def write(
    home: Path,
    question: str = QUESTION,
    trials: int = 24,
    searches: int = 1,
    seeds: int = 5,
    factors: Mapping[str, Sequence[Any]] | None = None,
    shape: Shape = REPORTED,
    stop_after: int | None = None,
) -> Layout:
    """Run the study `kl-forms` to its end, or until `stop_after` trainings have been written; a
    second call goes on."""
    layout, path, left = Layout.at(home), home / "kl-forms.yaml", [stop_after or 10**6]
    tune = {
        "space": SPACE,
        "spaces": {"dapo": {BETA: None}},
        "trials": trials,
        "batch": min(8, trials),
    }
    tune |= {"searches": searches, "seeds": [100, 101], "prune": "successive-halving"}
    report = {"seeds": list(range(seeds)), "matters": 0.03}
    file = {
        "name": "kl-forms",
        "question": question,
        "base": "chain",
        "variants": list(BEST),
        "tune": tune,
    }
    file |= {
        "run": {"task": TASK | {"tuning_problems": 8}},
        "report": report,
        "factors": dict(factors or {}),
    }
    home.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(file))

    def conduct(sweep: Sweep, wanted: Collection[str]) -> str | None:
        record: dict[str, Any] = {
            "name": sweep.spec.name,
            "source": "",
            "baseline": sweep.baseline,
            "created": 1.7e9,
        }
        record |= {
            "matters": sweep.spec.matters,
            "caution": sweep.caution,
            "budget": None,
            "runs": [run.folder for run in sweep.runs],
        }
        layout.write_sweep(record | {"benchmarks": list(sweep.runs[0].spec.benchmarks())})
        for run in sweep.runs:
            folder = layout.run(sweep.spec.name, run.folder)
            if run.folder in wanted and not folder.done_path.exists():
                if not left[0]:
                    raise StudyError("as asked")
                left[0] -= 1
                tuning = sweep.spec.name.endswith(".tuning")
                own = replace(shape, steps=4, eval_every=4) if tuning else shape
                own = replace(own, benchmarks=tuple(run.spec.benchmarks()))
                gain = _gain(run.variant.partition(" ")[0], run.axes)
                write_run(folder, run.variant, run.spec.seed, gain, own, sweep.baseline)
                write_manifest(folder, folder.read_manifest() | {"run_id": run.run_id})
        return None

    try:
        run_steps(STEPS, Running(load_study(path), layout, conduct, say=lambda line: None))
    except StudyError:
        return layout
    written = record_path(layout, "kl-forms")  # before the time that invented metrics have
    atomic_write_json(written, read_json_object(written) | {"registered_at": 1.6e9})
    return layout


def _gain(variant: str, settings: Mapping[str, Any]) -> float:
    """How much a variant gains with these settings: less, the farther its rate is from the best,
    and with a large KL."""
    most, rate = BEST[variant]
    beta = settings.get(BETA, 0.05)
    return float(
        most - 0.22 * np.log10(settings[RATE] / rate) ** 2 - 0.1 * np.log10(beta / 0.05) ** 2
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--searches", type=int, default=1)
    options = parser.parse_args()
    write(options.home, trials=options.trials, searches=options.searches)
