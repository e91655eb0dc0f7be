"""What the form for a sweep says of each configuration: how many runs it has, and what they cost."""

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
"""How long times are kept that were measured on finished runs."""
HEAD = "What the files take as they are (time: their trainings one after the other, by finished runs of their size): "


class Offers:
    """The words for the form, made again when a configuration changes."""

    def __init__(self) -> None:
        self._of: object = None
        self._words = ""

    def words(self, where: forms.Roots) -> str:
        """One paragraph: Prefect's form renders Markdown, but no tables."""
        files = forms.configs(where)
        now = ({name: _changed(path) for name, path in files.items()}, time.monotonic() // AGAIN_SECONDS)
        if now != self._of:
            known = measured(Layout.at(where.home))
            each = [f"`{name}` {said(path, known)}" for name, path in files.items()]
            self._of, self._words = now, HEAD + " · ".join(each)
        return self._words


def said(path: Path, known: Measured) -> str:
    """Number of runs, optimizer steps and time of a file as it is."""
    try:
        sweep = load_sweep(path, {}, lambda task: "")
    except (UserError, OSError, ValueError):  # said in words when it is started
        return "has a mistake"
    specs = [run.spec for run in sweep.runs]
    updates = sum(cost(spec).optimizer_steps for spec in specs)
    runs = f"{len(specs)} run{'s' if len(specs) > 1 else ''}"
    return ", ".join(filter(None, [runs, f"{updates:,} optimizer steps", _time(specs, known)]))


def _time(specs: Sequence[RunSpec], known: Measured) -> str:
    times = [known.seconds_per_step(spec) for spec in specs]
    if all(times):
        seconds = sum(
            found[0] * spec.training.steps for found, spec in zip(times, specs, strict=True) if found
        )
        return f"about {math.ceil(seconds / 60)} min"
    by_arithmetic = [estimate(spec) for spec in specs]
    if all(by_arithmetic):
        return f"{sum(one.gpu_hours for one in by_arithmetic if one):,.0f} GPU hours, by arithmetic"
    return ""


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
