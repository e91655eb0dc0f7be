"""What is tried next: a pure function of the space, the earlier trials and a seed (docs/studies.md,
"Tuning").

Optuna's sampler (TPE: Bergstra et al. 2011) is made anew for every batch, and told all earlier
trials in their order.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import optuna

from rpg.config.identity import digest
from rpg.study.spec import Range, Space
from rpg.study.tuning import Trial

optuna.logging.set_verbosity(optuna.logging.ERROR)
STARTUP = 8
"""Trials, finished or pruned, before proposals depend on them."""


def batch_seed(space: Space, seeds: Sequence[int], batch: int) -> int:
    """The sampler's seed of a batch, the same for all variants; other tuning `seeds` have other
    batches."""
    ranges = {field: values.model_dump(mode="json") for field, values in space.items()}
    return int(digest({"space": ranges, "seeds": list(seeds), "batch": batch})[:8], 16)


def propose(space: Space, earlier: Sequence[Trial], count: int, seed: int) -> list[dict[str, Any]]:
    """Settings of the next `count` trials after the `earlier` ones: at random until `STARTUP` have
    ended, then by TPE."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True)
    search = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {field: _distribution(values) for field, values in space.items()}
    search.add_trials([_told(trial, space, distributions) for trial in earlier])
    asked = [search.ask(distributions).params for _ in range(count)]
    return [
        {field: values.of(params[field]) for field, values in space.items()} for params in asked
    ]


def _distribution(values: Range) -> optuna.distributions.BaseDistribution:
    """Choices go by their number, since Optuna takes no mappings."""
    if values.choices is not None:
        return optuna.distributions.CategoricalDistribution(range(len(values.choices)))
    whole = all(isinstance(end, int) for end in values.ends)
    between = (
        optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    )
    low, high = values.ends
    return between(low, high, log=values.log is not None)


def _told(
    trial: Trial, space: Space, distributions: dict[str, optuna.distributions.BaseDistribution]
) -> optuna.trial.FrozenTrial:
    """A trial as the sampler gets to know it; of a pruned one how good it was after how many
    seeds."""
    states = optuna.trial.TrialState
    state = {"finished": states.COMPLETE, "pruned": states.PRUNED}.get(trial.state, states.FAIL)
    numbers = {field: values.number(trial.settings[field]) for field, values in space.items()}
    seeds = sum(outcome is not None for outcome in trial.outcomes)
    return optuna.trial.create_trial(
        state=state,
        value=trial.objective if state == states.COMPLETE else None,
        params=numbers,
        distributions=distributions,
        intermediate_values={seeds: trial.objective} if state == states.PRUNED else None,
    )
