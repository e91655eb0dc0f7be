"""What a benchmark is, as data: where its problems come from, how they are asked and graded; and
how they are loaded.

Shipped benchmarks are rpg/tasks/sets/benchmarks/*.yaml; a user's is a YAML file of the same form
(docs/benchmarks.md).
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, model_validator

from rpg.config.data_source import Column
from rpg.config.errors import ConfigError, nearest
from rpg.config.load import checked, read_mapping
from rpg.config.section import Positive, Section
from rpg.config.task import RECIPE_TEMPLATE, ChainTask, MathVerifier, Verifier
from rpg.tasks.chain import make
from rpg.tasks.checks import Checks, leaks, near_duplicates
from rpg.tasks.problems import DataError, Problem
from rpg.tasks.rows import hub_rows, read_rows, text_of

_SETS = Path(__file__).parent / "sets" / "benchmarks"


class Source(Section):
    """Where the problems are: files of these names in a local folder, a file of the user's, or the
    Hugging Face hub.

    Those of the chain task are made by code.
    """

    hub: str | None = None
    """Hub id of the data set, e.g. math-ai/aime25."""
    subset: str | tuple[str, ...] | None = None
    """Configuration of the data set on the hub, or several that are read one after another."""
    split: str = "test"
    revision: str | None = None
    """Commit of the data set; null is the newest, whatever that is on the day."""
    files: tuple[str, ...] = ()
    """Names under which a local copy is looked for in the folder of local data, first match first.
    """
    path: Path | None = None
    """A JSON-lines or Parquet file; relative to the benchmark's YAML file."""
    chain: ChainTask | None = None
    """Settings of the chain task; a benchmark named chain-<tier> holds the problems that it keeps
    for that tier."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if not (self.hub or self.path or self.files or self.chain):
            raise ValueError("name a hub id (hub), a file (path) or file names (files)")
        return self


class Columns(Section):
    """Which columns hold what. The first of each list that a row has is read; `a.b` is field b of
    column a."""

    problem: tuple[Column, ...] = ("problem", "question", "prompt")
    answer: tuple[Column, ...] = ("answer", "final_answer")
    r"""`boxed(column)` is the last `\\boxed{...}` of a column; `asked(column)` is the user's
    message of a conversation, without the words the paper's recipe puts around a problem;
    `after("####", column)` what follows the last `####`; `regex("pattern", column)` the first group
    of the first place where the pattern is found."""
    cluster: tuple[Column, ...] = ()
    """What problems share that tend to be solved together, e.g. [year]; none: problems stand for
    themselves."""


class Prompt(Section):
    """How a problem becomes the user's message. Raise `version` with every change of the text."""

    version: Positive = 1
    template: str = RECIPE_TEMPLATE

    @model_validator(mode="after")
    def _has_place(self) -> Self:
        if "{prompt}" not in self.template:
            raise ValueError("template must contain {prompt}, the place where the problem goes")
        return self


class ProblemSet(Section):
    """Problems with their answers: where they are, and what they are checked against."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    """The name of the YAML file without its ending."""
    title: str = ""
    source: Source
    columns: Columns = Columns()
    problems: Positive | tuple[Positive, ...] | None = None
    """How many distinct problems there must be; any other number is an error. Several where copies
    differ: what is loaded from a copy with another number than the first is a benchmark of its own
    name (olympiadbench-675)."""
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """Digest of the problems and answers that were checked; a different one is reported, not
    refused."""
    corrections: dict[str, str] = Field(default_factory=dict)
    """Answers as they stand in the source -> as they were meant, where the source has a slip."""
    clusters: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Clusters that `task.clusters` puts the problems into: name -> the answers of its problems."""
    prompt: Prompt = Prompt()

    def digest_notes(self, source: str, digest: str) -> list[str]:
        """A note where the problems read from `source` are not those that were checked."""
        note = (
            f"{self.name}: the problems in {source} have digest {digest}, not {self.digest} as "
            "the copy that was checked"
        )
        return (
            []
            if self.digest in (None, digest)
            else [f"{note}: wording or answers differ somewhere"]
        )

    def problem(self, text: str, answer: str, cluster: str | None = None) -> Problem:
        """A problem with the set's prompt around it."""
        # The name comes from the text, so it is the same in every copy and order of a data set.
        name = hashlib.sha256(" ".join(text.split()).encode("utf-8", "surrogatepass")).hexdigest()[
            :10
        ]
        prompt = self.prompt.template.replace("{prompt}", text)
        return Problem(
            id=f"{self.name}-{name}",
            text=text,
            prompt=prompt,
            answer=answer,
            group=self.name,
            cluster=cluster,
        )


class Benchmark(ProblemSet):
    """Held-out problems with their answers, and how to ask and grade them."""

    verifier: Verifier = MathVerifier()
    samples_per_problem: Positive = 32
    """k of mean@k."""


Set = TypeVar("Set", bound=ProblemSet)


@cache  # estimating a sweep asks for them once per run
def benchmarks() -> Mapping[str, Benchmark]:
    """All benchmarks that ship, by name."""
    return {path.stem: read_set(Benchmark, path) for path in sorted(_SETS.glob("*.yaml"))}


def benchmark(name: str | Path) -> Benchmark:
    """A shipped benchmark, by name, or a user's, by the path of its YAML file. Raises ConfigError:
    unknown name, or a file that is not a benchmark; the message names file, field and value.
    """
    return read_set(Benchmark, shipped(_SETS, str(name), "benchmark"))


def shipped(folder: Path, name: str, kind: str) -> Path:
    """The YAML file of that name in a folder of those that ship, or a path itself; a ConfigError
    names the nearest one."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    names = [p.stem for p in sorted(folder.glob("*.yaml"))]
    if name not in names:
        raise ConfigError(
            f"{kind} {name!r} is not known{nearest(name, names)} Known: {', '.join(names)}, "
            "or the path of a YAML file"
        )
    return folder / f"{name}.yaml"


def read_set(kind: type[Set], path: Path) -> Set:
    """A set of problems from its YAML file; a relative `source.path` is beside the file. Raises
    ConfigError: the message names file, field and value.
    """
    problem_set = checked(kind, {"name": path.stem, **read_mapping(path)}, path)
    source = problem_set.source
    if source.path is not None and not source.path.is_absolute():
        source = source.model_copy(update={"path": path.parent / source.path})
    return problem_set.model_copy(update={"source": source})


LOCAL_DATA = "RPG_DATA"
"""Environment variable: the folder in which local copies of data sets are looked for before the
hub."""


@dataclass(frozen=True)
class LoadedBenchmark:
    """The distinct problems of a benchmark, in the order of the source."""

    benchmark: Benchmark
    problems: list[Problem]
    digest: str
    """Of problems and answers, whatever their order: 16 hexadecimal digits."""
    source: str
    """The file, or `hub id@revision`."""
    rows: int
    """Rows of the source, of which repeats were collapsed."""

    @property
    def notes(self) -> list[str]:
        notes = self.benchmark.digest_notes(self.source, self.digest)
        if isinstance(self.benchmark.problems, tuple):
            counts = " or ".join(map(str, self.benchmark.problems))
            why = (
                f"copies have {counts} problems, and numbers over different copies are not "
                "comparable"
            )
            notes.append(f"{self.benchmark.name}: {why}")
        return notes


def load_benchmark(benchmark: Benchmark, folder: str | Path | None = None) -> LoadedBenchmark:
    """Problems of a benchmark from its own file, else a local copy in `folder` (default: the folder
    that the environment variable RPG_DATA names), else the Hugging Face hub.

    Rows that repeat a problem with the same answer are collapsed (the recipe's files hold each
    problem 32 times).

    Raises DataError: no source is there, a row cannot be used, a problem has two different answers,
    or the number of distinct problems is not the one expected. The message names file, row and
    field.
    """
    if benchmark.source.chain is not None:
        # The same problems, under the same names, as a run of the chain task is evaluated on.
        held_out = make(benchmark.source.chain).benchmarks
        generated = held_out.get(benchmark.name)
        if generated is None:
            made = f"source.chain makes {', '.join(held_out)}"
            raise DataError(f"{benchmark.name}: {made}; one of these has to be its name")
        return LoadedBenchmark(
            benchmark, generated, digest(generated), "made by code", len(generated)
        )
    source, rows = read_pairs(benchmark, folder)
    problems: dict[str, Problem] = {}
    count = 0
    for row in rows:
        count += 1
        key = " ".join(row.problem.split())
        if key not in problems:
            problems[key] = benchmark.problem(row.problem, row.answer, row.cluster)
        elif problems[key].answer != row.answer:
            raise DataError(
                f"{row.where}: answer {row.answer!r}, but the same problem has the answer "
                f"{problems[key].answer!r} in an "
                "earlier row"
            )
    if not problems:
        raise DataError(f"{source}: no rows; expected problems of {benchmark.name}")
    expected = (
        benchmark.problems if isinstance(benchmark.problems, tuple) else (benchmark.problems,)
    )
    if benchmark.problems is not None and len(problems) not in expected:
        raise DataError(
            f"{source}: {len(problems)} distinct problems in {count} rows; {benchmark.name} has "
            f"{' or '.join(map(str, expected))}"
        )
    # Another copy is another benchmark.
    if isinstance(benchmark.problems, tuple) and len(problems) != expected[0]:
        benchmark = benchmark.model_copy(update={"name": f"{benchmark.name}-{len(problems)}"})
    return LoadedBenchmark(
        benchmark, list(problems.values()), digest(problems.values()), source, count
    )


def check(
    loaded: LoadedBenchmark, training: Sequence[Problem] = (), source: str | None = None
) -> Checks:
    """Repeats and near duplicates in a benchmark, and its problems among those of `training`, which
    come from `source`."""
    leaked = tuple(leaks(training, {loaded.benchmark.name: loaded.problems}))
    return Checks(loaded.rows, tuple(near_duplicates(loaded.problems)), source, leaked)


def digest(problems: Any) -> str:
    """Identity of a set of problems: texts and answers, in any order, without white space and
    typesetting."""
    from rpg.answers.typesetting import normalise, squeeze  # noqa: PLC0415 - as in rows.py

    pairs = sorted([" ".join(p.text.split()), squeeze(normalise(p.answer))] for p in problems)
    return hashlib.sha256(json.dumps(pairs, ensure_ascii=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SourceRow:
    """What a row of a set's source says; `where` is its place, for messages."""

    where: str
    problem: str
    answer: str
    cluster: str | None


def read_pairs(
    benchmark: ProblemSet, folder: str | Path | None = None
) -> tuple[str, Iterator[SourceRow]]:
    """Where a set's problems are read from, and every row there. Raises DataError: no source is
    there, or (while iterating) a row cannot be used.
    """
    source, rows = _rows(benchmark, folder)
    return source, (_source_row(benchmark, where, row) for where, row in rows)


def _source_row(benchmark: ProblemSet, where: str, row: dict[str, Any]) -> SourceRow:
    columns = benchmark.columns
    answer = _text(row, columns.answer, "answer", where)
    answer = benchmark.corrections.get(answer, answer)
    cluster = _text(row, columns.cluster, "cluster", where) if columns.cluster else None
    if cluster is None:
        named = (name for name, answers in benchmark.clusters.items() if answer in answers)
        cluster = next(named, None)
    return SourceRow(where, _text(row, columns.problem, "problem", where), answer, cluster)


def _rows(
    benchmark: ProblemSet, folder: str | Path | None
) -> tuple[str, Iterator[tuple[str, dict[str, Any]]]]:
    source = benchmark.source
    if source.path is not None:
        return str(source.path), read_rows(source.path)
    local = os.environ.get(LOCAL_DATA) if folder is None else folder
    for copy in [Path(local) / name for name in source.files] if local else ():
        if copy.is_file():
            return str(copy), read_rows(copy)
    if source.hub is None:
        place = local or f"a folder (${LOCAL_DATA} is not set)"
        raise DataError(f"{benchmark.name}: none of {', '.join(source.files)} in {place}")
    searched = f" (not in {local} either)" if local else ""
    files = ", ".join(source.files)
    advice = f", or put one of {files} into a folder and name it in ${LOCAL_DATA}" if files else ""
    subsets = source.subset if isinstance(source.subset, tuple) else (source.subset,)
    rows = hub_rows(
        benchmark.name, source.hub, subsets, source.split, source.revision, searched, advice
    )
    return f"{source.hub}@{source.revision or 'newest'}", rows


def _text(row: dict[str, Any], columns: tuple[str, ...], field: str, where: str) -> str:
    for column in columns:
        text = text_of(row, column, where)
        if text is not None:
            return text
    raise DataError(
        f"{where}: no {field}: the row has none of the columns {', '.join(columns)}. Found: "
        f"{', '.join(map(str, row))}"
    )
