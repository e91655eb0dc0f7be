"""A small sweep run for real, as a user does: what tests of everything behind it look at."""

import os
import subprocess
import sys

SMALL = """\
name: small
description: Two variants, seconds each.
run:
  task: {type: chain, tiers: {easy: 2, medium: 3}, train_problems: 1000, benchmark_problems: 8}
  model: {type: tiny, warm_start: {target_accuracy: 0.02, behaviour_steps: 5}}
  training: {steps: 6, prompts_per_step: 8, mini_batch_prompts: 4}
  rollout: {group_size: 4}
  evaluation: {every: 3, samples_per_problem: 2}
axes:
  algorithm: [grpo, {name: rpg-reinforce-urkl, reference: {type: every_k, k: 5}}]
  seed: [0]
baseline: grpo
"""


def rpg(root, *args, **kwargs):
    environment = {**os.environ, "RPG_HOME": str(root / "data"), "COLUMNS": "160", **kwargs.pop("env", {})}
    command = [sys.executable, "-m", "rpg", *args]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=300, **kwargs
    )
