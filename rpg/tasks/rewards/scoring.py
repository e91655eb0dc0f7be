"""From responses to what they earn: the verifier's verdict and every part of the reward, the same
on both back ends."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

from rpg.config.code import Source, digest, kept_source
from rpg.config.reward import (
    CorrectnessReward,
    EnvironmentReward,
    FormatReward,
    LengthReward,
    ModelReward,
    PythonReward,
    RewardSection,
)
from rpg.config.task import GymVerifier, RewardVerifier, VerifierSection
from rpg.system import patterns
from rpg.tasks.rewards.function_calls import Batch
from rpg.tasks.rewards.function_process import FunctionReward, RewardError
from rpg.tasks.rewards.graders import grader_for
from rpg.tasks.rewards.grades import Grade, Grading, Item

Sources = Mapping[str, Sequence[Mapping[str, str]]]
"""Name of a part of the reward -> the modules its function runs from, as a manifest keeps them
(rpg.config.code)."""
SCORE = "answer_score"
"""Among the parts of a reward: what a verifier with scores gave the answer."""
ERROR = "grading_errors"
"""Among the parts of a reward: 1 where a verdict was turned on purpose, else 0."""


class Answered(NamedTuple):
    """A response with what it answers."""

    response: str
    tokens: int
    truncated: bool
    """It was cut off by the length limit."""
    answer: str
    """The gold answer."""
    prompt: Any = ""
    """As the data have it: text, or a list of messages."""
    columns: Mapping[str, Any] = {}
    """The other columns of its row."""
    last: str | None = None
    """The last turn, which is graded, of a response in which an environment has turns."""
    earned: float | None = None
    """What the environment's `get_reward` returned."""
    error_draw: float | None = None
    """In a training with errors of grading (rpg.config.reward.Corruption): a number from 0 to 1
    below whose rate the verdict is turned. None: the verdict stands, as in every evaluation."""


Judge = Callable[[Sequence[Answered]], Sequence[float]]
"""A reward model: its value of each response."""


@dataclass(frozen=True)
class Scored:
    """`reward` is the weighted sum of `parts`; a part is None where its function does not apply to
    the response."""

    reward: float
    grade: Grade
    parts: dict[str, float | None]


class Scorer(AbstractContextManager["Scorer"]):
    """Scores responses; keeps its processes and what the verifier has decided. A context manager,
    or to be closed."""

    def __init__(
        self,
        verifier: VerifierSection,
        reward: Sequence[RewardSection] = (CorrectnessReward(),),
        *,
        max_response_tokens: int = 0,
        sources: Sources | None = None,
        models: Callable[[ModelReward], Judge] | None = None,
        workers: int = 1,
        prefix: str = "",
        prefix_every_turn: bool = False,
    ):
        """`prefix` is how the assistant's first turn begins, or every one: the whole turn is
        scored. `max_response_tokens` is where a length reward is zero by default; `workers` compare
        mathematical answers."""
        self.reward = tuple(reward)
        self.limit = max_response_tokens
        self.prefix = prefix
        self._every_turn = prefix_every_turn
        right_or_wrong = len(self.reward) == 1 and isinstance(self.reward[0], CorrectnessReward)
        self.plain = right_or_wrong and not isinstance(verifier, GymVerifier)
        self._threshold = verifier.at_least if isinstance(verifier, RewardVerifier) else None
        self._grader: Grading = grader_for(verifier, workers)
        self._functions = {
            part.called(): FunctionReward(part, _sources(part, sources))
            for part in self.reward
            if isinstance(part, PythonReward)
        }
        self._judges: dict[str, Judge] = {}
        for part in self.reward:
            if isinstance(part, ModelReward):
                if models is None:
                    raise RewardError("reward: a reward model cannot be used here")
                self._judges[part.called()] = models(part)

    def score(self, answered: Sequence[Answered]) -> list[Scored]:
        """What each response earns, in order. Raises RewardError: a function failed; GradingError:
        the grader failed."""
        items = [Item(self._graded_text(a), a.answer, a.truncated, a.columns) for a in answered]
        grades = self._grader.grade(items)
        answered = [a._replace(response=self.prefix + a.response) for a in answered]
        totals = [0.0] * len(answered)
        parts: list[dict[str, float | None]] = []
        for grade in grades:
            parts.append({} if grade.score is None else {SCORE: grade.score})
        for section in self.reward:
            if isinstance(section, CorrectnessReward):
                _note_errors(section, answered, grades, parts)
            for name, weight, values in self._values(section, answered, grades):
                for row, value in enumerate(values):
                    parts[row][name] = value
                    totals[row] += weight * (value or 0.0)
        if self._threshold is not None:
            right = f"right from {self._threshold:g}"
            grades = [
                Grade(None, total >= self._threshold, f"reward {total:.6g}, {right}")
                for total in totals
            ]
        return [Scored(*columns) for columns in zip(totals, grades, parts, strict=True)]

    def training_parts(self, scored: Sequence[Scored]) -> dict[str, list[float]]:
        """Each part's value of each response, for the metrics of a training step. None where the
        reward is nothing but the verifier's verdict."""
        corrupted = any(ERROR in response.parts for response in scored)
        return {} if self.plain and not corrupted else parts_of(scored)

    def _graded_text(self, answered: Answered) -> str:
        """The last turn, with the prefix that it began with."""
        last = answered.response if answered.last is None else answered.last
        has_prefix = self._every_turn or last == answered.response
        return self.prefix + last if has_prefix else last

    def _values(
        self, part: RewardSection, answered: Sequence[Answered], grades: Sequence[Grade]
    ) -> list[tuple[str, float, Sequence[float | None]]]:
        """(name, weight, value of each response) of one part; several where a function returns
        named values."""
        name = part.called()
        if isinstance(part, PythonReward):
            named: list[tuple[str, float, Sequence[float | None]]] = []
            for key, column in self._functions[name].score(_batch(answered)).items():
                weight = part.weight * part.weights.get(key, 1.0)
                named.append((f"{name}_{key}" if key else name, weight, column))
            return named
        values: Sequence[float | None]
        if isinstance(part, CorrectnessReward):
            values = [
                _wrongly_judged(part, grade) if _is_error(part, a, grade) else _between(part, grade)
                for a, grade in zip(answered, grades, strict=True)
            ]
        elif isinstance(part, EnvironmentReward):
            values = [a.earned for a in answered]
        elif isinstance(part, FormatReward):
            values = [float(_matches(part.pattern, a.response)) for a in answered]
        elif isinstance(part, LengthReward):
            zero = part.zero or self.limit
            values = [length_reward(a.tokens, part.full, zero) for a in answered]
        else:
            values = self._judges[name](answered)
        return [(name, part.weight, values)]

    def reread(self, pairs: Sequence[tuple[str, str]]) -> list[bool | None]:
        """A second reader's verdicts on (gold, answer) that the verifier could not read
        (rpg.store.samples.unread_form)."""
        return self._grader.reread(pairs)

    def close(self) -> None:
        """End what it has started."""
        self._grader.close()
        for function in self._functions.values():
            function.close()

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _between(part: CorrectnessReward, grade: Grade) -> float:
    """Right or wrong, or what lies between them at the verifier's score."""
    if grade.score is None:
        return part.right if grade.correct else part.wrong
    return part.wrong + (part.right - part.wrong) * grade.score


def _is_error(part: CorrectnessReward, answered: Answered, grade: Grade) -> bool:
    """Whether the verdict on this response is turned in the reward."""
    if answered.error_draw is None:
        return False
    errors = part.corrupt
    rate = errors.false_negative if grade.correct else errors.false_positive
    return answered.error_draw < rate


def _wrongly_judged(part: CorrectnessReward, grade: Grade) -> float:
    """The value of the other verdict."""
    return part.wrong if grade.correct else part.right


def _note_errors(
    part: CorrectnessReward,
    answered: Sequence[Answered],
    grades: Sequence[Grade],
    parts: Sequence[dict[str, float | None]],
) -> None:
    """Add to the parts of each response whether its verdict was turned, where that can be."""
    for a, grade, values in zip(answered, grades, parts, strict=True):
        if a.error_draw is not None:
            values[ERROR] = float(_is_error(part, a, grade))


def parts_of(scored: Sequence[Scored]) -> dict[str, list[float]]:
    """Each part's value of each response; NaN where it does not apply."""
    names = dict.fromkeys(name for response in scored for name in response.parts)
    values = {name: [response.parts.get(name) for response in scored] for name in names}
    return {name: [nan if v is None else v for v in values[name]] for name in names}


def length_reward(tokens: int, full: int, zero: int) -> float:
    """1 up to `full` tokens, then linearly down to 0 at `zero` tokens."""
    if tokens <= full:
        return 1.0
    return max(0.0, (zero - tokens) / (zero - full)) if zero > full else 0.0


def overlong_punishment(tokens: int, limit: int, buffer_fraction: float, factor: float) -> float:
    """Soft overlong penalty, 0 or negative (DAPO, arXiv 2503.14476, eq. 13; paper App. H): zero up
    to `limit - buffer` tokens, where the buffer is `buffer_fraction * limit`, then linear down to
    -factor at `limit`.

    Raises ValueError: limit < 1 or buffer_fraction outside (0, 1].
    """
    if limit < 1 or not 0 < buffer_fraction <= 1:
        raise ValueError(
            f"limit {limit} must be positive and buffer_fraction {buffer_fraction} in (0, 1]"
        )
    buffer = buffer_fraction * limit
    return -factor * min(max(tokens - (limit - buffer), 0.0) / buffer, 1.0)


def _matches(pattern: str, response: str) -> bool:
    """Whether the pattern is found."""
    try:
        return patterns.search(pattern, response) is not None
    except patterns.TooSlow as slow:
        raise RewardError(f"reward: format: the pattern {pattern!r} {slow}") from None


def _batch(answered: Sequence[Answered]) -> Batch:
    names = dict.fromkeys(name for response in answered for name in response.columns)
    columns = {name: [response.columns.get(name) for response in answered] for name in names}
    columns["answer"] = [a.answer for a in answered]
    prompts = [a.prompt for a in answered]
    responses = [a.response for a in answered]
    answers = [a.columns.get("answer", a.answer) for a in answered]
    return Batch(prompts, responses, [a.tokens for a in answered], columns, answers)


def _sources(part: PythonReward, kept: Sources | None) -> Sequence[Mapping[str, str]]:
    """Those that the run's manifest keeps; without a manifest, those on disk."""
    if kept is None:
        return kept_source(part)
    if part.called() not in kept:
        raise RewardError(f"reward: {part.function}: the run's manifest does not hold its source")
    sources = kept[part.called()]
    if part.digest not in (None, digest([Source(**source) for source in sources])):
        raise RewardError(
            f"reward: {part.function}: its source in the run's manifest is not the one it "
            "was planned with"
        )
    return sources
