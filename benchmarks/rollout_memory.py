"""The peak memory of a training on this CPU beside what `rpg show` foretells: `python
benchmarks/rollout_memory.py`.

A model with random weights draws responses of maximum length (no end token before), all at once and
some at a time; each run is a process of its own. Prints a line for each, with the peak of its
resident memory as the kernel counts it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RUN: dict[str, Any] = {
    "task": {"type": "chain", "tiers": {"one": 1}, "train_problems": 200, "benchmark_problems": 8},
    "model": {
        "type": "tiny",
        "hidden_size": 512,
        "layers": 4,
        "heads": 8,
        "kv_heads": 8,
        "intermediate_size": 512,
        "max_positions": 512,
        "warm_start": {
            "max_steps": 1,
            "target_accuracy": 0,
            "consolidation_steps": 0,
            "behaviour_steps": 1,
        },
    },
    "algorithm": "grpo",
    "training": {
        "steps": 1,
        "prompts_per_step": 8,
        "mini_batch_prompts": 4,
        "micro_batch_tokens": 512,
    },
    "rollout": {
        "group_size": 8,
        "max_prompt_tokens": 16,
        "max_response_tokens": 384,
        "min_response_tokens": 383,
    },
    "evaluation": {"every": 1, "samples_per_problem": 1},
}


def child(rows: int | None) -> None:
    from rpg.backends.local.rollout import Roller
    from rpg.backends.local.trainer import Trainer
    from rpg.backends.local.training_loop import configure_torch
    from rpg.config.load import resolve
    from rpg.models.initial_policy import starting_policy
    from rpg.planning.space import memory
    from rpg.tasks.preparation import prepare_data, read_problems

    spec = resolve(RUN | {"rollout": RUN["rollout"] | {"rows_at_once": rows}}, "rollout-memory")
    configure_torch(spec)
    with tempfile.TemporaryDirectory() as home:
        problems = read_problems(prepare_data(spec, Path(home)).train)
        policy = starting_policy(spec, Path(home), lambda text: None)
        trainer = Trainer(spec, policy, Roller(spec, problems))
        metrics = trainer.step(1)
    need = memory(spec)
    assert need is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {
                "rows": need.rows_at_once,
                "forecast": need.most,
                "peak": peak,
                "tokens": metrics["tokens"],
            }
        )
    )


def measured(rows: int | None) -> dict[str, float]:
    """Forecast and peak, bytes, of a step that draws `rows` responses at a time (None: all)."""
    command = [sys.executable, __file__, "--child", str(rows or 0)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child or None)
        return
    for rows in (None, 16):
        result = measured(rows)
        ratio = result["peak"] / result["forecast"]
        print(
            f"{result['rows']:3.0f} rows at a time: forecast {result['forecast'] / 1e6:5.0f} MB, "
            f"peak {result['peak'] / 1e6:5.0f} MB ({ratio:.2f})"
        )


if __name__ == "__main__":
    main()
