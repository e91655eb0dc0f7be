"""Small sweeps run for real, as a user does: what tests of everything behind them look at."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.trivial import SECONDS, SWEEP
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parents[1]
SMALL = """\
name: small
description: Two variants, seconds each.
run:
  task: {type: chain, tiers: {easy: 2, medium: 3}, train_problems: 1000, benchmark_problems: 8}
  model:
    type: tiny
    warm_start: {target_accuracy: 0.02, consolidation_steps: 0, behaviour_steps: 5}
  training: {steps: 6, prompts_per_step: 8, mini_batch_prompts: 4}
  rollout: {group_size: 4}
  evaluation: {every: 3, samples_per_problem: 2}
axes:
  algorithm: [grpo, {name: rpg-reinforce-urkl, reference: {type: every_k, k: 5}}]
  seed: [0]
baseline: grpo
"""
REAL = "rpg"
TRIVIAL = "benchmarks.trivial"
"""Modules to run a sweep with: with the second, trainings and evaluations are made up, and all
around them is real."""
LONG = SWEEP.format(name="long", steps=100_000, every=50_000, seeds=[0, 1])
"""A trivial sweep that does not come to its end (its steps take SLOW)."""
SLOW = {SECONDS: "0.2"}


def command(root, *args, module=REAL, home=None, **environment):
    """Arguments for subprocess: the command `rpg` in the folder of the sweep files."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RPG_HOME": str(home or root / "data"),
        "COLUMNS": "160",
        **environment,
    }
    return {"args": [sys.executable, "-m", module, *args], "cwd": root, "env": environment}


def rpg(root, *args, **how):
    """Run it to its end."""
    return subprocess.run(
        **command(root, *args, **how), capture_output=True, text=True, timeout=2 * HANG
    )


def start(root, *args, home, **how):
    """Let it run; its output goes into a log named like its data folder."""
    with (root / f"{home.name}.log").open("wb") as log:
        started = command(root, *args, home=home, **how)
        return subprocess.Popen(**started, stdout=log, stderr=log, start_new_session=True)
