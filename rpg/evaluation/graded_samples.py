"""Sampling and grading one checkpoint's responses to one benchmark, with any engine; a kill loses no graded sample."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rpg.evaluation.engines.protocol import Completion, Engine, Request
from rpg.rewards import Grading, Item
from rpg.rewards.scoring import Answered, Scorer
from rpg.store.atomic_files import readable
from rpg.store.samples import EVAL_COLUMNS, REWARD_COLUMNS
from rpg.tasks import Problem

_FLUSH_ROWS = 64
_FLUSH_SECONDS = 10.0
"""Samples are graded and written to disk in batches of this size, or after this time."""
_SAY_SECONDS = 10.0


@dataclass(frozen=True)
class Progress:
    """The progress of an evaluation. Counts include samples of earlier attempts, rates do not."""

    done: int
    total: int
    tokens: int
    """Response tokens of this attempt."""
    seconds: float
    fresh: int
    """Samples of this attempt."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None before the first sample."""
        return (self.total - self.done) * self.seconds / self.fresh if self.fresh else None

    def __str__(self) -> str:
        left = self.seconds_left
        shown = "" if left is None else f", {int(left) // 60}:{int(left) % 60:02d} left"
        pace = f", {self.tokens_per_second:.0f} tokens/s" if self.fresh else ""
        return f"{self.done}/{self.total} samples{pace}{shown}"


def progress_lines(name: str, say: Callable[[str], None]) -> Callable[[Progress], None]:
    """Report the progress of an evaluation from time to time, and at its end."""
    last = 0.0

    def tell(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > _SAY_SECONDS or progress.done == progress.total:
            last = time.monotonic()
            say(f"{name}: {progress}")

    return tell


def evaluate_problems(
    engine: Engine,
    problems: Sequence[Problem],
    *,
    samples_per_problem: int,
    seed: int,
    scorer: Scorer,
    partial: Partial | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[dict[str, Any]]:
    """One row per sample, with the columns of rpg.store.run_folder.EVAL_COLUMNS, in the order of problems and samples.

    The engine must have a model. Greedy sampling (temperature 0) takes one sample per problem. Sample k of a problem
    depends only on the seed, the problem's id and k: a rerun, another order of problems or more samples per problem give
    the same ones. Samples in `partial` are not drawn again. Raises DataError: a prompt is too long; GradingError,
    RewardError: answers cannot be graded; StoreError: `partial` cannot be written.
    """
    count = 1 if engine.sampling.temperature == 0 else samples_per_problem
    samples = [(problem, k) for problem in problems for k in range(count)]
    rows = {} if partial is None else dict(partial.rows)
    missing = [(p, k) for p, k in samples if (p.id, k) not in rows]
    requests = [request(problem, k, seed) for problem, k in missing]
    began = flushed = time.monotonic()
    tokens = 0
    ungraded: list[tuple[int, Completion]] = []

    def tell() -> None:
        if progress is not None:
            fresh = len(missing) - sum((p.id, k) not in rows for p, k in missing)
            done = len(samples) - len(missing) + fresh
            progress(Progress(done, len(samples), tokens, time.monotonic() - began, fresh))

    def flush() -> None:
        graded = _grade([(*missing[i], completion) for i, completion in ungraded], scorer)
        if partial is not None:
            partial.add(graded)
        rows.update({(row["problem_id"], row["sample"]): row for row in graded})
        ungraded.clear()
        tell()

    tell()
    for finished in engine.complete(requests) if requests else ():
        ungraded += finished
        tokens += sum(len(completion.ids) for _, completion in finished)
        if len(ungraded) >= _FLUSH_ROWS or time.monotonic() - flushed > _FLUSH_SECONDS:
            flush()
            flushed = time.monotonic()
    if ungraded:
        flush()
    return [rows[problem.id, k] for problem, k in samples]


def graded_again(rows: Sequence[dict[str, Any]], grader: Grading) -> list[dict[str, Any]]:
    """Stored samples with the grades of this grader. Raises GradingError: answers cannot be graded."""
    grades = grader.grade([Item(row["response"], row["answer"], row["truncated"]) for row in rows])
    return [{**row, **asdict(grade)} for row, grade in zip(rows, grades, strict=True)]


def request(problem: Problem, k: int, seed: int) -> Request:
    return Request(problem.given(), (seed, "evaluation", problem.id, k))


def _grade(samples: Sequence[tuple[Problem, int, Completion]], scorer: Scorer) -> list[dict[str, Any]]:
    answered = [
        Answered(text, len(ids), truncated, problem.answer, problem.asked(), problem.columns)
        for problem, _, (text, ids, truncated) in samples
    ]
    rows = []
    for (problem, sample, completion), scored in zip(samples, scorer.score(answered), strict=True):
        row = {
            "problem_id": problem.id,
            "sample": sample,
            "problem": problem.text,
            "answer": problem.answer,
            "response": scorer.turn(completion.text).encode("utf-8", "replace").decode("utf-8"),
            "extracted": scored.grade.extracted,
            "correct": scored.grade.correct,
            "reason": scored.grade.reason,
            "tokens": len(completion.ids),
            "truncated": completion.truncated,
        }
        if not scorer.plain:
            row |= {"reward": scored.reward, "rewards": json.dumps(scored.parts)}
        rows.append(row)
    return rows


Key = tuple[str, int]
"""(problem id, sample)."""


class Partial:
    """A file of JSON lines: the evaluation's `identity`, then a row per graded sample, flushed to disk. `rows` are
    those that were there when it was opened.

    Rows of another identity (other weights, problems or settings) are discarded; a torn last line is ignored.
    """

    def __init__(self, path: Path, identity: str):
        self.path = path
        self.rows: dict[Key, dict[str, Any]] = {}
        with readable("read", path):
            keep = self._read(identity)
        with readable("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not keep:
                path.write_text(json.dumps({"identity": identity}) + "\n", encoding="ascii")

    def _read(self, identity: str) -> bool:
        """Read the existing rows; False if the file must start anew."""
        if not self.path.exists():
            return False
        lines = self.path.read_bytes().split(b"\n")
        if _object(lines[0]) != {"identity": identity}:
            return False
        for line in lines[1:]:
            row = _object(line)
            if row is not None and set(row) - set(REWARD_COLUMNS) == set(EVAL_COLUMNS):
                self.rows[row["problem_id"], row["sample"]] = row
        if lines[-1]:  # torn: the next row must start on a new line
            with open(self.path, "ab") as handle:
                handle.write(b"\n")
        return True

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append graded samples; when this returns they are on disk."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        with readable("write", self.path), open(self.path, "ab") as handle:
            handle.write(text.encode("ascii"))
            handle.flush()
            os.fsync(handle.fileno())

    def know(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add samples that are stored elsewhere and need not be drawn again."""
        for row in rows:
            self.rows.setdefault((row["problem_id"], row["sample"]), row)

    def remove(self) -> None:
        """Delete the file, when the evaluation is finished and its samples are stored."""
        self.path.unlink(missing_ok=True)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
