"""Runs that cost nothing: real processes and real run folders, but nobody learns anything.

With these in place of trainer, evaluator and preparation, what is left of a sweep is its
orchestration, which is what benchmarks/thousand_runs.py times and benchmarks/chaos kills. The
numbers in the files follow from the run's identity and the step alone, so that an undisturbed sweep
and one that was killed can be compared to the bit.

    python -m benchmarks.trivial sweep FILE ...       # `rpg sweep` with trivial runs
"""

SECONDS = "RPG_TRIVIAL_SECONDS"
"""Environment variable: how long a step takes (default 0)."""
HOLD = "RPG_TRIVIAL_HOLD"
"""Environment variable: after which step a training stands still until it is killed (default:
none)."""

SWEEP = """\
name: {name}
description: Trivial runs; only the orchestration is real.
run:
  task: {{type: chain, tiers: {{easy: 2}}, benchmark_problems: 4}}
  model: {{type: tiny, warm_start: null}}
  training: {{steps: {steps}}}
  evaluation: {{every: {every}}}
axes:
  seed: {seeds}
"""
