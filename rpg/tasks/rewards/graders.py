"""The grader of each verifier, and the name of its rules.

Mathematical answers: what text and plain numbers decide is decided here, the rest in worker
processes.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import version
from typing import Any

from rpg.answers import numbers
from rpg.answers.comparison import Verdict, quick
from rpg.answers.extraction import answer_line, boxed_answer
from rpg.config.section import registered
from rpg.config.task import (
    VERIFIERS,
    GymVerifier,
    MarkerVerifier,
    MathVerifier,
    RewardVerifier,
    VerifierSection,
)
from rpg.tasks.rewards import math_dapo
from rpg.tasks.rewards.comparison_pool import CPU_SECONDS, MEMORY_BYTES, GradingError, Pool
from rpg.tasks.rewards.grades import Gradable, Grade, Grading, Item

MAX_ANSWER_CHARACTERS = 2_000
"""Longer answers are wrong unread. The longest gold answer of the shipped benchmarks has 210
characters."""
_REMEMBERED = 200_000
LINES = "lines-11"
"""Answer lines read by the grammar of rpg.answers.statements. Raise the number when a verdict may
change."""
_NUMBER = re.compile(
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|(?:\d{1,50}(?:\.\d{0,50})?|\.\d{1,50})(?:/\d{1,50})?)"
)
NUMBERS = "marker-number-2"
"""What `match: number` reads as a number. Raise the number when a verdict may change."""
_EDGES = " \t\r\n$*_`"
_TYPESET = re.compile(
    r"\\\((.*)\\\)|\\\[(.*)\\\]"
    r"|\\(?:boxed|fbox|text|textbf|textit|mathrm|mathbf|mathit)\{([^{}]*|.*\})\}"
)
RECIPE = f"math_dapo-{math_dapo.VERSION}"


def extract(
    verifier: MathVerifier, response: str, truncated: bool = False
) -> tuple[str | None, str]:
    r"""The answer as written (None where there is none), and a reason: where it was found, or why
    not.

    The recipe's rule is the last `Answer:` line. With `fallback: boxed`, the last `\boxed{...}`
    counts where there is no such line.
    """
    boxed = verifier.fallback == "boxed"
    answer, ended = answer_line(response, boxed)
    if boxed and not answer and (box := boxed_answer(response)) is not None:
        return box.strip(), "boxed"
    if answer is not None:
        if truncated and not ended:
            return answer, "answer cut off"
        return (answer, "answer line") if answer else (None, "empty answer line")
    return None, "cut off before an answer" if truncated else "no answer line"


class Grader(Grading):
    """Grades mathematical answers; remembers its verdicts, so that equal pairs cost nothing.

    Its worker processes start when an answer first needs them.
    """

    def __init__(
        self,
        verifier: MathVerifier | None = None,
        workers: int = 1,
        cpu_seconds: float = CPU_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
    ):
        self.verifier = verifier or MathVerifier()
        self._pool = Pool(workers, cpu_seconds, memory_bytes)
        self._verdicts: dict[tuple[str, str], Verdict] = {}

    def grade(self, items: Iterable[Gradable]) -> list[Grade]:
        """Grades in the order of `items`. Raises GradingError: the worker processes cannot be
        started."""
        extracted: list[tuple[str | None, str, tuple[str, str] | None]] = []
        for response, truth, truncated, _ in (Item(*item) for item in items):
            answer, where = extract(self.verifier, response, truncated)
            pair = None
            if answer is not None and where != "answer cut off":
                pair = (truth, " ".join(answer.split()))
            extracted.append((answer, where, pair))
        self._decide({pair for _, _, pair in extracted if pair is not None} - self._verdicts.keys())
        grades = []
        for answer, where, pair in extracted:
            if pair is None:
                grades.append(Grade(_printable(answer), False, where))
                continue
            right, why = self._verdicts[pair]
            grades.append(Grade(_printable(answer), right, f"{where}: {why}"))
        if len(self._verdicts) > _REMEMBERED:
            self._verdicts.clear()
        return grades

    def reread(self, pairs: Sequence[tuple[str, str]]) -> list[bool | None]:
        """By the computer algebra system, in the same processes and within the same limits."""
        distinct = list(dict.fromkeys(pairs))
        verdicts = self._pool.ask([(*pair, 0.0, True) for pair in distinct])
        each = {
            pair: None if why else right
            for pair, (right, why) in zip(distinct, verdicts, strict=True)
        }
        return [each[pair] for pair in pairs]

    def _decide(self, pairs: Iterable[tuple[str, str]]) -> None:
        hard: list[tuple[str, str]] = []
        tolerance = self.verifier.relative_tolerance
        for gold, answer in sorted(pairs):
            if len(answer) > max(MAX_ANSWER_CHARACTERS, 4 * len(gold)):
                self._verdicts[gold, answer] = (
                    False,
                    f"longer than {MAX_ANSWER_CHARACTERS} characters",
                )
                continue
            verdict = quick(gold, answer, tolerance)
            if verdict is None:
                hard.append((gold, answer))
            else:
                self._verdicts[gold, answer] = verdict
        if hard:
            verdicts = self._pool.ask([(*pair, tolerance, False) for pair in hard])
            self._verdicts.update(zip(hard, verdicts, strict=True))

    def close(self) -> None:
        """End the workers."""
        self._pool.close()


class Each(Grading):
    """Grades one response after another, without processes, by a function of its item."""

    def __init__(self, grade: Callable[[Item], Grade]):
        self._grade = grade

    def grade(self, items: Iterable[Gradable]) -> list[Grade]:
        return [self._grade(Item(*item)) for item in items]


GYM_SECONDS = 10.0
GYM_BYTES = 2 << 30
"""Processor time and memory for one answer to a problem of Reasoning Gym, which is made again for
it."""


class GymGrader(Grading):
    """Grades by the `score_answer` of the data set that made the problem, in worker processes."""

    def __init__(self, verifier: GymVerifier, workers: int = 1):
        self.verifier = verifier
        self._pool = Pool(workers, GYM_SECONDS, GYM_BYTES, "rpg.tasks.rewards.gym_worker")

    def grade(self, items: Iterable[Gradable]) -> list[Grade]:
        """Grades in the order of `items`. Raises GradingError: the workers cannot be started, or a
        problem's columns do not name the data set that made it."""
        gradables = [Item(*item) for item in items]
        marker = self.verifier.marker
        answers = [
            after_marker(marker, i.response, i.truncated, "\n" in i.truth) for i in gradables
        ]
        asked = [number for number, (answer, why) in enumerate(answers) if answer and not why]
        if any("dataset" not in gradables[number].columns for number in asked):
            raise GradingError(
                "verifier reasoning_gym: needs the columns of problems of task.type: reasoning_gym"
            )
        scores = self._pool.ask(
            [(dict(gradables[number].columns), answers[number][0]) for number in asked]
        )
        scored = dict(zip(asked, scores, strict=True))
        grades = []
        for number, (answer, why) in enumerate(answers):
            score, reason = scored.get(number, (0.0, why))
            if score is None:
                raise GradingError(f"verifier reasoning_gym: {reason}")
            grades.append(
                Grade(_printable(answer), score >= self.verifier.at_least, reason, float(score))
            )
        return grades

    def close(self) -> None:
        self._pool.close()


def grade(verifier: MarkerVerifier, response: str, truth: str, truncated: bool = False) -> Grade:
    """Compare what `after_marker` finds in `response` with `truth`."""
    answer, why = after_marker(verifier.marker, response, truncated)
    if answer is None or why:
        return Grade(answer, False, why)
    if verifier.match == "number":
        stated = number(answer)
        expected = number(truth)
        if expected is not None:
            if stated is None:
                return Grade(answer, False, "not a number")
            return Grade(answer, stated == expected, "correct" if stated == expected else "wrong")
    right = answer in truth.split() if verifier.match == "any" else answer == truth.strip()
    return Grade(answer, right, "correct" if right else "wrong")


def after_marker(
    marker: str, response: str, truncated: bool, lines: bool = False
) -> tuple[str | None, str]:
    """What follows the last marker, up to the end of its line (`lines`: of the response), and why
    it does not count, if so. In a response that was cut off by the length limit (`truncated`), an
    answer that reaches the cut is incomplete.
    """
    _, separator, tail = response.rpartition(marker)
    if not separator:
        return None, "cut off before an answer" if truncated else f"no {marker!r}"
    line, newline, _ = (tail, "", "") if lines else tail.partition("\n")
    if truncated and not newline:
        return line.strip(), "answer cut off"
    return line.strip(), "" if line.strip() else "empty answer"


def number(text: str) -> Fraction | None:
    r"""The value of `12`, `-0.50`, `1/2`, `1,000` (also before a full stop, within `$ $`, `\( \)`,
    `\boxed{}`, or set in bold); None for anything else."""
    if len(text) > MAX_ANSWER_CHARACTERS:
        return None
    bare = re.sub(r"(?<!\d) | (?!\d)| (?=\d{3}(?!\d))", "", _unwrapped(text))
    value = numbers.number(bare) if _NUMBER.fullmatch(bare) else None
    return value.value if value else None


def _unwrapped(text: str) -> str:
    """Without what only typesets the whole of it."""
    while True:
        bare = text.strip(_EDGES).removesuffix(".").strip(_EDGES).removeprefix("\\$").lstrip()
        around = _TYPESET.fullmatch(bare)
        if not around:
            return bare
        text = next(inner for inner in around.groups() if inner is not None)


def _by_recipe(item: Item) -> Grade:
    """By the recipe's own rule (rpg.tasks.rewards.math_dapo), which takes no notice of
    truncation."""
    grade = math_dapo.grade(item.response, item.truth)
    return replace(grade, extracted=_printable(grade.extracted))


_GRADERS: dict[type[VerifierSection], Callable[[Any, int], Grading]] = {
    MarkerVerifier: lambda verifier, _workers: Each(lambda item: grade(verifier, *item[:3])),
    MathVerifier: lambda verifier, workers: (
        Each(_by_recipe) if verifier.rules == "recipe" else Grader(verifier, workers)
    ),
    GymVerifier: GymGrader,
    # No answer is right or wrong by itself: the reward decides (rpg.tasks.rewards.scoring).
    RewardVerifier: lambda _verifier, _workers: Each(
        lambda _: Grade(None, False, "not graded by itself")
    ),
}
registered("verifier", VERIFIERS.values(), _GRADERS, "rpg/tasks/rewards/graders.py")


def grader_for(verifier: VerifierSection, workers: int = 1) -> Grading:
    """The grader that a verifier asks for."""
    return _GRADERS[type(verifier)](verifier, workers)


def _printable(text: str | None) -> str | None:
    """What can be stored: no half surrogate pairs, no NUL, and only the beginning of a monstrous
    answer."""
    if text is None:
        return None
    text = text[:MAX_ANSWER_CHARACTERS].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")


def rules_name(verifier: VerifierSection) -> str:
    """Name and version of a verifier's rules, with settings that are not the default: `lines-11`,
    `math_dapo-0.9.1`."""
    if isinstance(verifier, MarkerVerifier):
        return NUMBERS if verifier.match == "number" else f"marker-{verifier.match}"
    if isinstance(verifier, RewardVerifier):
        return f"reward>={verifier.at_least:g}"
    if isinstance(verifier, GymVerifier):
        return f"reasoning-gym-{version('reasoning-gym')}>={verifier.at_least:g}"
    if not isinstance(verifier, MathVerifier):
        return verifier.type
    if verifier.rules == "recipe":
        return RECIPE
    boxed = "+boxed" if verifier.fallback == "boxed" else ""
    tolerance = f"+tolerance-{verifier.relative_tolerance:g}" if verifier.relative_tolerance else ""
    return LINES + boxed + tolerance
