"""Grading stored samples again by other rules. The new grades are stored beside the samples, in
`<samples>.grades-<rules>.parquet`; nothing is overwritten.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rpg.config.errors import ConfigError
from rpg.config.task import MathVerifier, Task, Verifier
from rpg.evaluation.standalone import RECORD, as_section
from rpg.store.atomic_files import read_json_object
from rpg.store.run_folder import RunFolder
from rpg.store.samples import TURNS, grades_path, metadata, read_grades, read_samples, write_grades
from rpg.tasks import verifier_of
from rpg.tasks.rewards import Item, grader_for
from rpg.tasks.rewards.graders import rules_name


@dataclass(frozen=True)
class Change:
    """A problem with samples whose verdict changed."""

    problem_id: str
    samples: int
    right_before: int
    right_after: int


@dataclass(frozen=True)
class Regraded:
    """One file of samples, graded by two sets of rules."""

    what: str
    """The benchmark, with run and step if the samples belong to a run."""
    before: str
    """The rules of the first grades."""
    after: str
    samples: int
    right_before: int
    right_after: int
    changes: list[Change]
    grades: Path


def regrade(
    folder: Path, rules: str | None = None, workers: int = 1, say: Callable[[str], None] = print
) -> list[Regraded]:
    """Grade the samples in a folder by `default` or `recipe` rules (None: the rules that were not
    used).

    `folder` is that of an evaluation, a run, a sweep, or a checkpoint of a run. Existing grades by
    the same version of the rules are used. Raises ConfigError: the folder has no samples, or their
    answers were not graded as mathematics; GradingError, StoreError: answers cannot be graded, a
    file cannot be read or written.
    """
    stored = list(_stored(folder))
    if not stored:
        why = f"{folder}: no graded samples; expected the folder of an evaluation, a run or a sweep"
        raise ConfigError(why)
    return [_regrade_file(*each, rules, workers, say) for each in stored]


def _regrade_file(
    what: str,
    samples: Path,
    graded_by: Verifier,
    rules: str | None,
    workers: int,
    say: Callable[[str], None],
) -> Regraded:
    if not isinstance(graded_by, MathVerifier):
        why = (
            f"{samples}: these answers follow a marker; only answers of type math have two sets "
            "of rules"
        )
        raise ConfigError(why)
    other = "default" if graded_by.rules == "recipe" else "recipe"
    verifier = MathVerifier.model_validate({**graded_by.model_dump(), "rules": rules or other})
    name = rules_name(verifier)
    path = grades_path(samples, rules_name(verifier))
    rows = read_samples(samples).to_pylist()
    origin = hashlib.sha256(samples.read_bytes()).hexdigest()
    grades = read_grades(path, origin) if path.exists() else None
    if grades is None:
        last = [json.loads(row[TURNS])[-1] if TURNS in row else row["response"] for row in rows]
        items = [
            Item(turn, row["answer"], row["truncated"])
            for turn, row in zip(last, rows, strict=True)
        ]
        with grader_for(verifier, workers) as grader:
            graded = grader.grade(items)
        grades = [
            {"problem_id": row["problem_id"], "sample": row["sample"], **asdict(grade)}
            for row, grade in zip(rows, graded, strict=True)
        ]
        write_grades(path, grades, name, origin)
        say(f"{what}: {len(rows)} samples graded by {name}")
    else:
        say(f"{what}: already graded by {name}")
    before = metadata(samples).get("rules", "rules that were not recorded")
    right, now_right = (sum(row["correct"] for row in graded) for graded in (rows, grades))
    changes = changed(rows, grades)
    return Regraded(what, before, name, len(rows), right, now_right, changes, path)


def changed(rows: list[dict[str, Any]], grades: list[dict[str, Any]]) -> list[Change]:
    """Problems with a sample whose verdict changed, in the order of the samples."""
    new = {(grade["problem_id"], grade["sample"]): grade["correct"] for grade in grades}
    counts: dict[str, list[int]] = {}
    for row in rows:
        count = counts.setdefault(row["problem_id"], [0, 0, 0, 0])
        now = new[row["problem_id"], row["sample"]]
        for i, value in enumerate((1, row["correct"], now, now != row["correct"])):
            count[i] += int(value)
    return [Change(problem, *count[:3]) for problem, count in counts.items() if count[3]]


def _stored(folder: Path) -> Iterator[tuple[str, Path, Verifier]]:
    if (folder / RECORD).is_file():
        for name, entry in read_json_object(folder / RECORD).items():
            if (folder / f"{name}.parquet").is_file():
                verifier = as_section(Verifier, entry["identity"]["verifier"], str(folder / RECORD))
                yield name, folder / f"{name}.parquet", verifier
        return
    run = next(
        (path for path in (folder, *folder.parents[:2]) if (path / "manifest.json").is_file()), None
    )
    runs = [run] if run else sorted(path.parent for path in folder.glob("*/manifest.json"))
    for path in runs:
        run_folder = RunFolder(path)
        manifest = run_folder.read_manifest()
        verifier = verifier_of(
            as_section(Task, manifest["spec"]["task"], str(run_folder.manifest_path))
        )
        for benchmark in run_folder.benchmarks():
            for step in run_folder.eval_steps(benchmark):
                what = f"{run_folder.name}, step {step} on {benchmark}"
                yield what, run_folder.eval_path(benchmark, step), verifier
