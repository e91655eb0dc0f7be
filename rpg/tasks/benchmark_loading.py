"""Loads the problems of a benchmark: finds the source, reads it, collapses repeats, checks, and computes a digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpg.answers.extraction import normalise, squeeze
from rpg.config.task import ChainTask
from rpg.tasks.benchmarks import Benchmark, ProblemSet
from rpg.tasks.chain import make
from rpg.tasks.columns import text_of
from rpg.tasks.leaks import Checks, leaks, near_duplicates
from rpg.tasks.problems import DataError, Problem
from rpg.tasks.rows import hub_rows, read_rows

LOCAL_DATA = "RPG_DATA"
"""Environment variable: the folder in which local copies of data sets are looked for before the hub."""


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
        """What a reader of results should know about this copy."""
        return self.benchmark.digest_notes(self.source, self.digest)


def load_benchmark(
    benchmark: Benchmark, path: str | Path | None = None, folder: str | Path | None = None
) -> LoadedBenchmark:
    """Problems of a benchmark from `path`, else its own file, else a local copy in `folder` (default: the folder
    that the environment variable RPG_DATA names), else the Hugging Face hub.

    Rows that repeat a problem with the same answer are collapsed (the recipe's files hold each problem 32 times).

    Raises:
        DataError: no source is there, a row cannot be used, a problem has two different answers, or the number of
            distinct problems is not the one expected. The message names file, row and field.
    """
    if benchmark.source.chain is not None:
        made = _made(benchmark, benchmark.source.chain)
        return LoadedBenchmark(benchmark, made, digest(made), "made by code", len(made))
    source, rows = read_pairs(benchmark, path, folder)
    problems: dict[str, Problem] = {}
    count = 0
    for where, text, answer in rows:
        count += 1
        key = " ".join(text.split())
        if key not in problems:
            problems[key] = as_problem(benchmark, text, answer)
        elif problems[key].answer != answer:
            raise DataError(
                f"{where}: answer {answer!r}, but the same problem has the answer {problems[key].answer!r} in an "
                "earlier row"
            )
    if not problems:
        raise DataError(f"{source}: no rows; expected problems of {benchmark.name}")
    expected = benchmark.problems if isinstance(benchmark.problems, tuple) else (benchmark.problems,)
    if benchmark.problems is not None and len(problems) not in expected:
        raise DataError(
            f"{source}: {len(problems)} distinct problems in {count} rows; {benchmark.name} has "
            f"{' or '.join(map(str, expected))}"
        )
    return LoadedBenchmark(benchmark, list(problems.values()), digest(problems.values()), source, count)


def _made(benchmark: Benchmark, task: ChainTask) -> list[Problem]:
    """The same problems, under the same names, as a run of the chain task is evaluated on."""
    held_out = make(task).benchmarks
    if benchmark.name not in held_out:
        raise DataError(
            f"{benchmark.name}: source.chain makes {', '.join(held_out)}; one of these has to be its name"
        )
    return held_out[benchmark.name]


def check(loaded: LoadedBenchmark, training: Sequence[Problem] = (), source: str | None = None) -> Checks:
    """Repeats and near duplicates within a benchmark, and its problems that are among those of `training`, which come
    from `source`.
    """
    leaked = tuple(leaks(training, {loaded.benchmark.name: loaded.problems}))
    return Checks(loaded.rows, tuple(near_duplicates(loaded.problems)), source, leaked)


def digest(problems: Any) -> str:
    """Identity of a set of problems: texts and answers, in any order, without white space and typesetting."""
    pairs = sorted([" ".join(p.text.split()), squeeze(normalise(p.answer))] for p in problems)
    return hashlib.sha256(json.dumps(pairs, ensure_ascii=True).encode()).hexdigest()[:16]


def as_problem(benchmark: ProblemSet, text: str, answer: str) -> Problem:
    """A problem with the set's prompt around it."""
    # The name comes from the text, so it is the same in every copy and order of a data set.
    name = hashlib.sha256(" ".join(text.split()).encode("utf-8", "surrogatepass")).hexdigest()[:10]
    prompt = benchmark.prompt.template.replace("{prompt}", text)
    return Problem(f"{benchmark.name}-{name}", text, prompt, answer, benchmark.name)


def read_pairs(
    benchmark: ProblemSet, path: str | Path | None = None, folder: str | Path | None = None
) -> tuple[str, Iterator[tuple[str, str, str]]]:
    """Where a set's problems are read from, and (place for messages, problem, answer) for every row there.

    Raises:
        DataError: no source is there, or (while iterating) a row cannot be used.
    """
    source, rows = _rows(benchmark, path, folder)
    return source, _pairs(benchmark, rows)


def _pairs(
    benchmark: ProblemSet, rows: Iterator[tuple[str, dict[str, Any]]]
) -> Iterator[tuple[str, str, str]]:
    for where, row in rows:
        text = _text(row, benchmark.columns.problem, "problem", where)
        answer = _text(row, benchmark.columns.answer, "answer", where)
        yield where, text, benchmark.corrections.get(answer, answer)


def _rows(
    benchmark: ProblemSet, path: str | Path | None, folder: str | Path | None
) -> tuple[str, Iterator[tuple[str, dict[str, Any]]]]:
    source = benchmark.source
    path = path if path is not None else source.path
    if path is not None:
        return str(path), read_rows(Path(path))
    local = folder if folder is not None else os.environ.get(LOCAL_DATA)
    for copy in [Path(local) / name for name in source.files] if local else ():
        if copy.is_file():
            return str(copy), read_rows(copy)
    if source.hub is None:
        raise DataError(
            f"{benchmark.name}: none of {', '.join(source.files)} in {local or f'a folder (${LOCAL_DATA} is not set)'}"
        )
    searched = f" (not in {local} either)" if local else ""
    advice = f", or put one of {', '.join(source.files)} into a folder and name it in ${LOCAL_DATA}"
    subsets = source.subset if isinstance(source.subset, tuple) else (source.subset,)
    rows = hub_rows(
        benchmark.name,
        source.hub,
        subsets,
        source.split,
        source.revision,
        searched,
        advice if source.files else "",
    )
    return f"{source.hub}@{source.revision or 'newest'}", rows


def _text(row: dict[str, Any], columns: tuple[str, ...], field: str, where: str) -> str:
    for column in columns:
        text = text_of(row, column, where)
        if text is not None:
            return text
    raise DataError(
        f"{where}: no {field}: none of the columns {', '.join(columns)} is there. Found: {', '.join(map(str, row))}"
    )
