"""Mathematical problems: a training set, and benchmarks (shipped or the user's)."""

import os
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from rpg.config.errors import ConfigError
from rpg.config.task import MathTask
from rpg.tasks.benchmarks import (
    LOCAL_DATA,
    LoadedBenchmark,
    Prompt,
    benchmark,
    digest,
    load_benchmark,
)
from rpg.tasks.checks import Leak, check_gold, leaks, near_duplicates
from rpg.tasks.problems import (
    DataError,
    DatasetSummary,
    Dropped,
    ProblemDemonstrations,
    Splits,
    TaskKind,
)
from rpg.tasks.training_sets import LoadedTraining, load_training, training_set

Stamps = tuple[tuple[str, int, int], ...]
"""Path, time of the last change and size of files."""
_AS = {
    "similar": "the same as",
    "contained": "contained:",
    "renamed": "the same, except for letters and numbers, as",
}
_SHOWN = 20


def read(task: MathTask) -> Splits:
    """All problems of a task; training problems that a benchmark holds too are left out. Raises
    DataError: problems that cannot be found or used; the message names file, row and field.
    """
    train, benchmarks = _load(task.model_dump_json(), _stamps(task))
    held_out = {loaded.benchmark.name: loaded.problems for loaded in benchmarks}
    given_away = leaks(train.problems, held_out)
    leaked = {leak.training: leak for leak in reversed(given_away) if leak.tier in task.leaks}
    listed = {leak.training: leak for leak in reversed(given_away) if leak.training not in leaked}
    texts = {problem.id: problem.text for problem in train.problems}
    dropped = train.dropped + [
        Dropped(
            name, "leaked", f"{leak.similarity:.0%} {_AS[leak.tier]} {leak.problem}", texts[name]
        )
        for name, leak in leaked.items()
    ]
    kept = [problem.with_chat(task.chat) for problem in train.problems if problem.id not in leaked]
    for name, problems in held_out.items():
        held_out[name] = [problem.with_chat(task.chat) for problem in problems]
    if not kept:
        near = Counter(leak.benchmark for leak in leaked.values())
        places = ", ".join(f"{count} in {name}" for name, count in near.items())
        raise DataError(
            f"task.train: {train.source}: all {len(leaked)} problems are in a benchmark too "
            f"({places}); nothing is left to train on"
        )
    # A problem that is left out twice for one reason counts once.
    left_out = dict.fromkeys((problem.problem, problem.reason) for problem in dropped)
    reasons = dict(Counter(reason for _, reason in left_out))
    summaries = [
        DatasetSummary(
            "train", train.source, train.rows, train.distinct, reasons, len(kept), digest(kept)
        )
    ]
    for b in benchmarks:
        size = len(b.problems)
        summaries.append(
            DatasetSummary(b.benchmark.name, b.source, b.rows, size, {}, size, b.digest)
        )
    notes = list(train.notes)
    notes += check_gold(kept, task.verifier, train.source)
    for loaded in benchmarks:
        notes += loaded.notes
    notes += _listed(listed)
    pairs = []
    for name, problems in held_out.items():
        for first, second, similarity in near_duplicates(problems):
            pairs.append((name, first, second, similarity))
    return Splits(kept, held_out, tuple(notes), tuple(summaries), tuple(dropped), tuple(pairs))


def _listed(kept: dict[str, Leak]) -> list[str]:
    """A note on training problems that give a benchmark's away and stay."""
    if not kept:
        return []
    counts = Counter(leak.tier for leak in kept.values())
    tiers = ", ".join(f"{count} {tier}" for tier, count in counts.items())
    pairs = [f"{name} ({leak.problem})" for name, leak in kept.items()]
    shown = ", ".join(pairs[:_SHOWN])
    if len(pairs) > _SHOWN:
        shown += ", ..."
    return [
        f"{len(kept):,} training problems give away a benchmark problem ({tiers}) and are kept; "
        f"task.leaks can leave them out: {shown}"
    ]


def digests(task: MathTask) -> dict[str, str]:
    """Digest of the training problems and of each benchmark."""
    train, benchmarks = _load(task.model_dump_json(), _stamps(task))
    named = {"train": train.digest}
    for loaded in benchmarks:
        named[loaded.benchmark.name] = loaded.digest
    return named


def _stamps(task: MathTask) -> Stamps:
    """Times and sizes of the files that may be read: as long as they stay, what was read is as they
    say."""
    folder = task.data or os.environ.get(LOCAL_DATA)
    paths = [task.train]
    paths += task.benchmarks
    if folder:
        paths += sorted(map(str, Path(folder).glob("*")))
    stats = [(path, os.stat(path)) for path in paths if os.path.isfile(path)]
    return tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in stats)


@lru_cache(maxsize=4)
def _load(text: str, _stamps: Stamps) -> tuple[LoadedTraining, list[LoadedBenchmark]]:
    task = MathTask.model_validate_json(text)
    prompt = Prompt(template=task.template)
    try:
        train = training_set(task.train).model_copy(update={"prompt": prompt})
        tests = [benchmark(name).model_copy(update={"prompt": prompt}) for name in task.benchmarks]
        if not task.clusters:
            tests = [each.model_copy(update={"clusters": {}}) for each in tests]
    except ConfigError as error:
        raise DataError(str(error)) from error
    # Which copy it is, the digest of a run's data says: within a sweep, benchmarks have the names
    # that its file gives them.
    loaded = [replace(load_benchmark(each, task.data), benchmark=each) for each in tests]
    return load_training(train, task.data), loaded


KIND = TaskKind(
    problems=read,
    data=lambda task: {"train": None, "data": None, "benchmarks": digests(task)},
    verifier=lambda task: task.verifier,
    demonstrations=lambda task, splits: ProblemDemonstrations(task.train, task.verifier, splits),
)
