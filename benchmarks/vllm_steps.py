"""A run's steps with vLLM's rollouts, and with our own: processor seconds, and whether both learn.

    python -m benchmarks.vllm_steps [words] [--steps 6] [--engines local vllm] [--set FIELD=VALUE
        ...]

Both train from the same policy on the same prompts in processes of their own, one after the other;
responses differ, since vLLM has random numbers of its own. Printed are each step's accuracy, tokens
and KL(sampler || policy), and the processor seconds of its rollout (weights handed over, responses
drawn and graded) and of the rest. vLLM's first rollout starts it. Needs an environment with vLLM
(docs/verl.md, "On a CPU").
"""

from __future__ import annotations

import argparse
import os
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rpg.config.load import parse_assignments

os.environ.setdefault("OMP_NUM_THREADS", "1")


def train(engine: str, file: str, overrides: dict[str, Any], steps: int) -> None:
    from rpg.backends.local.rollout import Roller
    from rpg.backends.local.trainer import Trainer
    from rpg.backends.local.training_loop import configure_memory, configure_torch
    from rpg.config.shipped import find
    from rpg.config.sweep_spec import single_run
    from rpg.models.initial_policy import starting_policy
    from rpg.store import Layout
    from rpg.tasks.preparation import prepare_data, read_problems

    chosen = overrides | {"rollout.engine": engine}
    spec, home = (
        single_run(find(Path(file)), chosen, lambda spec: "data").runs[0].spec,
        Layout.at().home,
    )
    configure_torch(spec)
    configure_memory(spec)
    policy = starting_policy(spec, home, print)
    trainer = Trainer(spec, policy, Roller(spec, read_problems(prepare_data(spec, home).train)))
    roll, drawn = trainer.roller.roll, 0.0

    def timed(*given: Any) -> Any:
        nonlocal drawn
        began = time.process_time()
        rollout = roll(*given)
        drawn = time.process_time() - began
        return rollout

    trainer.roller.roll = timed  # type: ignore[method-assign,assignment]
    for step in range(1, steps + 1):
        began = time.process_time()
        row = trainer.step(step)
        rest = time.process_time() - began - drawn
        kl, tokens = row.get("kl_sampler_to_policy", 0.0), row["tokens"]
        learnt = f"accuracy {row['accuracy']:.3f}  {tokens:6} tokens  KL {kl:.0e}"
        print(
            f"{engine:5} step {step}  {learnt}  rollout {drawn:6.1f} s  rest {rest:6.1f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", default="words")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--engines", nargs="+", default=["local", "vllm"])
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE")
    options = parser.parse_args()
    overrides = parse_assignments(options.set)
    for engine in options.engines:
        process = get_context("spawn").Process(
            target=train, args=(engine, options.file, overrides, options.steps)
        )
        process.start()
        process.join()


if __name__ == "__main__":
    main()
