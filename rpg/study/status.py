"""How far a study is, and what a reader should know about its tuning, from its records and runs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rpg.store import Layout
from rpg.study.registration import registration
from rpg.study.trials import read_study, tuning_from, variant_trials
from rpg.study.tuning import equal_settings, remarks, winner

headings = ["Variant", "Trials", "Finished", "Pruned", "Failed", "Best", "Settings"]


def state(layout: Layout, study: str) -> Iterator[list[str]]:
    """A row of `headings` per variant."""
    record = read_study(layout, study)
    for one in record["tuning"]:
        tuning = tuning_from(one)
        trials = variant_trials(layout, study, tuning)
        states = [trial.state for trial in trials]
        best = winner(trials)
        settings = (
            ", ".join(f"{field}={_short(value)}" for field, value in best.settings.items()) if best else ""
        )
        counts = [str(states.count(name)) for name in ("finished", "pruned", "failed")]
        yield [
            tuning.variant, f"{len(trials)} of {record['spec']['tune']['trials']}", *counts,
            f"{best.objective:.3f}" if best else "", settings,
        ]  # fmt: skip


def sentences(layout: Layout, study: str) -> Iterator[str]:
    """What a reader should know about the search, a sentence each."""
    record = read_study(layout, study)
    total = record["spec"]["tune"]["trials"]
    for one in record["tuning"]:
        tuning = tuning_from(one)
        trials = variant_trials(layout, study, tuning)
        over = len(trials) == total and not any(trial.state == "pending" for trial in trials)
        if over and winner(trials) is None:
            yield f"{tuning.variant}: none of {total} trials has finished, so it has no settings to compare"
        elif over:
            yield from remarks(tuning.variant, tuning.space, trials)
    if registered := registration(layout, study):
        yield from equal_settings(registered.runs_of_variants())


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) and math.isfinite(value) else str(value)
