"""Problems from the user's files and from data sets of the hub, by the names of their columns."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from rpg.config.data_source import DataSource, FileColumns, parsed_column
from rpg.config.task import FileTask, RewardVerifier
from rpg.tasks.checks import check_gold
from rpg.tasks.problems import (
    DataError,
    Problem,
    ProblemDemonstrations,
    Splits,
    TaskKind,
    file_digest,
    shortened,
    with_chat,
)
from rpg.tasks.rows import conversation, hub_rows, missing, read_rows, text_of, value_at

_MAX_CHARACTERS = 1_000_000
"""Of one value: longer ones mean that this is the wrong file."""
_MAX_REPEATED = 5_000_000
"""Problems in a pass over a mixture; more are a weight that is far off."""


def read(task: FileTask) -> Splits:
    """All files of a task, checked. Raises DataError: a file is missing, empty or unreadable; a column is missing; a
    value is no text; a problem occurs twice in a file, or in a benchmark and in the training file. The message names
    file, line and field.
    """
    parts = [_read_source(task, source, "train", number) for number, source in enumerate(task.train)]
    notes = [
        note for part, source in zip(parts, task.train, strict=True) for note in _gold(task, part, source)
    ]
    seen = {problem.text: problem for part in parts for problem in part}
    benchmarks = {}
    for name, source in task.benchmarks.items():
        benchmarks[name] = _read_source(task, source, name)
        notes += _gold(task, benchmarks[name], source)
        for line, problem in enumerate(benchmarks[name], 1):
            if problem.text in seen:
                same = seen[problem.text].id
                trained = ", ".join(source.called() for source in task.train)
                raise DataError(
                    f"{source.called()}: problem {line}: field prompt: {shortened(problem.text)} is also in the training "
                    f"file {trained} ({same}): a benchmark must be held out"
                )
    return Splits(_mixed(parts, [source.weight for source in task.train]), benchmarks, tuple(notes))


def _gold(task: FileTask, problems: list[Problem], source: DataSource) -> list[str]:
    if isinstance(task.verifier, RewardVerifier):
        return []
    return check_gold(problems, task.verifier, source.called())


def _mixed(parts: list[list[Problem]], weights: list[float]) -> list[Problem]:
    """One pass over several sources: their problems in proportion to the weights, each at least once."""
    if len(parts) == 1:
        return parts[0]
    scale = max(len(part) / weight for part, weight in zip(parts, weights, strict=True))
    counts = [max(len(part), round(scale * weight)) for part, weight in zip(parts, weights, strict=True)]
    if sum(counts) > _MAX_REPEATED:
        raise DataError(
            f"task.train: with these weights one pass has {sum(counts):,} problems; at most {_MAX_REPEATED:,} are "
            f"accepted. Sizes: {', '.join(str(len(part)) for part in parts)}; weights: {weights}"
        )
    return [part[i % len(part)] for part, count in zip(parts, counts, strict=True) for i in range(count)]


def _read_source(task: FileTask, source: DataSource, group: str, number: int = 0) -> list[Problem]:
    columns = source.columns or task.columns
    problems: list[Problem] = []
    first: dict[str, str] = {}
    name = f"{group}-{number + 1}" if len(task.train) > 1 and group == "train" else group
    for where, row in _rows(source):
        problem = _problem(task, columns, f"{name}-{len(problems) + 1:05d}", group, row, where)
        key = problem.text
        if key in first:
            raise DataError(f"{where}: field prompt: {shortened(key)} is the same problem as {first[key]}")
        first[key] = where.rpartition(": ")[2]
        problems.append(problem)
        if len(problems) == source.limit:
            break
    if not problems:
        raise DataError(
            f"{source.called()}: the file holds no problem; expected at least one row with prompt and answer"
        )
    return problems


def _rows(source: DataSource) -> Iterator[tuple[str, dict[str, Any]]]:
    if source.path is not None:
        return read_rows(source.path)
    assert source.hub is not None
    return hub_rows("task.train", source.hub, (source.config,), source.split, source.revision)


def _problem(
    task: FileTask, columns: FileColumns, name: str, group: str, row: Mapping[str, Any], where: str
) -> Problem:
    asked = columns.prompt or ("messages" if "messages" in row and "prompt" not in row else "prompt")
    messages = _messages(row, asked, where)
    shown = None
    if messages and messages[-1]["role"] == "assistant":
        shown = messages.pop()["content"]
    text = messages[-1]["content"] if messages else _text(row, columns.prompt, "prompt", where)
    answer = ""
    if not isinstance(task.verifier, RewardVerifier) or value_at(row, columns.answer or "answer") is not None:
        answer = _text(row, columns.answer, "answer", where).strip()
    demonstration = columns.demonstration or "demonstration"
    if value_at(row, parsed_column(demonstration)[2]) is not None:
        shown = _text(row, columns.demonstration, "demonstration", where)
    prompt = task.template.replace("{prompt}", text)
    if messages:
        messages[-1] = {"role": "user", "content": prompt}
    # Two chats may share their last message, so the whole conversation identifies the problem.
    whole = text if len(messages) < 2 else "\n".join(f"{m['role']}: {m['content']}" for m in messages)
    others = {key: value for key, value in row.items() if value is not None}
    problem = Problem(name, whole, prompt, answer, group, shown, others, tuple(messages), chat=bool(messages))
    return with_chat(problem, task.chat)


def _messages(row: Mapping[str, Any], column: str, where: str) -> list[dict[str, str]]:
    """The conversation in a column; empty where it holds text."""
    form, _, name = parsed_column(column)
    value = value_at(row, name)
    if form or value is None or isinstance(value, str | int | float):
        return []
    return conversation(value, column, where)


def _text(row: Mapping[str, Any], column: str | None, field: str, where: str) -> str:
    if column is not None:
        text = text_of(row, column, where)
        if text is None:
            raise DataError(f"{where}: task.columns.{field}: {missing(parsed_column(column)[2], row)}")
        return text
    value = row.get(field)
    if value is None:
        raise DataError(f"{where}: {missing(field, row)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where}: field {field}: expected text or a number, got {value}")
    if field == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # a number is what people write for an answer
    if not isinstance(value, str):
        raise DataError(f"{where}: field {field}: expected text, got {shortened(value)}")
    if not value.strip():
        raise DataError(f"{where}: field {field}: the text is empty")
    if len(value) > _MAX_CHARACTERS:
        raise DataError(f"{where}: field {field}: {len(value)} characters, more than {_MAX_CHARACTERS}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can smuggle in half a surrogate pair
        raise DataError(f"{where}: field {field}: not valid Unicode ({error.reason})") from error
    return value


def _data(task: FileTask) -> dict[str, Any]:
    tests = {name: _digest(source) for name, source in task.benchmarks.items()}
    train = [_digest(source) for source in task.train]
    return {"train": train[0] if len(train) == 1 else train, "benchmarks": tests}


def _digest(source: DataSource) -> Any:
    """What represents a source in the digest of the data: its contents, not its location."""
    if source.path is not None:
        content = file_digest(str(source.path))
    else:
        content = _hub_digest(source.model_copy(update={"columns": None, "weight": 1.0, "limit": None}))
    settings = source.model_dump(mode="json", exclude_defaults=True, include={"columns", "weight", "limit"})
    return {"content": content, **settings} if settings else content


@lru_cache(maxsize=16)
def _hub_digest(source: DataSource) -> str:
    """Of all rows, because the commit of a data set is not known without asking the hub."""
    rows = hashlib.sha256()
    for _, row in _rows(source):
        rows.update(json.dumps(row, default=str, ensure_ascii=True).encode() + b"\n")
    return rows.hexdigest()


KIND = TaskKind(
    problems=read,
    data=_data,
    verifier=lambda task: task.verifier,
    demonstrations=lambda task, splits: ProblemDemonstrations(
        ", ".join(source.called() for source in task.train), task.verifier, splits
    ),
)
