"""Mathematical problems: a training set, and benchmarks that ship or are one's own."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from rpg.benchmarks import Benchmark, LoadedBenchmark, benchmark, check, leaks, load_benchmark
from rpg.benchmarks.catalogue import Columns, Prompt, Source
from rpg.benchmarks.load import LOCAL_DATA
from rpg.config.errors import ConfigError
from rpg.config.spec import MathTask
from rpg.tasks.problems import DataError, Splits

_TRAIN_COLUMNS = Columns(
    problem=("extra_info.raw_problem", "problem", "question", "prompt"),
    answer=("reward_model.ground_truth", "answer", "final_answer", "solution"),
)


def read(task: MathTask) -> Splits:
    """All problems of a task; training problems that a benchmark holds too are left out and named.

    Raises:
        DataError: problems that cannot be found or used; the message names file, row and field.
    """
    train, benchmarks = _load(task, _stamps(task))
    held_out = {loaded.benchmark.name: loaded.problems for loaded in benchmarks}
    leaked = leaks(train.problems, held_out)
    out = {leak.training for leak in leaked}
    kept = [problem for problem in train.problems if problem.id not in out]
    if not kept:
        raise DataError(f"task.train: {train.source}: every problem is in a benchmark too")
    notes = [note for loaded in benchmarks for note in (*loaded.notes, *_doubles(loaded))]
    if out:
        names = sorted({leak.benchmark for leak in leaked})
        notes.append(
            f"{len(out)} training problems are in {', '.join(names)} too and were left out of training"
        )
    left_out = tuple(
        f"{leak.training}: {leak.similarity:.0%} the same as {leak.problem} of {leak.benchmark}"
        for leak in leaked
    )
    return Splits(kept, held_out, tuple(notes), left_out)


def _doubles(loaded: LoadedBenchmark) -> list[str]:
    pairs = len(check(loaded).near_duplicates)
    return [f"{loaded.benchmark.name}: {pairs} pairs of problems are nearly the same"] if pairs else []


def digests(task: MathTask) -> dict[str, str]:
    """Digest of the training problems and of each benchmark."""
    train, benchmarks = _load(task, _stamps(task))
    return {"train": train.digest, **{loaded.benchmark.name: loaded.digest for loaded in benchmarks}}


def load_training(train: str, folder: Path | None = None) -> LoadedBenchmark:
    """Training problems from a JSON-lines or Parquet file, or a YAML file that says where they are.

    Raises:
        DataError, ConfigError: they cannot be found or used.
    """
    return load_benchmark(_training(train), folder=folder)


def _stamps(task: MathTask) -> tuple:
    """Times and sizes of the files that may be read: as long as they stay, what was read is as they say."""
    folder = task.data or os.environ.get(LOCAL_DATA)
    paths = [task.train, *task.benchmarks, *(sorted(map(str, Path(folder).glob("*"))) if folder else ())]
    stats = [(path, os.stat(path)) for path in paths if os.path.isfile(path)]
    return tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in stats)


@lru_cache(maxsize=4)
def _load(task: MathTask, _: tuple) -> tuple[LoadedBenchmark, list[LoadedBenchmark]]:
    prompt = Prompt(template=task.template)
    try:
        train = _training(task.train).model_copy(update={"prompt": prompt})
        tests = [benchmark(name).model_copy(update={"prompt": prompt}) for name in task.benchmarks]
    except ConfigError as error:
        raise DataError(str(error)) from error
    return load_benchmark(train, folder=task.data), [load_benchmark(b, folder=task.data) for b in tests]


def _training(train: str) -> Benchmark:
    if train.endswith((".yaml", ".yml")):
        return benchmark(train).model_copy(update={"name": "train"})
    return Benchmark(name="train", source=Source(path=Path(train)), columns=_TRAIN_COLUMNS)
