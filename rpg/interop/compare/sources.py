"""The models that arguments of `rpg compare` name, from their files and folders."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rpg.errors import plural
from rpg.interop.compare.containers import content_of
from rpg.interop.compare.formats import bare_name, read_file
from rpg.interop.compare.rows import Choice, CompareError, Read, Row, shown

SUFFIXES = (".jsonl", ".parquet", ".eval", ".json", ".csv")
COMPRESSED = ".gz"


@dataclass(frozen=True)
class Source:
    """A model, and the samples of each of its trainings."""

    name: str
    kind: str
    trainings: list[list[Row]]
    metrics: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


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
    parts = [(*path.resolve().parts[:-1], bare_name(path.resolve())) for path in paths]
    for depth in range(1, min(map(len, parts), default=0) + 1):
        names = [each[-depth] for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _read(name: str, paths: Sequence[Path], choice: Choice) -> list[Source]:
    """One source, or one for each model of a table."""
    _check_trainings(name, paths)
    reads = [_read_training(path, choice) for path in paths]
    trainings = [[row for read in each for row in read.rows] for each in reads]
    files = [read for each in reads for read in each]
    kind = ", ".join(dict.fromkeys(read.kind for read in files))
    metrics = list(dict.fromkeys(read.metric for read in files))
    notes = [note for read in files for note in read.notes]
    models = list(dict.fromkeys(row.model for rows in trainings for row in rows))
    sources = []
    for model in models:
        own = [[row for row in rows if row.model == model] for rows in trainings]
        by_training = _by_training(name, own)
        sources.append(Source(model or name, kind, by_training, metrics, notes))
    return sources


def _check_trainings(name: str, paths: Sequence[Path]) -> None:
    """Raises CompareError: two trainings have one file."""
    for at, path in enumerate(paths):
        if any(path.samefile(other) for other in paths[:at]):
            raise CompareError(
                f"{path}: is given as two trainings of {name}; expected a file for each"
            )


def _read_training(path: Path, choice: Choice) -> list[Read]:
    """All files of one evaluation. Raises CompareError: two are of one benchmark."""
    files, left_out = files_of(path)
    reads = []
    read_from: dict[str, Path] = {}
    for file in files:
        read = read_file(file, choice)
        for benchmark in sorted({row.benchmark for row in read.rows}):
            if benchmark in read_from:
                raise CompareError(
                    f"{read_from[benchmark]} and {file} are both of "
                    f"{benchmark or 'one benchmark'}; name the one to compare"
                )
            read_from[benchmark] = file
        reads.append(read)
    if left_out:
        names = ", ".join(each.name for each in left_out[:3])
        more = ", ..." if len(left_out) > 3 else ""
        note = f"{path}: read without {plural(len(left_out), 'file')} of JSON ({names}{more})"
        reads[0] = replace(reads[0], notes=[*reads[0].notes, note])
    return reads


def _by_training(name: str, trainings: list[list[Row]]) -> list[list[Row]]:
    """Where a table has a column of seeds, a list of rows for each. Raises CompareError: there are
    several tables, too."""
    seeds = sorted({row.training for rows in trainings for row in rows})
    if len(trainings) > 1 and len(seeds) > 1:
        raise CompareError(
            f"{name} has {len(trainings)} files and a column with {len(seeds)} trainings; expected "
            "either"
        )
    if len(trainings) > 1:
        return trainings
    [rows] = trainings
    return [[row for row in rows if row.training == seed] for seed in seeds]


def files_of(path: Path) -> tuple[list[Path], list[Path]]:
    """A file, or what a folder has of one evaluation: the last step of a run of ours or of verl's
    dumps, else all of its files of samples. With those that are left out: JSON beside others is
    taken for settings and summaries. Raises CompareError: there is none."""
    if path.is_file():
        return [path], []
    if (path / "evals").is_dir():
        return _last_evaluations(path / "evals"), []
    files = sorted(each for each in path.rglob("*") if _may_have_samples(each))
    if not files:
        raise CompareError(f"{path}: no file of samples in this folder")
    steps = [each for each in files if re.fullmatch(r"\d+\.jsonl(\.gz)?", each.name)]
    if steps and len(steps) == len(files):
        return [max(steps, key=_step)], []
    samples = [each for each in files if not each.name.endswith((".json", ".json.gz"))]
    if not samples:
        return files, []
    return samples, [each for each in files if each not in samples]


def _may_have_samples(path: Path) -> bool:
    return Path(path.name.removesuffix(COMPRESSED)).suffix in SUFFIXES and path.is_file()


def _step(path: Path) -> int:
    """Of `12.jsonl` and `step-000012.parquet`."""
    return int(bare_name(path).removeprefix("step-"))


def _last_evaluations(folder: Path) -> list[Path]:
    """The last step of each benchmark of a run of ours."""
    files = []
    for benchmark in sorted(each for each in folder.iterdir() if each.is_dir()):
        steps = [
            file
            for file in benchmark.glob("step-*.parquet")
            if re.fullmatch(r"step-\d+", file.stem)
        ]
        if steps:
            files.append(max(steps, key=_step))
    if not files:
        raise CompareError(f"{folder}: no samples (step-*.parquet) of any benchmark")
    return files


def with_clusters(sources: Sequence[Source], file: Path) -> list[Source]:
    """The sources with the clusters of a table with the columns problem and cluster."""
    clusters = _clusters(file)
    problems = {row.problem for source in sources for rows in source.trainings for row in rows}
    if not problems & clusters.keys():
        some = ", ".join(shown(problem) for problem in list(clusters)[:2])
        raise CompareError(f"{file}: names none of the problems that are compared ({some}, ...)")
    without = len(problems - clusters.keys())
    notes = []
    if without:
        notes.append(f"{file}: {plural(without, 'problem')} not in it, each a cluster of its own")
    changed = []
    for source in sources:
        trainings = [
            [replace(row, cluster=clusters.get(row.problem, row.cluster)) for row in rows]
            for rows in source.trainings
        ]
        changed.append(replace(source, trainings=trainings, notes=[*source.notes, *notes]))
    return changed


def _clusters(file: Path) -> dict[str, str]:
    """Problem -> cluster. Raises CompareError: the table is not as expected."""
    records = content_of(file)
    clusters: dict[str, str] = {}
    for record in records if isinstance(records, list) else []:
        problem = record.values.get("problem")
        cluster = record.values.get("cluster")
        if not problem or not cluster:
            raise CompareError(
                f"{file}: {record.where} lacks a problem or a cluster; expected a table with the "
                "columns problem and cluster"
            )
        if clusters.setdefault(str(problem), str(cluster)) != str(cluster):
            raise CompareError(f"{file}: {record.where} has a second cluster for {problem!r}")
    if not clusters:
        raise CompareError(f"{file}: expected a table with the columns problem and cluster")
    return clusters
