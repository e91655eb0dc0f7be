"""One checkpoint's responses to one benchmark: those that are stored, and those that are still to
be drawn; then graded."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rpg.evaluation.engines.protocol import Completion, Engine, Request
from rpg.store.draws import Draw, Draws, Key, digest
from rpg.store.samples import CLUSTER, SECOND, TURNS, unread_form
from rpg.tasks import Problem
from rpg.tasks.rewards.scoring import Answered, Scorer

_FLUSH_ROWS = 64
_FLUSH_SECONDS = 10.0
"""Samples are written to disk in batches of this size, or after this time."""
_WAIT_SECONDS = 1.0
"""How often an evaluation that waits for another one's samples looks for them."""
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
    engine: Callable[[], Engine],
    problems: Sequence[Problem],
    *,
    samples_per_problem: int,
    seed: int,
    scorer: Scorer,
    draws: Draws,
    graded_rows: Iterable[Mapping[str, Any]] = (),
    progress: Callable[[Progress], None] | None = None,
) -> list[dict[str, Any]]:
    """One row per sample, with the columns of rpg.store.samples.EVAL_COLUMNS, in the order of
    problems and samples.

    Samples in `draws` are not drawn again, nor those of the same text among `graded_rows`, which an
    older version stored; what is missing is added there before it is graded. `engine` gives one
    that has the model, and is not called if nothing is missing. Sample k of a problem depends only
    on the seed, the problem's id and k: another order of problems or more samples per problem give
    the same ones. Raises DataError: a prompt is too long; GradingError, RewardError: answers cannot
    be graded; StoreError: samples cannot be read or written.
    """
    wanted = requests(problems, samples_per_problem, seed, draws)
    keys = {(key.problem, key.sample): key for key in wanted}
    stored = draws.read()
    texts = {problem.id: problem.text for problem in problems}
    older = {
        key: Draw(row["response"].removeprefix(scorer.prefix), row["tokens"], row["truncated"])
        for row in graded_rows
        if row["problem"] == texts.get(row["problem_id"]) and TURNS not in row
        if (key := keys.get((row["problem_id"], row["sample"]))) and key not in stored
    }
    if older:
        draws.add(older)
    drawn = draw_missing(engine, wanted, draws, progress)
    numbered = [(problem, k) for problem in problems for k in range(samples_per_problem)]
    return _grade([(problem, k, drawn[keys[problem.id, k]]) for problem, k in numbered], scorer)


def draw_missing(
    engine: Callable[[], Engine],
    wanted: Mapping[Key, Request],
    draws: Draws,
    progress: Callable[[Progress], None] | None = None,
) -> Mapping[Key, Draw]:
    """Everything that is wanted: what is stored, what is drawn here, and what other processes draw
    meanwhile."""
    began = time.monotonic()
    tokens = 0
    fresh = 0

    def tell() -> None:
        if progress is not None:
            done = sum(key in stored for key in wanted)
            progress(Progress(done, len(wanted), tokens, time.monotonic() - began, fresh))

    def keep(batch: dict[Key, Draw]) -> None:
        nonlocal tokens, fresh
        draws.add(batch)
        tokens = tokens + sum(draw.tokens for draw in batch.values())
        fresh = fresh + len(batch)
        batch.clear()
        tell()

    stored = draws.read()
    tell()
    while missing := [key for key in wanted if key not in stored]:
        with draws.claimed({key.problem for key in missing}) as claimed:
            stored = (
                draws.read()
            )  # with what another process had finished before it gave up its claim
            missing = [key for key in missing if key not in stored and key.problem in claimed]
            batch: dict[Key, Draw] = {}
            flushed = time.monotonic()
            for finished in engine().complete([wanted[key] for key in missing]) if missing else ():
                batch |= {missing[index]: as_draw(completion) for index, completion in finished}
                if len(batch) >= _FLUSH_ROWS or time.monotonic() - flushed > _FLUSH_SECONDS:
                    keep(batch)
                    flushed = time.monotonic()
            if batch:
                keep(batch)
        if not missing:  # other processes draw the rest
            time.sleep(_WAIT_SECONDS)
            stored = draws.read()
            tell()
    return stored


def as_draw(completion: Completion) -> Draw:
    return Draw(
        response=completion.text,
        tokens=completion.written,
        truncated=completion.truncated,
        turns=completion.turns,
        earned=completion.earned,
        ids=completion.ids,
        heard=completion.heard,
        prompt_ids=completion.prompt_ids,
    )


def requests(
    problems: Sequence[Problem], number: int, seed: int, draws: Draws
) -> dict[Key, Request]:
    """What an engine is asked for, in the order of problems and samples, to be stored in
    `draws`."""
    asked = [
        Request(
            problem.given(), (seed, "evaluation", problem.id, k), problem.columns, draws.with_turns
        )
        for problem in problems
        for k in range(number)
    ]
    return {stored_as(request): request for request in asked}


def stored_as(request: Request) -> Key:
    given = [request.prompt, request.columns] if request.with_turns else request.prompt
    return Key(request.key[2], digest(given), request.key[3])


def _grade(samples: Sequence[tuple[Problem, int, Draw]], scorer: Scorer) -> list[dict[str, Any]]:
    answered = []
    for p, _, draw in samples:
        last = draw.turns[-1] if draw.turns else None
        answered.append(Answered(*draw[:3], p.answer, p.asked(), p.columns, last, draw.earned))
    scores = scorer.score(answered)
    unread = {
        index: (samples[index][0].answer, scored.grade.extracted or "")
        for index, scored in enumerate(scores)
        if unread_form(scored.grade.correct, scored.grade.reason)
    }
    second = dict(zip(unread, scorer.reread([*unread.values()]), strict=True))
    clustered = any(problem.cluster is not None for problem, _, _ in samples)
    rows = []
    for index, ((problem, sample, draw), scored) in enumerate(zip(samples, scores, strict=True)):
        row = {
            "problem_id": problem.id,
            "sample": sample,
            "problem": problem.text,
            "answer": problem.answer,
            "response": (scorer.prefix + draw.response).encode("utf-8", "replace").decode("utf-8"),
            "extracted": scored.grade.extracted,
            "correct": scored.grade.correct,
            "reason": scored.grade.reason,
            "tokens": draw.tokens,
            "truncated": draw.truncated,
        }
        if unread:
            row[SECOND] = second.get(index)
        if clustered:
            row[CLUSTER] = problem.cluster
        if draw.turns is not None:
            row[TURNS] = json.dumps(draw.turns)
        if not scorer.plain:
            row |= {"reward": scored.reward, "rewards": json.dumps(scored.parts)}
        rows.append(row)
    return rows
