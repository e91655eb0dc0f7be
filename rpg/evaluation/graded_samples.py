"""One checkpoint's responses to one benchmark: those that are stored, and those that are still to
be drawn; then graded."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rpg.evaluation.engines.protocol import Completion, Engine, Request
from rpg.store.draws import Draw, Draws, Key, digest
from rpg.store.live_status import clock
from rpg.store.samples import CLUSTER, SECOND, TURNS, unread_form
from rpg.tasks import Problem
from rpg.tasks.rewards.scoring import Answered, Scored, Scorer

_FLUSH_ROWS = 64
_FLUSH_SECONDS = 10.0
"""Samples are written to disk in batches of this size, or after this time."""
_WAIT_SECONDS = 1.0
"""How often an evaluation that waits for another one's samples looks for them."""
_TELL_SECONDS = 1.0
"""How often responses that are drawn together are looked at."""
_SAY_SECONDS = 10.0
"""How often a line is printed in the first minute."""
_SAY_LATER_SECONDS = 60.0


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
    ended: int = 0
    """Of the responses that are drawn together now, those that have ended."""
    length: int = 0
    """Tokens of the others so far; 0 where the engine hands responses out one by one."""
    limit: int = 0
    """Tokens of a response at most."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None before the first sample."""
        return (self.total - self.done) * self.seconds / self.fresh if self.fresh else None

    @property
    def at_most_left(self) -> float | None:
        """Seconds until the first responses have ended, if they get as long as they may; None where
        that is not known."""
        return (self.limit - self.length) * self.seconds / self.length if self.length else None

    def __str__(self) -> str:
        """`12/40 samples, 63 tokens/s, 2:05, 4:50 left`; before any sample is finished, how far the
        first are."""
        parts = [f"{self.done}/{self.total} samples"]
        if self.fresh:
            parts.append(f"{self.tokens_per_second:.0f} tokens/s")
        elif self.length:
            if self.ended:
                parts.append(f"{self.ended} more ended")
            parts.append(f"at token {self.length:,} of at most {self.limit:,}")
        if self.seconds >= 1:
            parts.append(clock(self.seconds))
        if self.seconds_left is not None:
            parts.append(f"{clock(self.seconds_left)} left")
        elif self.at_most_left is not None:
            parts.append(f"at most {clock(self.at_most_left)} left")
        return ", ".join(parts)


def progress_lines(name: str, say: Callable[[str], None]) -> Callable[[Progress], None]:
    """Report the progress of an evaluation from time to time (after a minute once a minute), and at
    its end."""
    last = 0.0

    def tell(progress: Progress) -> None:
        nonlocal last
        pause = _SAY_SECONDS if progress.seconds < _SAY_LATER_SECONDS else _SAY_LATER_SECONDS
        if time.monotonic() - last > pause or progress.done == progress.total:
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
    older = _drawn_before(graded_rows, problems, keys, scorer.prefix)
    stored = draws.read()
    missing = {key: draw for key, draw in older.items() if key not in stored}
    if missing:
        draws.add(missing)
    drawn = draw_missing(engine, wanted, draws, progress)
    samples = []
    for problem in problems:
        for number in range(samples_per_problem):
            samples.append(Sample(problem, number, drawn[keys[problem.id, number]]))
    return _grade(samples, scorer)


@dataclass(frozen=True)
class Sample:
    """A response to a problem; `number` among the responses to it."""

    problem: Problem
    number: int
    draw: Draw


def _drawn_before(
    rows: Iterable[Mapping[str, Any]],
    problems: Sequence[Problem],
    keys: Mapping[tuple[str, int], Key],
    prefix: str,
) -> dict[Key, Draw]:
    """The responses of graded rows, by where they are stored; of other problems, or of turns,
    none."""
    texts = {problem.id: problem.text for problem in problems}
    found: dict[Key, Draw] = {}
    for row in rows:
        key = keys.get((row["problem_id"], row["sample"]))
        same_text = row["problem"] == texts.get(row["problem_id"])
        if key is not None and same_text and TURNS not in row:
            response = row["response"].removeprefix(prefix)
            found[key] = Draw(response, row["tokens"], row["truncated"])
    return found


def draw_missing(
    engine: Callable[[], Engine],
    wanted: Mapping[Key, Request],
    draws: Draws,
    progress: Callable[[Progress], None] | None = None,
) -> Mapping[Key, Draw]:
    """Everything that is wanted: what is stored, what is drawn here, and what other processes draw
    meanwhile."""
    collected = _Collected(wanted, draws, progress)
    while missing := collected.missing():
        with draws.claimed({key.problem for key in missing}) as claimed:
            # With what another process had finished before it gave up its claim.
            collected.read()
            ours = [key for key in collected.missing() if key.problem in claimed]
            if ours:
                collected.draw(engine(), ours)
        if not ours:  # other processes draw the rest
            time.sleep(_WAIT_SECONDS)
            collected.read()
            collected.tell()
    return collected.stored


class _Collected:
    """What is stored of what is wanted, and what this process has added to it."""

    def __init__(
        self,
        wanted: Mapping[Key, Request],
        draws: Draws,
        progress: Callable[[Progress], None] | None,
    ):
        self.wanted = wanted
        self.draws = draws
        self.progress = progress
        self.began = time.monotonic()
        self.tokens = 0
        self.fresh = 0
        self.read()
        self.tell()

    def read(self) -> None:
        self.stored = self.draws.read()

    def missing(self) -> list[Key]:
        return [key for key in self.wanted if key not in self.stored]

    def tell(self, ended: int = 0, length: int = 0, limit: int = 0) -> None:
        self.told = time.monotonic()
        if self.progress is not None:
            progress = Progress(
                done=sum(key in self.stored for key in self.wanted),
                total=len(self.wanted),
                tokens=self.tokens,
                seconds=self.told - self.began,
                fresh=self.fresh,
                ended=ended,
                length=length,
                limit=limit,
            )
            self.progress(progress)

    def draw(self, engine: Engine, keys: Sequence[Key]) -> None:
        """Draw these, and store them batch by batch."""
        batch: dict[Key, Draw] = {}
        flushed = time.monotonic()

        def underway(ended: int, length: int) -> None:
            if time.monotonic() - self.told > _TELL_SECONDS:
                self.tell(ended, length, engine.sampling.max_response_tokens)

        engine.tell = underway
        for finished in engine.complete([self.wanted[key] for key in keys]):
            for index, completion in finished:
                batch[keys[index]] = as_draw(completion)
            if len(batch) >= _FLUSH_ROWS or time.monotonic() - flushed > _FLUSH_SECONDS:
                self._add(batch)
                batch = {}
                flushed = time.monotonic()
        if batch:
            self._add(batch)

    def _add(self, batch: dict[Key, Draw]) -> None:
        self.draws.add(batch)
        self.tokens += sum(draw.tokens for draw in batch.values())
        self.fresh += len(batch)
        self.tell()


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
    asked: dict[Key, Request] = {}
    for problem in problems:
        prompt = problem.given()
        for sample in range(number):
            key = (seed, "evaluation", problem.id, sample)
            request = Request(prompt, key, problem.columns, draws.with_turns)
            asked[stored_as(request)] = request
    return asked


def stored_as(request: Request) -> Key:
    given = [request.prompt, request.columns] if request.with_turns else request.prompt
    return Key(request.key[2], digest(given), request.key[3])


def _grade(samples: Sequence[Sample], scorer: Scorer) -> list[dict[str, Any]]:
    """A row of each sample, graded."""
    scores = scorer.score([_answered(sample) for sample in samples])
    second = _second_verdicts(samples, scores, scorer)
    clustered = any(sample.problem.cluster is not None for sample in samples)
    rows = []
    for index, (sample, scored) in enumerate(zip(samples, scores, strict=True)):
        row = _row(sample, scored, scorer.prefix)
        if second:
            row[SECOND] = second.get(index)
        if clustered:
            row[CLUSTER] = sample.problem.cluster
        if sample.draw.turns is not None:
            row[TURNS] = json.dumps(sample.draw.turns)
        if not scorer.plain:
            row["reward"] = scored.reward
            row["rewards"] = json.dumps(scored.parts)
        rows.append(row)
    return rows


def _answered(sample: Sample) -> Answered:
    """What the scorer is told of a sample."""
    problem = sample.problem
    draw = sample.draw
    return Answered(
        response=draw.response,
        tokens=draw.tokens,
        truncated=draw.truncated,
        answer=problem.answer,
        prompt=problem.asked(),
        columns=problem.columns,
        last=draw.turns[-1] if draw.turns else None,
        earned=draw.earned,
    )


def _second_verdicts(
    samples: Sequence[Sample], scores: Sequence[Scored], scorer: Scorer
) -> dict[int, bool | None]:
    """A second reader's verdicts on the samples that the verifier could not read, by their
    place."""
    unread = {
        index: (samples[index].problem.answer, scored.grade.extracted or "")
        for index, scored in enumerate(scores)
        if unread_form(scored.grade.correct, scored.grade.reason)
    }
    return dict(zip(unread, scorer.reread([*unread.values()]), strict=True))


def _row(sample: Sample, scored: Scored, prefix: str) -> dict[str, Any]:
    """The columns that every row has."""
    response = prefix + sample.draw.response
    return {
        "problem_id": sample.problem.id,
        "sample": sample.number,
        "problem": sample.problem.text,
        "answer": sample.problem.answer,
        "response": response.encode("utf-8", "replace").decode("utf-8"),
        "extracted": scored.grade.extracted,
        "correct": scored.grade.correct,
        "reason": scored.grade.reason,
        "tokens": sample.draw.tokens,
        "truncated": sample.draw.truncated,
    }
