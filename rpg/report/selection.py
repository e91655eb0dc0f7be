"""Which runs, checkpoints and benchmarks of a sweep count in its tables.

A variant is judged at the last checkpoint that was evaluated on all its benchmarks. Runs that have
not got that far (failed, running, not started) are not part of its numbers; the notes name them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from rpg.errors import plural
from rpg.report.labels import labels
from rpg.report.problem_scores import Checkpoints, StepRuns
from rpg.store import StoreError, queries
from rpg.store.current import how_it_came, require_comparable
from rpg.store.queries import Database

MEAN = "mean"
"""The name of the mean over benchmarks, beside the names of benchmarks."""


@dataclass(frozen=True)
class Selection:
    """What of a sweep is judged, and notes on what is left out."""

    sweep: str
    question: str
    """The description in the sweep's file."""
    baseline: str | None
    variants: list[str]
    """The baseline first."""
    labels: dict[str, str]
    benchmarks: list[str]
    """Those that the tables show."""
    headline_benchmarks: list[str]
    """Those whose mean variants are judged by."""
    runs: pandas.DataFrame
    scores: pandas.DataFrame
    variants_with_samples: set[str]
    """Variants of which there are samples, not scores alone."""
    chosen: Checkpoints
    runs_with_samples: StepRuns
    notes: list[str]

    @property
    def parts(self) -> dict[str, list[str]]:
        """The benchmarks behind each name of the table: the mean has several."""
        parts = {name: [name] for name in self.benchmarks}
        if len(self.benchmarks) > 1:
            parts[MEAN] = self.headline_benchmarks
        return parts

    @property
    def complete(self) -> set[tuple[str, int]]:
        """(run, step) of the checkpoints that were evaluated on all headline benchmarks."""
        scores = self.scores[self.scores["benchmark"].isin(self.headline_benchmarks)]
        counts = scores.groupby(["run", "step"]).size()
        return set(counts.index[counts == len(self.headline_benchmarks)])


def select(
    db: Database, sweep: str, baseline: str | None = None, names: Sequence[str] | None = None
) -> Selection:
    """Choose runs, checkpoints and benchmarks; the arguments are those of `summary.summarise`."""
    record = _sweep_record(db, sweep)
    manifests = queries.manifests(db, sweep)
    require_comparable(manifests)

    baseline = baseline or record["baseline"]
    baseline = baseline if isinstance(baseline, str) else None
    variant_rows = queries.variants(db, [sweep])
    variants = sorted(variant_rows["variant"], key=lambda variant: (variant != baseline, variant))
    names_of = labels(variant_rows)

    runs = queries.runs(db, sweep)
    scores = queries.scores(db, sweep)
    with_samples = set(scores.loc[scores["pass_at_k"].notna(), "variant"])
    imported = set(runs.loc[runs["imported"].notna(), "variant"])
    benchmarks = queries.benchmarks(db, [sweep])
    if names is not None:
        benchmarks = [name for name in benchmarks if name in names]
    headline = _headline_benchmarks(benchmarks, scores, imported)

    measured = {str(variant): set(part["benchmark"]) for variant, part in scores.groupby("variant")}
    chosen: Checkpoints = {}
    for variant in variants:
        parts = headline
        if variant in imported:  # whoever trained it may have evaluated it on less, or on more
            parts = [name for name in benchmarks if name in measured.get(variant, ())]
        rows = scores[(scores["variant"] == variant) & scores["benchmark"].isin(parts)]
        complete = _complete(rows, len(parts))
        if complete:
            chosen[variant] = max(complete.items())

    notes = [
        *_unfinished(runs),
        *_imported(runs, with_samples),
        *_not_started(runs, baseline, variants),
        *_superseded(queries.runs(db, sweep, superseded=True)),
        *_one_initial_model(manifests),
        *_not_evaluated(variants, chosen, names_of),
        *_without_mean(chosen, imported, headline, measured, names_of),
    ]
    return Selection(
        sweep=sweep,
        question=str(record["description"]),
        baseline=baseline,
        variants=variants,
        labels=names_of,
        benchmarks=benchmarks,
        headline_benchmarks=headline,
        runs=runs,
        scores=scores,
        variants_with_samples=with_samples,
        chosen=chosen,
        runs_with_samples=_runs_with_samples(scores, benchmarks, chosen),
        notes=notes,
    )


def _sweep_record(db: Database, sweep: str) -> pandas.Series:
    sweeps = queries.sweeps(db).set_index("sweep")
    if sweep not in sweeps.index:
        held = ", ".join(sweeps.index) or "none"
        raise StoreError(f"no sweep {sweep!r} in the results database; it holds {held}")
    return sweeps.loc[sweep]


def _headline_benchmarks(
    benchmarks: list[str], scores: pandas.DataFrame, imported: set[str]
) -> list[str]:
    """Those on which runs trained here were evaluated: an imported run may bring others."""
    trained_here = set(scores.loc[~scores["variant"].isin(imported), "benchmark"])
    return [name for name in benchmarks if name in trained_here] or benchmarks


def _runs_with_samples(
    scores: pandas.DataFrame, benchmarks: Sequence[str], chosen: Checkpoints
) -> StepRuns:
    answered = scores[scores["pass_at_k"].notna() & scores["benchmark"].isin(benchmarks)]
    return {
        variant: _complete(answered[answered["run"].isin(runs.values())])
        for variant, (_, runs) in chosen.items()
    }


def _complete(rows: pandas.DataFrame, benchmarks: int | None = None) -> dict[int, dict[int, str]]:
    """Step -> seed -> run, where a run has this many benchmarks among the `rows` (None: as many as
    any has); without runs whose record has no seed."""
    rows = rows[rows["seed"].notna()]
    measured: dict[tuple[int, int, str], set[str]] = {}
    places = zip(rows["step"], rows["seed"], rows["run"], strict=True)
    for place, benchmark in zip(places, rows["benchmark"], strict=True):
        measured.setdefault(place, set()).add(benchmark)
    needed = max(map(len, measured.values()), default=0) if benchmarks is None else benchmarks
    complete: dict[int, dict[int, str]] = {}
    for (step, seed, run), names in sorted(measured.items()):
        if len(names) == needed:
            complete.setdefault(int(step), {})[int(seed)] = run
    return complete


def _unfinished(runs: pandas.DataFrame) -> list[str]:
    notes = []
    for row in runs[~runs["state"].isin(["done", "pending"])].itertuples():
        place = f" at step {row.step:.0f}" if pandas.notna(row.step) else ""
        if row.state == "failed":
            error = row.error if isinstance(row.error, str) else "unknown error"
            notes.append(f"{row.run} failed{place}: {error}")
        else:
            total = f" of {row.steps:.0f}" if place and pandas.notna(row.steps) else ""
            notes.append(f"{row.run} is {row.state}{place}{total}")
    return notes


def _imported(runs: pandas.DataFrame, with_samples: set[str]) -> list[str]:
    notes = []
    groups = runs[runs["imported"].notna()].groupby(["variant", "imported"])
    for (variant, source), imported in groups:
        note = (
            f"{variant} ({plural(len(imported), 'seed')}) was {how_it_came(source)}: "
            "settings and data are not known to be the same"
        )
        if variant not in with_samples:
            note += ", and without samples there is no paired test"
        notes.append(note)
    return notes


def _not_started(
    runs: pandas.DataFrame, baseline: str | None, variants: Sequence[str]
) -> list[str]:
    notes = []
    pending = runs.loc[runs["state"] == "pending", "run"]
    if len(pending):
        notes.append(f"not started: {', '.join(pending)}")
    if baseline and baseline not in variants:
        notes.append(f"the baseline {baseline} has no runs yet: nothing is compared with it")
    return notes


def _superseded(runs: pandas.DataFrame) -> list[str]:
    reasons = runs["superseded"].dropna().value_counts()
    return [
        f"{plural(count, 'older run')} of this sweep superseded, and not included here: {reason}"
        for reason, count in reasons.items()
    ]


def _one_initial_model(manifests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A note if seeds share a warm start, so that the spread over seeds has none of initial
    models."""
    seeds = {manifest["seed"] for manifest in manifests.values()}
    models = [manifest["spec"].get("model", {}) for manifest in manifests.values()]
    starts = {(model.get("warm_start") or {}).get("seed") for model in models}
    if len(seeds) < 2 or len(starts) != 1 or starts == {None}:
        return []
    return [
        f"all seeds start from one initial model (model.warm_start.seed {starts.pop()}): the "
        "results are about that model, and may differ for another by more than the intervals"
    ]


def _not_evaluated(
    variants: Iterable[str], chosen: Checkpoints, names: Mapping[str, str]
) -> list[str]:
    waiting = [names[variant] for variant in variants if variant not in chosen]
    if not waiting:
        return []
    return [f"no checkpoint evaluated on all benchmarks yet: {', '.join(waiting)}"]


def _without_mean(
    chosen: Checkpoints,
    imported: set[str],
    headline: Sequence[str],
    measured: Mapping[str, set[str]],
    names: Mapping[str, str],
) -> list[str]:
    notes = []
    for variant in chosen:
        missing = [name for name in headline if name not in measured[variant]]
        if variant in imported and missing:
            notes.append(f"{names[variant]}: no score on {', '.join(missing)}, so it has no mean")
    return notes
