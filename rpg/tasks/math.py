"""Mathematical problems: a training set, and benchmarks that ship or are one's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rpg.benchmarks import Benchmark, LoadedBenchmark, benchmark, leaks, load_benchmark
from rpg.benchmarks.catalogue import Columns, Prompt, Source
from rpg.config.errors import ConfigError
from rpg.config.spec import MathTask
from rpg.tasks.problems import DataError, Splits

_TRAIN_COLUMNS = Columns(
    problem=("extra_info.raw_problem", "problem", "question", "prompt"),
    answer=("reward_model.ground_truth", "answer", "final_answer", "solution"),
)


def read(task: MathTask) -> Splits:
    """All problems of a task; training problems that a benchmark holds too are left out, with a note.

    Raises:
        DataError: problems that cannot be found or used; the message names file, row and field.
    """
    train, benchmarks = _load(task)
    held_out = {loaded.benchmark.name: loaded.problems for loaded in benchmarks}
    leaked = leaks(train.problems, held_out)
    out = {leak.training for leak in leaked}
    notes = [note for loaded in benchmarks for note in loaded.notes]
    notes += [
        f"left out of training: {leak.training}, {leak.similarity:.0%} the same as {leak.problem} of {leak.benchmark}"
        for leak in leaked
    ]
    kept = [problem for problem in train.problems if problem.id not in out]
    if not kept:
        raise DataError(f"task.train: {train.source}: every problem is in a benchmark too")
    return Splits(kept, held_out, tuple(notes))


def digests(task: MathTask) -> dict[str, str]:
    """Digest of the training problems and of each benchmark."""
    train, benchmarks = _load(task)
    return {"train": train.digest, **{loaded.benchmark.name: loaded.digest for loaded in benchmarks}}


@lru_cache(maxsize=4)
def _load(task: MathTask) -> tuple[LoadedBenchmark, list[LoadedBenchmark]]:
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
