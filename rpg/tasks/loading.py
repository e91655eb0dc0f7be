"""From a benchmark's source to problems: found, read, collapsed, checked, with a digest that says which they were."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpg.config.task import RECIPE_TEMPLATE, ChainTask
from rpg.rewards.extract import last_box, normalise, squeeze
from rpg.tasks.benchmarks import Benchmark, ProblemSet
from rpg.tasks.leaks import Checks, leaks, near_duplicates
from rpg.tasks.problems import DataError, Problem
from rpg.tasks.rows import read_rows

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
        expected = self.benchmark.digest
        if expected and expected != self.digest:
            return [
                f"{self.benchmark.name}: the problems in {self.source} have digest {self.digest}, not {expected} as the "
                "copy this benchmark was checked with: wording or answers differ somewhere"
            ]
        return []


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
    wanted = benchmark.problems if isinstance(benchmark.problems, tuple) else (benchmark.problems,)
    if benchmark.problems is not None and len(problems) not in wanted:
        raise DataError(
            f"{source}: {len(problems)} distinct problems in {count} rows; {benchmark.name} has "
            f"{' or '.join(map(str, wanted))}"
        )
    return LoadedBenchmark(benchmark, list(problems.values()), digest(problems.values()), source, count)


def _made(benchmark: Benchmark, task: ChainTask) -> list[Problem]:
    """The same problems, under the same names, as a run of the chain task is evaluated on."""
    from rpg.tasks.chain import make

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


# ------------------------------------------------------------------------------------------------- sources


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
    if path is not None or source.path is not None:
        chosen = Path(path if path is not None else source.path)
        return str(chosen), read_rows(chosen)
    local = folder if folder is not None else os.environ.get(LOCAL_DATA)
    for name in source.files if local else ():
        if (Path(local) / name).is_file():
            return str(Path(local) / name), read_rows(Path(local) / name)
    if source.hub is None:
        raise DataError(
            f"{benchmark.name}: none of {', '.join(source.files)} in {local or f'a folder (${LOCAL_DATA} is not set)'}"
        )
    return f"{source.hub}@{source.revision or 'newest'}", _hub_rows(benchmark, local)


def _hub_rows(benchmark: ProblemSet, local: str | Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    source = benchmark.source
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{benchmark.name}: reading {source.hub} from the hub needs the package datasets (pip install 'rpg-lab[math]')"
        ) from error
    subsets = source.subset if isinstance(source.subset, tuple) else (source.subset,)
    try:
        parts = [
            datasets.load_dataset(source.hub, subset, split=source.split, revision=source.revision)
            for subset in subsets
        ]
    except (
        Exception
    ) as error:  # the library raises a dozen kinds: no network, no such data set, no such split
        names = f", or put one of {', '.join(source.files)} into a folder and name it in ${LOCAL_DATA}"
        found = f" (not in {local} either)" if local else ""
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{benchmark.name}: cannot read {source.hub}{found}: {first}. Check the network{names if source.files else ''}"
        ) from error
    # As Arrow, because row by row the library is several times slower.
    batches = (batch for part in parts for batch in part.with_format("arrow").iter(10_000))
    for number, row in enumerate(itertools.chain.from_iterable(b.to_pylist() for b in batches), 1):
        yield f"{source.hub}: row {number}", row


# ------------------------------------------------------------------------------------------------- columns


def _text(row: dict[str, Any], columns: tuple[str, ...], field: str, where: str) -> str:
    for column in columns:
        form, _, inner = column.removesuffix(")").rpartition("(")
        boxed = form == "boxed"
        value = _at(row, inner)
        if value is None:
            continue
        if form == "asked":
            value = _asked(value, f"{where}: column {inner}")
        if isinstance(value, list | tuple) and all(isinstance(part, str | int | float) for part in value):
            value = ", ".join(map(str, value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(int(value)) if float(value).is_integer() else repr(value)
        if not isinstance(value, str):
            raise DataError(f"{where}: column {column}: expected text, got {type(value).__name__}")
        if boxed:
            value = last_box(value)
            if value is None:
                raise DataError(f"{where}: column {inner}: holds no \\boxed{{...}} answer")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: column {column}: not valid Unicode ({error.reason})") from error
        if not value.strip():
            raise DataError(f"{where}: column {column}: the text is empty")
        return value.strip()
    raise DataError(
        f"{where}: no {field}: none of the columns {', '.join(columns)} is there. Found: {', '.join(map(str, row))}"
    )


_BEFORE, _AFTER = RECIPE_TEMPLATE.split("{prompt}")


def _asked(conversation: Any, where: str) -> str:
    """The last user's message; the recipe's words around the problem are taken off where they are there."""
    if isinstance(conversation, str):
        conversation = [{"role": "user", "content": conversation}]
    messages = conversation if isinstance(conversation, list | tuple) else ()
    said = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    if not said or not isinstance(said[-1], str):
        raise DataError(
            f"{where}: expected a conversation, e.g. [{{'role': 'user', 'content': 'problem'}}], got "
            f"{reprlib.repr(conversation)}"
        )
    text = said[-1].strip()
    if text.startswith(_BEFORE) and text.endswith(_AFTER.rstrip()):
        text = text[len(_BEFORE) : -len(_AFTER.rstrip())]
    return text


def _at(row: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(row, dict) or part not in row:
            return None
        row = row[part]
    return row
