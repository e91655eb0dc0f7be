"""What the form of a sweep says about each configuration: how many runs it has, and what they cost."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from flows.serve import forms
from rpg.config.run_spec import RunSpec
from rpg.config.sweep_spec import load_sweep
from rpg.errors import UserError
from rpg.planning.cost import Measured, cost, measured
from rpg.planning.gpu_estimate import estimate
from rpg.store import Layout

AGAIN_SECONDS = 3600.0
"""How long the times that were measured on finished runs are kept."""
HEAD = "Cost of each configuration as its file stands (time: one run after the other, from finished runs of that size): "


class ConfigCosts:
    """The paragraph for the form, written again when a configuration changes."""

    def __init__(self) -> None:
        self._state: object = None
        self._paragraph = ""

    def paragraph(self, roots: forms.Roots) -> str:
        """One paragraph: Prefect's form renders Markdown, but no tables."""
        files = forms.configs(roots)
        state = ({name: _changed(path) for name, path in files.items()}, time.monotonic() // AGAIN_SECONDS)
        if state != self._state:
            times = measured(Layout.at(roots.home))
            costs = [f"`{name}` {cost_line(path, times)}" for name, path in files.items()]
            self._state, self._paragraph = state, HEAD + " · ".join(costs)
        return self._paragraph


def cost_line(path: Path, times: Measured) -> str:
    """Number of runs, optimizer steps and time of a file."""
    try:
        specs = [run.spec for run in load_sweep(path, {}, lambda _: "").runs]
    except (UserError, OSError, ValueError):  # the reason is given when it is started
        return "has a mistake"
    updates = sum(cost(spec).optimizer_steps for spec in specs)
    runs = f"{len(specs)} run{'s' if len(specs) > 1 else ''}"
    return ", ".join(filter(None, [runs, f"{updates:,} optimizer steps", _time(specs, times)]))


def _time(specs: Sequence[RunSpec], times: Measured) -> str:
    per_step = [times.seconds_per_step(spec) for spec in specs]
    if all(per_step):
        seconds = sum(
            step[0] * spec.training.steps for step, spec in zip(per_step, specs, strict=True) if step
        )
        return f"about {math.ceil(seconds / 60)} min"
    estimates = [estimate(spec) for spec in specs]
    if all(estimates):
        return f"{sum(gpu.gpu_hours for gpu in estimates if gpu):,.0f} GPU hours, by arithmetic"
    return ""


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
