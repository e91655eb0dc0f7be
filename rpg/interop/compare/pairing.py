"""Scores of several models at the same problems, from what each of their files has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rpg.errors import plural
from rpg.interop.compare.rows import CompareError, Row, shown
from rpg.interop.compare.sources import Source


@dataclass(frozen=True)
class Benchmark:
    """What all models have of a benchmark."""

    name: str
    problems: list[str]
    scores: list[list[list[np.ndarray]]]
    """By model, training and problem: the scores of its samples."""
    clusters: list[str] | None

    @property
    def samples(self) -> np.ndarray:
        """Samples (V, S, P) of each problem."""
        counts = [[[len(each) for each in run] for run in model] for model in self.scores]
        return np.array(counts)

    @property
    def means(self) -> np.ndarray:
        """Mean scores (V, S, P)."""
        means = [[[each.mean() for each in run] for run in model] for model in self.scores]
        return np.array(means)


@dataclass(frozen=True)
class Paired:
    """All models at the problems that all of them have; the first is the baseline."""

    models: list[str]
    benchmarks: list[Benchmark]
    notes: list[str]

    @property
    def trainings(self) -> int:
        return len(self.benchmarks[0].scores[0])


Table = dict[str, list[Row]]
"""Problem -> the rows of its samples."""
SHOWN = 3
"""Missing problems that are named."""


@dataclass(frozen=True)
class _Run:
    """A training of a model: benchmark -> its table."""

    name: str
    kind: str
    tables: dict[str, Table]


def pair(sources: Sequence[Source]) -> Paired:
    """Pairs by problem. Raises CompareError: no problem is common to all, a problem is not the
    same text in two files, or models have different numbers of trainings."""
    _check_trainings(sources)
    notes = [note for source in sources for note in source.notes]
    notes += _metrics_notes(sources)
    runs = [
        _Run(source.name, source.kind, _tables(rows))
        for source in sources
        for rows in source.trainings
    ]
    if all(len(run.tables) == 1 for run in runs):
        runs = _one_benchmark(runs, notes)
    benchmarks = []
    for name in _common_benchmarks(runs, notes):
        problems = _common_problems(name, runs, notes)
        if problems:
            _check_texts(name, runs, problems)
            benchmarks.append(_benchmark(name, runs, problems, len(sources)))
    if not benchmarks:
        first = runs[0]
        last = runs[-1]
        raise CompareError(
            f"{first.name} and {last.name} have no problem in common: {_examples(first)} and "
            f"{_examples(last)}; problems are paired by name, in verl's dumps by prompt"
        )
    return Paired([source.name for source in sources], benchmarks, list(dict.fromkeys(notes)))


def _check_trainings(sources: Sequence[Source]) -> None:
    counts = {source.name: len(source.trainings) for source in sources}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {plural(n, 'training')}" for name, n in counts.items())
        raise CompareError(f"{listed}; expected as many of each")


def _one_benchmark(runs: Sequence[_Run], notes: list[str]) -> list[_Run]:
    """Runs with one benchmark each have the same one, whatever they call it."""
    names = list(dict.fromkeys(name for run in runs for name in run.tables if name))
    if len(names) > 1:
        notes.append(
            f"treated as one benchmark, since problems have the same names: {', '.join(names)}"
        )
    benchmark = names[0] if names else ""
    return [
        _Run(run.name, run.kind, {benchmark: table})
        for run in runs
        for table in run.tables.values()
    ]


def _common_benchmarks(runs: Sequence[_Run], notes: list[str]) -> list[str]:
    """The benchmarks that all have; says which are dropped."""
    common = [name for name in runs[0].tables if all(name in run.tables for run in runs)]
    dropped = sorted({name for run in runs for name in run.tables} - set(common))
    if dropped:
        notes.append(f"not compared, since not all models have it: {', '.join(dropped)}")
    return common


def _metrics_notes(sources: Sequence[Source]) -> list[str]:
    """Says where metrics of different names are compared."""
    metrics = {source.name: " and ".join(source.metrics) for source in sources}
    if len(set(metrics.values())) < 2:
        return []
    listed = ", ".join(f"{metric} of {name}" for name, metric in metrics.items())
    return [f"metrics of different names are compared: {listed}"]


def _tables(rows: Iterable[Row]) -> dict[str, Table]:
    """Benchmark -> problem -> its rows."""
    tables: dict[str, Table] = {}
    for row in rows:
        tables.setdefault(row.benchmark, {}).setdefault(row.problem, []).append(row)
    return tables


def _common_problems(benchmark: str, runs: Sequence[_Run], notes: list[str]) -> list[str]:
    """The problems that all have; says which are missing where."""
    tables = [run.tables[benchmark] for run in runs]
    everything = list(dict.fromkeys(problem for table in tables for problem in table))
    missing: dict[str, set[str]] = {}
    for run, table in zip(runs, tables, strict=True):
        absent = {problem for problem in everything if problem not in table}
        if absent:
            missing.setdefault(run.name, set()).update(absent)
    for name, absent in missing.items():
        some = ", ".join(sorted(absent)[:SHOWN])
        more = ", ..." if len(absent) > SHOWN else ""
        of = plural(len(everything), "problem")
        notes.append(
            f"{name} lacks {len(absent):,} of {of} ({some}{more}); "
            "only those that all have are compared"
        )
    gone = set().union(*missing.values())
    return [problem for problem in everything if problem not in gone]


def _check_texts(benchmark: str, runs: Sequence[_Run], problems: Sequence[str]) -> None:
    """Two problems of one name must be the same, as far as files of one format tell."""
    texts: dict[tuple[str, str], tuple[str, str]] = {}
    for run in runs:
        table = run.tables[benchmark]
        rows = [row for problem in problems for row in table[problem] if row.text]
        for row in rows:
            text, first = texts.setdefault((run.kind, row.problem), (row.text, run.name))
            if text != row.text:
                raise CompareError(
                    f"problem {row.problem!r} is not the same text for {first} and for "
                    f"{run.name}: these are not the same problems"
                )


def _benchmark(name: str, runs: Sequence[_Run], problems: list[str], models: int) -> Benchmark:
    tables = [run.tables[name] for run in runs]
    scores = [[_scores(table[problem]) for problem in problems] for table in tables]
    # The runs of a model stand one after another.
    trainings = len(runs) // models
    by_model = [scores[start : start + trainings] for start in range(0, len(runs), trainings)]
    labels = [_cluster(name, problem, tables) for problem in problems]
    clusters = labels if len(set(labels)) < len(labels) else None
    return Benchmark(name or "score", problems, by_model, clusters)


def _scores(rows: Sequence[Row]) -> np.ndarray:
    return np.array([row.score for row in rows])


def _cluster(benchmark: str, problem: str, tables: Sequence[Table]) -> str:
    """A problem's cluster, itself where it has none. Raises CompareError: it has several."""
    named = {row.cluster for table in tables for row in table[problem] if row.cluster}
    if len(named) > 1:
        listed = ", ".join(repr(cluster) for cluster in sorted(named))
        of = f" of {benchmark}" if benchmark else ""
        raise CompareError(f"problem {problem!r}{of} is in several clusters: {listed}")
    return next(iter(named), problem)


def _examples(run: _Run) -> str:
    problems = [problem for table in run.tables.values() for problem in table]
    return ", ".join(shown(problem) for problem in problems[:2]) + ", ..."
