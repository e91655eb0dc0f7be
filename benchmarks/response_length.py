"""What a training step costs as responses get longer: processor seconds of the embedded trainer's
own step, one thread.

    python -m benchmarks.response_length [--lengths 42 128 512 1024] [--prompts 8] [--group 8]
        [--algorithm grpo]

The trainer is the one of `rpg train` (sampling, grading, log-probabilities, one update, as its
metrics time them), with the tiny model, whose weights are random here. No response may end before
its length, so all of a group part early and little is shared: the worst case. The first step of
each length is left out, and of the others the median counts. Printed are its phases (seconds) and
the exponent between the shortest and the longest: 1 would be as many times the work as there are
tokens, 2 that of attention alone.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rpg.backends.local.rollout import Roller
from rpg.backends.local.trainer import Trainer
from rpg.backends.local.training_loop import configure_memory, configure_torch
from rpg.config.run_spec import RunSpec
from rpg.config.task import MarkerVerifier
from rpg.models.initial_policy import initial_policy
from rpg.tasks.preparation import prepare_data, read_problems
from rpg.tasks.rewards.grades import Grade
from rpg.tasks.rewards.scoring import Answered, Scored, Scorer

PHASES = ("rollout", "log_prob", "update")


class Digits(Scorer):
    """A reward that differs within every group, whatever a model says: groups without a signal
    would be left out."""

    def __init__(self) -> None:
        super().__init__(MarkerVerifier(type="marker"))

    def score(self, answered: Sequence[Answered]) -> list[Scored]:
        shares = [
            sum(map(str.isdigit, one.response)) / max(len(one.response), 1) for one in answered
        ]
        return [Scored(share, Grade(None, False, "not asked for"), {}) for share in shares]


def spec_of(length: int, options: argparse.Namespace) -> RunSpec:
    training = {"prompts_per_step": options.prompts, "mini_batch_prompts": options.prompts}
    rollout = {
        "group_size": options.group,
        "max_response_tokens": length,
        "min_response_tokens": length - 1,
    }
    return RunSpec.model_validate(
        {
            "algorithm": options.algorithm,
            "model": {"type": "tiny", "max_positions": 2048, "warm_start": None},
            "training": training,
            "rollout": rollout,
        }
    )


def measure(spec: RunSpec, home: Path, steps: int) -> tuple[float, dict[str, float]]:
    """(processor seconds, wall seconds of its phases) of the median step behind the first."""
    problems = read_problems(prepare_data(spec, home).train)
    policy = initial_policy(spec, home, say=lambda line: None)
    trainer = Trainer(spec, policy, Roller(spec, problems))
    trainer.roller.scorer = Digits()
    found = []
    for step in range(1, steps + 2):
        began = time.process_time()
        metrics = trainer.step(step)
        found.append(
            (time.process_time() - began, {name: metrics[f"seconds_{name}"] for name in PHASES})
        )
        assert spec.rollout.max_response_tokens - metrics["response_length"] <= 1
        assert metrics["groups_kept"] == spec.training.prompts_per_step
    return sorted(found[1:], key=lambda one: one[0])[steps // 2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[42, 128, 512, 1024])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument(
        "--algorithm", default="grpo", help="any of the catalogue; grpo also scores a reference"
    )
    parser.add_argument("--steps", type=int, default=7, help="of each length, behind a first one")
    options = parser.parse_args()
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        for length in sorted(options.lengths):
            spec = spec_of(length, options)
            configure_torch(spec)
            configure_memory(spec)
            took[length], phases = measure(spec, Path(folder), options.steps)
            parts = ", ".join(f"{name} {phases[name]:.3f}" for name in PHASES)
            print(f"{length:6} tokens: {took[length]:7.3f} s  ({parts})", flush=True)
    short, long = min(took), max(took)
    print(
        f"exponent {short} to {long}: "
        f"{math.log(took[long] / took[short]) / math.log(long / short):.2f}"
    )


if __name__ == "__main__":
    main()
