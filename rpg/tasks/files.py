"""Problems of a user's own: JSON-lines or Parquet files with the columns `prompt`, `answer` (and `demonstration`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rpg.config.task import FileTask
from rpg.tasks.gold import check_gold
from rpg.tasks.kind import TaskKind
from rpg.tasks.own import OwnDemonstrations
from rpg.tasks.problems import DataError, Problem, Splits, file_digest
from rpg.tasks.rows import missing, read_rows

COLUMNS = {"prompt": True, "answer": True, "demonstration": False}

_MAX_CHARACTERS = 1_000_000
"""Of one value: longer ones are a wrong file rather than a problem."""


def read(task: FileTask) -> Splits:
    """All files of a task, checked.

    Raises:
        DataError: a file is missing, empty or unreadable; a column is missing; a value is no text; a problem occurs
            twice in a file, or in a benchmark and in the training file. The message names file, line and field.
    """
    train = _read_file(task, task.train, "train")
    notes = check_gold(train, task.verifier, str(task.train))
    seen = {problem.text: problem for problem in train}
    benchmarks = {}
    for name, path in task.benchmarks.items():
        benchmarks[name] = _read_file(task, path, name)
        notes += check_gold(benchmarks[name], task.verifier, str(path))
        for line, problem in enumerate(benchmarks[name], 1):
            if problem.text in seen:
                same = seen[problem.text].id
                raise DataError(
                    f"{path}: problem {line}: field prompt: {_short(problem.text)} is also in the training file "
                    f"{task.train} ({same}): a benchmark must be held out"
                )
    return Splits(train, benchmarks, tuple(notes))


def _read_file(task: FileTask, path: Path, group: str) -> list[Problem]:
    problems: list[Problem] = []
    first: dict[str, str] = {}
    for where, row in read_rows(Path(path), COLUMNS):
        text = _text(row, "prompt", where)
        if text in first:
            raise DataError(f"{where}: field prompt: {_short(text)} is the same problem as {first[text]}")
        first[text] = where.rpartition(": ")[2]
        problems.append(
            Problem(
                id=f"{group}-{len(problems) + 1:05d}",
                text=text,
                prompt=task.template.replace("{prompt}", text),
                answer=_text(row, "answer", where).strip(),
                group=group,
                demonstration=_text(row, "demonstration", where)
                if row.get("demonstration") is not None
                else None,
            )
        )
    if not problems:
        raise DataError(
            f"{path}: the file holds no problem; expected at least one row with prompt and answer"
        )
    return problems


def _text(row: dict[str, Any], field: str, where: str) -> str:
    if field not in row:
        raise DataError(f"{where}: {missing(field, row)}")
    value = row[field]
    if field == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # a number is what people write for an answer
    if not isinstance(value, str):
        raise DataError(f"{where}: field {field}: expected text, got {_short(value)}")
    if not value.strip():
        raise DataError(f"{where}: field {field}: the text is empty")
    if len(value) > _MAX_CHARACTERS:
        raise DataError(f"{where}: field {field}: {len(value)} characters, more than {_MAX_CHARACTERS}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can smuggle in half a surrogate pair
        raise DataError(f"{where}: field {field}: not valid Unicode ({error.reason})") from error
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _data(task: FileTask) -> dict[str, Any]:
    tests = {name: file_digest(str(path)) for name, path in task.benchmarks.items()}
    return {"train": file_digest(str(task.train)), "benchmarks": tests}


KIND = TaskKind(
    problems=read,
    data=_data,
    verifier=lambda task: task.verifier,
    demonstrations=lambda task, splits: OwnDemonstrations(str(task.train), task.verifier, splits),
)
