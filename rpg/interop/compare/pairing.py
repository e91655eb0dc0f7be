"""Scores of several models at the same problems, from what each of their files has."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rpg.errors import plural
from rpg.interop.compare.formats import read_file
from rpg.interop.compare.rows import Choice, CompareError, Row

SUFFIXES = (".jsonl", ".parquet", ".eval", ".json", ".csv")


@dataclass(frozen=True)
class Source:
    """A model, and the samples of each of its trainings."""

    name: str
    kind: str
    trainings: list[list[Row]]
    notes: list[str] = field(default_factory=list)


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


def sources_of(arguments: Sequence[str], choice: Choice) -> list[Source]:
    """The models that arguments name: `PATH`, or `NAME=PATH,PATH` with a path per training.
    A table with a column `model` has several. Raises CompareError: a file cannot be read."""
    split = [_split(argument) for argument in arguments]
    names = short_names([paths[0] for _, paths in split])
    sources = []
    for (name, paths), short in zip(split, names, strict=True):
        sources += _read(name or short, paths, choice)
    doubled = sorted({each.name for each in sources if _count(sources, each.name) > 1})
    if doubled:
        raise CompareError(f"two models are called {doubled[0]!r}; name them: NAME=PATH")
    if len(sources) < 2:
        raise CompareError(
            "expected two models or more: their files, or a table with the column model"
        )
    return sources


def _count(sources: Sequence[Source], name: str) -> int:
    return sum(each.name == name for each in sources)


def _split(argument: str) -> tuple[str, list[Path]]:
    """(name or "", paths)."""
    if Path(argument).exists():
        return "", [Path(argument)]
    name, equals, rest = argument.partition("=")
    paths = [Path(part) for part in (rest if equals else name).split(",")]
    for path in paths:
        if not path.exists():
            raise CompareError(f"{path}: no such file or folder")
    return name if equals else "", paths


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last part in which all paths differ, without its suffix; whole paths if none does."""
    parts = [path.resolve().with_suffix("").parts for path in paths]
    for depth in range(1, min(map(len, parts), default=0) + 1):
        names = [each[-depth] for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _read(name: str, paths: Sequence[Path], choice: Choice) -> list[Source]:
    """One source, or one for each model of a table."""
    trainings: list[list[Row]] = []
    kinds: dict[str, None] = {}
    notes: list[str] = []
    for path in paths:
        rows: list[Row] = []
        of: dict[str, Path] = {}
        for file in files_of(path):
            read = read_file(file, choice)
            for benchmark in {row.benchmark for row in read.rows}:
                if benchmark in of:
                    raise CompareError(
                        f"{of[benchmark]} and {file} are both of {benchmark or 'one benchmark'}; "
                        "name the one to compare"
                    )
                of[benchmark] = file
            rows += read.rows
            kinds[read.kind] = None
            notes += read.notes
        trainings.append(rows)
    kind = ", ".join(kinds)
    models = list(dict.fromkeys(row.model for rows in trainings for row in rows))
    sources = []
    for model in models:
        own = [[row for row in rows if row.model == model] for rows in trainings]
        sources.append(Source(model or name, kind, _by_training(own), notes))
    return sources


def _by_training(trainings: list[list[Row]]) -> list[list[Row]]:
    """Where a table has a column of seeds, a list of rows for each."""
    if len(trainings) > 1:
        return trainings
    [rows] = trainings
    seeds = sorted({row.training for row in rows})
    return [[row for row in rows if row.training == seed] for seed in seeds]


def files_of(path: Path) -> list[Path]:
    """A file, or what a folder has of one evaluation: the last step of a run of ours or of verl's
    dumps, else all of its files of samples."""
    if path.is_file():
        return [path]
    if (path / "evals").is_dir():
        folders = [folder for folder in sorted((path / "evals").iterdir()) if folder.is_dir()]
        return [max(folder.glob("step-*.parquet")) for folder in folders]
    files = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
    steps = [each for each in files if re.fullmatch(r"\d+\.jsonl", each.name)]
    if steps and len(steps) == len(files):
        return [max(steps, key=lambda each: int(each.stem))]
    samples = [each for each in files if each.suffix != ".json"]
    if not files:
        raise CompareError(f"{path}: no file of samples in this folder")
    return samples or files


def with_clusters(sources: Sequence[Source], file: Path) -> list[Source]:
    """The sources with the clusters of a table with the columns problem and cluster."""
    with file.open(encoding="utf-8-sig", newline="") as text:
        rows = list(csv.DictReader(text))
    if not rows or not {"problem", "cluster"} <= set(rows[0]):
        raise CompareError(f"{file}: expected a CSV file with the columns problem and cluster")
    clusters = {row["problem"]: row["cluster"] for row in rows}
    changed = []
    for source in sources:
        trainings = [
            [replace(row, cluster=clusters.get(row.problem, row.cluster)) for row in rows_]
            for rows_ in source.trainings
        ]
        changed.append(replace(source, trainings=trainings))
    return changed


Table = Mapping[str, list[Row]]
"""Problem -> the rows of its samples."""


def pair(sources: Sequence[Source]) -> Paired:
    """Pairs by problem. Raises CompareError: no problem is common to all, a problem is not the
    same text in two files, or models have different numbers of trainings."""
    counts = {source.name: len(source.trainings) for source in sources}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} has {plural(n, 'training')}" for name, n in counts.items())
        raise CompareError(f"{said}; expected as many of each")
    notes = [note for source in sources for note in source.notes]
    runs = [_tables(rows) for source in sources for rows in source.trainings]
    names = [f"{source.name}" for source in sources for _ in source.trainings]
    kinds = [source.kind for source in sources for _ in source.trainings]
    if all(len(run) == 1 for run in runs):  # of one benchmark each: whatever they call it
        benchmark = next((name for run in runs for name in run if name), "")
        runs = [dict(zip([benchmark], run.values(), strict=True)) for run in runs]
    common = [name for name in runs[0] if all(name in run for run in runs)]
    dropped = sorted({name for run in runs for name in run} - set(common))
    if dropped:
        notes.append(f"not compared, since not all models have it: {', '.join(dropped)}")
    benchmarks = []
    for name in common:
        tables = [run[name] for run in runs]
        problems = _common(tables, names, notes)
        if not problems:
            continue
        _check_texts(tables, names, kinds, problems)
        benchmarks.append(_benchmark(name, tables, problems, len(sources)))
    if not benchmarks:
        raise CompareError(
            f"{names[0]} and {names[-1]} have no problem in common: {_examples(runs[0])} and "
            f"{_examples(runs[-1])}; problems are paired by name, in verl's dumps by prompt"
        )
    return Paired(list(counts), benchmarks, list(dict.fromkeys(notes)))


def _tables(rows: Iterable[Row]) -> dict[str, dict[str, list[Row]]]:
    """Benchmark -> problem -> its rows."""
    tables: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        tables.setdefault(row.benchmark, {}).setdefault(row.problem, []).append(row)
    return tables


def _common(tables: Sequence[Table], names: Sequence[str], notes: list[str]) -> list[str]:
    """The problems that all have; says which are missing where."""
    everything = list(dict.fromkeys(problem for table in tables for problem in table))
    missing: dict[str, set[str]] = {}
    for name, table in zip(names, tables, strict=True):
        absent = {problem for problem in everything if problem not in table}
        if absent:
            missing.setdefault(name, set()).update(absent)
    for name, absent in missing.items():
        some = ", ".join(sorted(absent)[:3])
        more = ", ..." if len(absent) > 3 else ""
        notes.append(
            f"{name} lacks {len(absent):,} of {plural(len(everything), 'problem')} ({some}{more}); "
            "only those that all have are compared"
        )
    gone = set().union(*missing.values())
    return [problem for problem in everything if problem not in gone]


def _check_texts(
    tables: Sequence[Table], names: Sequence[str], kinds: Sequence[str], problems: Sequence[str]
) -> None:
    """Two problems of one name must be the same, as far as files of one format tell."""
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    for table, name, kind in zip(tables, names, kinds, strict=True):
        for problem in problems:
            for row in table[problem]:
                if not row.text:
                    continue
                text, first = seen.setdefault((kind, problem), (row.text, name))
                if text != row.text:
                    raise CompareError(
                        f"problem {problem!r} is not the same text for {first} and for {name}: "
                        "these are not the same problems"
                    )


def _benchmark(name: str, tables: Sequence[Table], problems: list[str], models: int) -> Benchmark:
    trainings = len(tables) // models
    scores = [
        [np.array([row.score for row in table[problem]]) for problem in problems]
        for table in tables
    ]
    by_model = [scores[at * trainings : (at + 1) * trainings] for at in range(models)]
    labels = [
        next((row.cluster for table in tables for row in table[problem] if row.cluster), problem)
        for problem in problems
    ]
    clusters = labels if len(set(labels)) < len(labels) else None
    return Benchmark(name or "score", problems, by_model, clusters)


def _examples(run: Mapping[str, Table]) -> str:
    problems = [problem for table in run.values() for problem in table]
    return ", ".join(repr(problem) for problem in problems[:2]) + ", ..."
