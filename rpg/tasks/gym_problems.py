"""Reasoning Gym (`reasoning-gym` on PyPI): procedural data sets with their own scorers, as a task.

`python -m rpg.tasks.gym_problems` makes the problems: a task as JSON in, its problems as JSON out;
without input, one example of each data set. That is a process of its own with Python's hash seed
fixed: some data sets go through sets of strings, so the same seed would give other problems in
another process (0.1.25: isomorphic_strings, polynomial_multiplication, ransom_note).
"""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rpg.config.errors import nearest
from rpg.config.task import GymDataset, GymTask
from rpg.errors import install_command
from rpg.system.processes import collect_seldom, python_module
from rpg.tasks.problems import DataError, Problem, ProblemDemonstrations, Splits, TaskKind

VERSION = 1
"""Part of the data's digest: raise it when the same settings would give other problems."""
_ALONE = "composite"
"""Not a data set but a mixture of them; ours is `task.datasets`."""


def make(task: GymTask) -> Splits:
    """All problems, the same for the same settings. Raises DataError: an unknown data set, setting
    or level, or too few."""
    rows_by_split = _generated(task.model_dump_json())
    splits = {
        name: [_problem(task, row, name, number) for number, row in enumerate(rows)]
        for name, rows in rows_by_split.items()
    }
    return Splits(splits.pop("train"), splits)


def examples() -> list[dict[str, Any]]:
    """`name`, `levels`, `text` and `answer` of one problem of each data set. Raises DataError: the
    package is missing."""
    rows: list[dict[str, Any]] = _generated("")
    return rows


def _generated(request: str) -> Any:
    _release()
    process = subprocess.run(
        python_module("rpg.tasks.gym_problems"),
        input=request,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    if process.returncode:
        raise DataError(
            f"task.datasets: making the problems ended with exit code {process.returncode}"
        )
    reply = json.loads(process.stdout)
    if "error" in reply:
        raise DataError(reply["error"])
    return reply


def _release() -> str:
    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        needed = f"task.type: reasoning_gym needs the package: {install_command('tasks')}"
        raise DataError(needed) from None


def _problem(task: GymTask, row: dict[str, Any], split: str, number: int) -> Problem:
    name = f"{row['name']}-{'train' if split == 'train' else 'held-out'}-{number:05d}"
    prompt = task.template.replace("{prompt}", row["text"])
    answer = task.verifier.written(row["answer"])
    shown = "\n".join(filter(None, (row["steps"], answer))) if row["answer"] else None
    return Problem(name, row["text"], prompt, row["answer"], row["name"], shown, row["columns"])


KIND = TaskKind(
    problems=make,
    data=lambda _task: {"generator": VERSION, "reasoning-gym": _release()},
    verifier=lambda task: task.verifier,
    demonstrations=lambda task, splits: ProblemDemonstrations(
        "task.type: reasoning_gym", task.verifier, splits
    ),
)


def generated(task: GymTask) -> dict[str, list[dict[str, Any]]]:
    """Benchmark name -> rows, and `train` -> rows. Benchmarks come first; no text stands twice,
    across data sets and levels too. Raises DataError: an unknown data set, setting or level, or too
    few different problems.
    """
    sources = [
        (
            part,
            f"task.datasets.{number}",
            level,
            f"{part.name}-level-{level}" if part.levels else part.name,
        )
        for number, part in enumerate(task.datasets)
        for level in part.levels or (None,)
    ]
    configs = [_config(part, at, level) for part, at, level, _ in sources]
    shares = [part.weight / max(1, len(part.levels)) for part, *_ in sources]
    ends = [
        round(task.train_problems * sum(shares[: i + 1]) / sum(shares)) for i in range(len(shares))
    ]
    counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    taken: set[str] = set()
    splits: dict[str, list[dict[str, Any]]] = {}
    for kind in ("held-out", "train"):
        for (part, at, _, name), config, count in zip(sources, configs, counts, strict=True):
            count = task.benchmark_problems if kind == "held-out" else count
            digest = hashlib.sha256(f"{task.data_seed} {name} {kind}".encode()).digest()
            # The package draws problem i from seed + i: seeds of two parts must be far from each
            # other.
            config = {**config, "seed": int.from_bytes(digest[:4]) >> 1, "size": 4 * count + 100}
            rows = [{"name": name, **row} for row in _rows(part.name, config, count, at, taken)]
            splits.setdefault(name if kind == "held-out" else kind, []).extend(rows)
    return splits


def _config(part: GymDataset, at: str, level: int | None) -> dict[str, Any]:
    """The settings of a data set at a level, as far as they are not the package's defaults."""
    from reasoning_gym.coaching.base_curriculum import (  # noqa: PLC0415 - two seconds, and optional
        DefaultCurriculumContext,
        RangeAttributeMode,
    )
    from reasoning_gym.factory import CURRICULA, DATASETS  # noqa: PLC0415

    names = sorted(DATASETS.keys() - {_ALONE})
    if part.name not in names:
        raise DataError(
            f"{at}.name: {part.name!r} is not a data set{nearest(part.name, names)} "
            f"Accepted: {', '.join(names)}"
        )
    keys = [
        f.name for f in dataclasses.fields(DATASETS[part.name][1]) if f.name not in ("seed", "size")
    ]
    for key in part.config:
        if key not in keys:
            raise DataError(
                f"{at}.config.{key}: not a setting of {part.name}{nearest(key, keys)} "
                f"Accepted: {', '.join(keys)}"
            )
    if level is None:
        return part.config
    if part.name not in CURRICULA:
        raise DataError(f"{at}.levels: {part.name} has no levels; leave the field out")
    curriculum = CURRICULA[part.name]()
    top = max(len(attribute.levels) for attribute in curriculum.attributes.values()) - 1
    if level > top:
        raise DataError(f"{at}.levels: {part.name} has no level {level}. Accepted: 0 to {top}")
    curriculum.set_global_level(level)
    with _refusing(at, part.name):
        # Not the package's default, which adds all easier levels to each.
        mode = DefaultCurriculumContext(RangeAttributeMode.UPPER_BOUND)
        at_level = dataclasses.asdict(curriculum.generate_configuration({}, mode))
        plain = dataclasses.asdict(DATASETS[part.name][1]())
    return {key: at_level[key] for key in keys if at_level[key] != plain[key]} | part.config


def _rows(
    dataset: str, config: dict[str, Any], count: int, at: str, taken: set[str]
) -> Iterator[dict[str, Any]]:
    """`count` problems whose texts are not in `taken`; adds them to it."""
    from reasoning_gym import create_dataset  # noqa: PLC0415 - two seconds, and optional

    left = count
    why = ""
    with _refusing(at, dataset):
        problems = create_dataset(dataset, **config)
    for index in range(config["size"]):
        if not left:
            return
        try:
            entry = problems[index]
        except Exception as error:  # noqa: BLE001 - a draw that fails gives no problem (countdown, for one)
            why = f"; the last draw that failed: {error}"
            continue
        text = " ".join(entry["question"].split())
        if text not in taken:
            taken.add(text)
            left -= 1
            example = entry["answer"]
            metadata = entry["metadata"]
            example = metadata.get("example_answer") if example is None else example
            yield {
                "text": entry["question"],
                "answer": "" if example is None else str(example),
                "steps": str(metadata.get("answer_cot", "")).partition("####")[0].strip(),
                "columns": {
                    "dataset": dataset,
                    "config": config,
                    "index": index,
                    "digest": hashlib.sha256(entry["question"].encode()).hexdigest()[:16],
                },
            }
    if left:
        raise DataError(
            f"{at}: {dataset} with these settings gave {count - left} new problems in "
            f"{config['size']} draws, {count} "
            "are wanted; accepted: smaller task.train_problems and "
            f"task.benchmark_problems, or harder settings{why}"
        )


@contextmanager
def _refusing(at: str, dataset: str) -> Iterator[None]:
    """What a data set says of its settings becomes a DataError."""
    try:
        yield
    except Exception as error:
        raise DataError(
            f"{at}: {dataset} refuses these settings: {error or type(error).__name__}"
        ) from error


def _examples() -> list[dict[str, Any]]:
    """One problem of each data set with the package's own settings, and how many levels it has."""
    from reasoning_gym.factory import CURRICULA, DATASETS  # noqa: PLC0415 - two seconds, and optional

    rows = []
    for name in sorted(DATASETS.keys() - {_ALONE}):
        [row] = _rows(name, {"seed": 0, "size": 1}, 1, name, set())
        levels = (
            [len(a.levels) for a in CURRICULA[name]().attributes.values()]
            if name in CURRICULA
            else []
        )
        rows.append({"name": name, "levels": max(levels, default=0), **row})
    return rows


def main() -> None:
    collect_seldom()
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what the package prints is not ours
    request = sys.stdin.read()
    try:
        reply: Any = generated(GymTask.model_validate_json(request)) if request else _examples()
    except DataError as error:
        reply = {"error": str(error)}
    replies.write(json.dumps(reply))
    replies.close()


if __name__ == "__main__":
    main()
