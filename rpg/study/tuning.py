"""Tuning as pure functions of outcomes: which trials go on, which settings win, what a reader
should know about a search."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rpg.errors import plural
from rpg.study.spec import Space

Outcome = float | None
"""Accuracy of one run of a trial; NaN: it failed; None: it is not there yet."""
State = Literal["pending", "finished", "pruned", "failed"]


@dataclass(frozen=True)
class Trial:
    """One setting that is tried, and its outcome by tuning seed, in the order of the seeds. Its
    search knows only its own trials; those of a batch were proposed together. `runs`: the folders
    of its runs."""

    number: int
    settings: dict[str, Any]
    outcomes: tuple[Outcome, ...]
    pruned: bool = False
    search: int = 0
    batch: int = 0
    runs: Sequence[str] = ()

    @property
    def state(self) -> State:
        if any(outcome is not None and math.isnan(outcome) for outcome in self.outcomes):
            return "failed"
        if self.pruned:
            return "pruned"
        return "pending" if None in self.outcomes else "finished"

    @property
    def objective(self) -> float:
        """Mean accuracy over the seeds that are there; NaN for a failed trial and before the
        first."""
        values = [outcome for outcome in self.outcomes if outcome is not None]
        return sum(values) / len(values) if values else math.nan


def pruned_and_due(
    batch: Sequence[Trial], halving: bool
) -> tuple[list[Trial], list[tuple[int, int]]]:
    """(the trials of a batch with those marked that are pruned, (place in the batch, place of the
    seed) of the runs that are due). Without halving all runs are due at once. With it, one seed
    after another, and after each only the better half of the trials left goes on (Jamieson &
    Talwalkar 2016, with seeds as the resource); of equal ones the earlier.
    """
    seeds = len(batch[0].outcomes) if batch else 0
    left = list(range(len(batch)))
    due: list[tuple[int, int]] = []
    if not halving:
        for at in left:
            due += [(at, seed) for seed in range(seeds) if _due(batch[at], seed)]
        return list(batch), due

    for seed in range(seeds):
        due = [(at, seed) for at in left if _due(batch[at], seed)]
        if due:
            break
        left = [at for at in left if batch[at].state != "failed"]
        is_last = seed == seeds - 1
        if not is_last:
            left = _better_half(batch, left, seed + 1)
    marked = [replace(trial, pruned=at not in left) for at, trial in enumerate(batch)]
    return marked, due


def _better_half(batch: Sequence[Trial], left: Sequence[int], seeds: int) -> list[int]:
    """The places of the better half, by the sum over the first `seeds` seeds."""

    def total(at: int) -> float:
        return sum(outcome or 0.0 for outcome in batch[at].outcomes[:seeds])

    best_first = sorted(left, key=total, reverse=True)
    return sorted(best_first[: math.ceil(len(left) / 2)])


def _due(trial: Trial, seed: int) -> bool:
    return trial.outcomes[seed] is None and trial.state != "failed"


def winner(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the highest objective of those that finished all seeds, of equal ones the
    earliest: a pruned or failed one cannot win. None: no trial finished."""
    finished = [trial for trial in trials if trial.state == "finished"]
    return max(finished, key=lambda trial: (trial.objective, -trial.number), default=None)


def remarks(variant: str, space: Space, searches: Sequence[Sequence[Trial]]) -> Iterator[str]:
    """What a reader should know about the searches of a variant, a sentence each."""
    winners = [winner(trials) for trials in searches]
    states = [trial.state for trials in searches for trial in trials]
    for field, values in space.items():
        edges = [values.edge(best.settings[field]) for best in winners if best]
        for edge in ("smallest", "largest"):
            count = edges.count(edge)
            if count:
                of = f" in {count} of {len(edges)} searches" if len(edges) > 1 else ""
                between = " to ".join(f"{end:g}" for end in values.ends)
                yield (
                    f"{variant}: the best {field} is the {edge} you allowed{of} "
                    f"({between}): a wider space may hold a "
                    "better one"
                )
    failed = states.count("failed")
    if failed:
        yield f"{variant}: {failed} of {len(states)} trials failed; they are not replaced"
    least = min([trial.state for trial in trials].count("finished") for trials in searches)
    enough = FEWEST_PER_FIELD * len(space)
    if least < enough:
        trials = f"{plural(least, 'finished trial')} for {plural(len(space), 'field')}"
        yield (
            f"{variant}: a search with {trials} is short; it takes about {enough} to come near "
            "the best settings"
        )


FEWEST_PER_FIELD = 5
"""Finished trials per searched field below which a search is called short: a rule of thumb, not a
guarantee."""


def equal_settings(runs: Mapping[str, list[str]]) -> Iterator[str]:
    """A sentence for every variant whose runs are another's: `runs` are their identities, by
    variant."""
    first: dict[tuple[str, ...], str] = {}
    for variant, identities in runs.items():
        other = first.setdefault(tuple(identities), variant)
        if other != variant:
            yield (
                f"{variant} and {other} are the same runs: their settings are equal, so they "
                "cannot differ"
            )


def few_searches(searches: int, seeds: int) -> str:
    """What limits a study's verdicts where several seeds share the settings of one search; "" where
    each has a search of its own."""
    if searches >= seeds:
        return ""
    count = "one search" if searches == 1 else f"{searches} searches"
    return (
        f"{count} per variant for {seeds} reported seeds: verdicts "
        "are about the settings that were found, and another search may find others"
    )
