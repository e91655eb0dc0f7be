"""Problems from the user's files and from data sets of the hub, by the names of their columns."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rpg.config.data_source import DataSource, FileColumns, parsed_column
from rpg.config.errors import nearest
from rpg.config.task import EnvironmentTask, FileTask, RewardVerifier
from rpg.tasks.checks import check_gold
from rpg.tasks.problems import (
    DataError,
    DatasetSummary,
    Dropped,
    Problem,
    ProblemDemonstrations,
    Splits,
    TaskKind,
    shortened,
)
from rpg.tasks.rows import conversation, hub_rows, missing, plain, read_rows, text_of, value_at

_MAX_CHARACTERS = 1_000_000
"""Of one value: longer ones mean that this is the wrong file."""
_LISTED = 20
"""Rows of a kind that a message lists."""
_MAX_REPEATED = 5_000_000
"""Problems in a pass over a mixture; more are a weight that is far off."""


def read(task: FileTask) -> Splits:
    """All files of a task, checked. A problem that repeats one of its file, and a training problem
    that is in a benchmark too, is left out (`Splits.dropped`); of problems with two answers none is
    kept. With `task.strict` these are errors.

    Raises DataError: a file is missing, empty or unreadable; a column is missing; a value is no
    text. The message names file, line and field, of the first 20 rows that are so.
    """
    parts = [
        _read_source(task, source, "train", number) for number, source in enumerate(task.train)
    ]
    tests = {name: _read_source(task, source, name) for name, source in task.benchmarks.items()}
    held_out = {
        part.known_by[problem.id]: problem.id
        for part in tests.values()
        for problem in part.problems
    }
    for part in parts:
        part.drop("leaked", {key: f"also in a benchmark: {name}" for key, name in held_out.items()})
    splits = [("train", part, source) for part, source in zip(parts, task.train, strict=True)]
    splits += [(name, tests[name], source) for name, source in task.benchmarks.items()]
    notes = list[str]()
    summaries = list[DatasetSummary]()
    dropped = list[Dropped]()
    for name, part, source in splits:
        if task.strict and part.dropped:
            left_out = [
                f"{source.called()}: {d.reason}: {d.problem}: {d.detail}" for d in part.dropped
            ]
            raise DataError(_listed(left_out, "problems that task.strict refuses"))
        if not part.problems:
            raise DataError(
                f"{source.called()}: of {part.rows} problems none is left: {part.left_out()}"
                if part.rows
                else f"{source.called()}: the file holds no problem; expected at least one row "
                "with prompt and answer"
            )
        if not isinstance(task.verifier, RewardVerifier):
            gold = check_gold(part.problems, task.verifier, source.called())
            # Another sweep's files of the same content share these notes, so they name no file.
            notes += [note.replace(source.called(), name, 1) for note in gold]
        if part.dropped:
            notes.append(f"{name}: left out of {part.rows:,} problems: {part.left_out()}")
        dropped += part.dropped
        summaries.append(part.summary(name, source.called()))
    mixed = _mixed([part.problems for part in parts], [source.weight for source in task.train])
    benchmarks = {name: part.problems for name, part in tests.items()}
    return Splits(mixed, benchmarks, tuple(notes), tuple(summaries), tuple(dropped))


@dataclass
class _Part:
    """The problems of one source that are kept, and those left out."""

    problems: list[Problem]
    rows: int
    dropped: list[Dropped]
    known_by: dict[str, str]
    """Id of a problem, left out or not -> what its repetitions have, too."""

    def drop(self, reason: str, why: Mapping[str, str]) -> None:
        """Leave out the problems that are known by what is in `why` (-> detail)."""
        known = self.known_by
        out = [problem for problem in self.problems if known[problem.id] in why]
        self.problems = [problem for problem in self.problems if known[problem.id] not in why]
        self.dropped += [Dropped(p.id, reason, why[known[p.id]], p.text) for p in out]

    def left_out(self) -> str:
        """`2 repeated, 1 leaked`."""
        counts = Counter(drop.reason for drop in self.dropped)
        return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())

    def summary(self, name: str, source: str) -> DatasetSummary:
        kept = "\n".join(f"{p.text}\t{p.answer}" for p in self.problems)
        digest = hashlib.sha256(kept.encode()).hexdigest()[:16]
        counts = dict(Counter(drop.reason for drop in self.dropped))
        return DatasetSummary(
            name, source, self.rows, len(self.known_by), counts, len(self.problems), digest
        )


def _listed(lines: Sequence[str], what: str) -> str:
    """The lines as they are if there is one; else the first of them, and how many there are."""
    if len(lines) == 1:
        return lines[0]
    listed = [f"{len(lines):,} {what}:"]
    listed += lines[:_LISTED]
    if len(lines) > _LISTED:
        listed.append(f"... and {len(lines) - _LISTED} more")
    return "\n".join(listed)


def _mixed(parts: list[list[Problem]], weights: list[float]) -> list[Problem]:
    """One pass over several sources: their problems in proportion to the weights, each at least
    once."""
    if len(parts) == 1:
        return parts[0]
    scale = max(len(part) / weight for part, weight in zip(parts, weights, strict=True))
    counts = [
        max(len(part), round(scale * weight)) for part, weight in zip(parts, weights, strict=True)
    ]
    if sum(counts) > _MAX_REPEATED:
        raise DataError(
            f"task.train: with these weights one pass has {sum(counts):,} problems; at most "
            f"{_MAX_REPEATED:,} are "
            f"accepted. Sizes: {', '.join(str(len(part)) for part in parts)}; weights: {weights}"
        )
    return [
        part[i % len(part)] for part, count in zip(parts, counts, strict=True) for i in range(count)
    ]


def _read_source(task: FileTask, source: DataSource, group: str, number: int = 0) -> _Part:
    columns = source.columns or task.columns
    part = _Part([], 0, [], {})
    first: dict[str, tuple[str, str]] = {}
    torn: dict[str, str] = {}
    bad: list[DataError] = []
    name = f"{group}-{number + 1}" if len(task.train) > 1 and group == "train" else group
    for where, row in _rows(source, bad):
        try:
            problem = _problem(
                task, columns, f"{name}-{len(part.problems) + 1:05d}", group, row, where
            )
        except DataError as error:
            bad.append(error)
            continue
        line = where.rpartition(": ")[2]
        part.rows += 1
        known = _known_by(task, columns, problem)
        if known not in first:
            first[known], part.known_by[problem.id] = (line, problem.answer), known
            part.problems.append(problem)
        else:
            same, answer = first[known]
            if problem.answer != answer:
                torn[known] = f"{answer!r} in {same}, {problem.answer!r} in {line}"
            part.dropped.append(
                Dropped(line, "repeated", f"the same problem as {same}", problem.text)
            )
        if len(part.problems) == source.limit:
            break
    if bad:
        raise DataError(_listed([str(error) for error in bad], "rows cannot be used"))
    part.drop("two answers", torn)
    return part


def _known_by(task: FileTask, columns: FileColumns, problem: Problem) -> str:
    """Its text; with an environment, also the columns it is given, where the state may be."""
    if not isinstance(task, EnvironmentTask):
        return problem.text
    names = columns.answer or "answer", columns.demonstration or "demonstration"
    apart = [parsed_column(name)[2] for name in names]
    given = {name: value for name, value in problem.columns.items() if name not in apart}
    return json.dumps([problem.text, given], sort_keys=True, default=str)


def _rows(
    source: DataSource, bad: list[DataError] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    if source.path is not None:
        return read_rows(source.path, bad=bad)
    assert source.hub is not None
    return hub_rows("task.train", source.hub, (source.config,), source.split, source.revision)


def _problem(
    task: FileTask, columns: FileColumns, name: str, group: str, row: Mapping[str, Any], where: str
) -> Problem:
    asked = columns.prompt or (
        "messages" if "messages" in row and "prompt" not in row else "prompt"
    )
    form, _, place = parsed_column(asked)
    value = value_at(row, place)
    shown = None
    textual = form or value is None or isinstance(value, str | int | float)
    messages = [] if textual else conversation(value, asked, where)
    if messages and messages[-1]["role"] == "assistant":
        shown = messages.pop()["content"]
    text = messages[-1]["content"] if messages else _text(row, columns.prompt, "prompt", where)
    answer = ""
    gold = parsed_column(columns.answer or "answer")[2]
    if not isinstance(task.verifier, RewardVerifier) or value_at(row, gold) is not None:
        answer = _text(row, columns.answer, "answer", where).strip()
    demonstration = columns.demonstration or "demonstration"
    if value_at(row, parsed_column(demonstration)[2]) is not None:
        shown = _text(row, columns.demonstration, "demonstration", where)
    cluster = None
    if value_at(row, parsed_column(columns.cluster or "cluster")[2]) is not None:
        cluster = text_of(row, columns.cluster or "cluster", where)
    prompt = task.template.replace("{prompt}", text)
    if messages:
        messages[-1] = {"role": "user", "content": prompt}
    # Two chats may share their last message, so the whole conversation identifies the problem.
    whole = (
        text if len(messages) < 2 else "\n".join(f"{m['role']}: {m['content']}" for m in messages)
    )
    others = {key: value for key, value in row.items() if value is not None}
    problem = Problem(
        id=name,
        text=whole,
        prompt=prompt,
        answer=answer,
        group=group,
        demonstration=shown,
        columns=others,
        messages=tuple(messages),
        chat=bool(messages),
        cluster=cluster,
    )
    return problem.with_chat(task.chat)


def _text(row: Mapping[str, Any], column: str | None, field: str, where: str) -> str:
    if column is not None:
        text = text_of(row, column, where)
        if text is None:
            raise DataError(
                f"{where}: task.columns.{field}: {missing(parsed_column(column)[2], row)}"
            )
        return text
    value = row.get(field)
    if value is None:
        raise DataError(f"{where}: {missing(field, row)}")
    if isinstance(value, bool) or not isinstance(
        value, str | int | float if field == "answer" else str
    ):
        raise DataError(f"{where}: field {field}: expected text, got {shortened(value)}")
    text = plain(value, field, where)
    if not text.strip():
        raise DataError(f"{where}: field {field}: the text is empty")
    if len(text) > _MAX_CHARACTERS:
        raise DataError(
            f"{where}: field {field}: {len(text)} characters, more than {_MAX_CHARACTERS}"
        )
    return text


def _data(task: FileTask) -> dict[str, Any]:
    _require_files(task)
    tests = {name: _digest(source) for name, source in task.benchmarks.items()}
    train = [_digest(source) for source in task.train]
    return {"train": train[0] if len(train) == 1 else train, "benchmarks": tests}


def _require_files(task: FileTask) -> None:
    """Raises DataError if a file that the task names is missing: all such files, by field."""
    sources = [("task.train", source) for source in task.train]
    sources += [(f"task.benchmarks.{name}", source) for name, source in task.benchmarks.items()]
    missing_files = []
    for field, source in sources:
        if source.path is not None and not source.path.exists():
            folder = source.path.parent
            beside = [path.name for path in folder.iterdir()] if folder.is_dir() else []
            hint = nearest(source.path.name, beside).removesuffix(".")
            missing_files.append(f"{field}: {source.path}: no such file{hint}")
    if missing_files:
        raise DataError("\n".join(missing_files))


def _digest(source: DataSource) -> Any:
    """What represents a source in the digest of the data: its contents, not its location."""
    if source.path is not None:
        try:
            with open(source.path, "rb") as handle:
                content = hashlib.file_digest(handle, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"{source.path}: cannot be read: {error.strerror or error}") from error
    else:
        content = _hub_digest(
            source.model_copy(update={"columns": None, "weight": 1.0, "limit": None})
        )
    settings = source.model_dump(
        mode="json", exclude_defaults=True, include={"columns", "weight", "limit"}
    )
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
