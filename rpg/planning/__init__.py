"""What a run needs, before it runs: time, memory, disk, GPUs; and what a step costs here.

In: resolved runs and the times of finished ones. Out: forecasts, warnings, and refusals of what
cannot fit. `bench` measures a training step beside bare products and beside TRL. Read first:
cost.py, then preflight.py.
"""
