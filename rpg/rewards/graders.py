"""Responses in, grades out: extraction, a cheap path for what text and numbers decide, workers for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from rpg.answers.comparison import Verdict, quick
from rpg.answers.extraction import answer_line, last_box
from rpg.config.section import registered
from rpg.config.task import VERIFIERS, MarkerVerifier, MathVerifier, RewardVerifier, VerifierSection
from rpg.rewards import math_dapo
from rpg.rewards.comparison_pool import CPU_SECONDS, MEMORY_BYTES, Pool
from rpg.rewards.marker import Grade
from rpg.rewards.marker import grade as grade_marker

MAX_ANSWER_CHARACTERS = 2_000
"""Longer answers are wrong unread. The longest gold answer of the shipped benchmarks has 210 characters."""
_REMEMBERED = 200_000
LINES = "lines-2"
"""Answer lines read by the grammar of rpg.answers.statements. Raise the number when a verdict may change."""
RECIPE = f"math_dapo-{math_dapo.VERSION}"


class Item(NamedTuple):
    """A response to grade. `truncated`: it was cut off by the length limit, so an answer at its end is incomplete."""

    response: str
    truth: str
    truncated: bool = False


def extract(verifier: MathVerifier, response: str, truncated: bool = False) -> tuple[str | None, str]:
    r"""The answer as written (None where there is none), and a reason: where it was found, or why not.

    The recipe's rule is the last `Answer:` line. With `fallback: boxed`, the last `\boxed{...}` counts where there is
    no such line.
    """
    answer, ended = answer_line(response)
    if answer is not None:
        if truncated and not ended:
            return answer, "answer cut off"
        return (answer, "answer line") if answer else (None, "empty answer line")
    if verifier.fallback == "boxed":
        box = last_box(response)
        if box is not None:
            return box.strip(), "boxed"
    return None, "cut off before an answer" if truncated else "no answer line"


class Grader:
    """Grades mathematical answers; keeps its worker processes and what it has decided, so that equal pairs cost nothing.

    Use it as a context manager or :meth:`close` it. The workers start when an answer first needs them.
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
        self._known: dict[tuple[str, str], Verdict] = {}

    def grade(self, items: Iterable[Item | tuple[str, str]]) -> list[Grade]:
        """Grades in the order of `items`; never raises because of what a response contains.

        Raises:
            GradingError: the worker processes cannot be started.
        """
        items = [Item(*item) for item in items]
        found = [extract(self.verifier, item.response, item.truncated) for item in items]
        pairs: list[tuple[str, str] | None] = []
        for item, (answer, where) in zip(items, found, strict=True):
            usable = answer is not None and where != "answer cut off"
            pairs.append((item.truth, " ".join(answer.split())) if usable else None)
        self._decide({pair for pair in pairs if pair is not None and pair not in self._known})
        grades = []
        for (answer, where), pair in zip(found, pairs, strict=True):
            shown = None if answer is None else _printable(answer)
            if pair is None:
                grades.append(Grade(shown, False, where))
            else:
                right, why = self._known[pair]
                grades.append(Grade(shown, right, f"{where}: {why}"))
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        return grades

    def _decide(self, pairs: Iterable[tuple[str, str]]) -> None:
        hard: list[tuple[str, str]] = []
        tolerance = self.verifier.relative_tolerance
        for gold, answer in sorted(pairs):
            if len(answer) > max(MAX_ANSWER_CHARACTERS, 4 * len(gold)):
                self._known[gold, answer] = False, f"longer than {MAX_ANSWER_CHARACTERS} characters"
                continue
            verdict = quick(gold, answer, tolerance)
            if verdict is None:
                hard.append((gold, answer))
            else:
                self._known[gold, answer] = verdict
        if hard:
            verdicts = self._pool.compare([(gold, answer, tolerance) for gold, answer in hard])
            self._known.update(zip(hard, verdicts, strict=True))

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_exc) -> None:
        self.close()


class MarkerGrader:
    """The same for answers that only have to be found and compared (rpg.rewards)."""

    def __init__(self, verifier: MarkerVerifier):
        self.verifier = verifier

    def grade(self, items: Iterable[Item | tuple[str, str]]) -> list[Grade]:
        """Grades in the order of `items`."""
        return [grade_marker(self.verifier, *Item(*item)) for item in items]

    def close(self) -> None:
        """Nothing to end."""

    def __enter__(self) -> MarkerGrader:
        return self

    def __exit__(self, *_exc) -> None:
        self.close()


class RecipeGrader:
    """The same by the recipe's own rule (rpg.rewards.math_dapo), which takes no notice of truncation."""

    def __init__(self, verifier: MathVerifier):
        self.verifier = verifier

    def grade(self, items: Iterable[Item | tuple[str, str]]) -> list[Grade]:
        """Grades in the order of `items`."""
        graded = (math_dapo.grade(item[0], item[1]) for item in items)
        return [Grade(g.extracted and _printable(g.extracted), g.correct, g.reason) for g in graded]

    def close(self) -> None:
        """Nothing to end."""

    def __enter__(self) -> RecipeGrader:
        return self

    def __exit__(self, *_exc) -> None:
        self.close()


class NoGrader:
    """Where nothing is right or wrong by itself: what a response earned decides (rpg.rewards.scoring)."""

    def grade(self, items: Iterable[Item | tuple[str, str]]) -> list[Grade]:
        """Nothing is right yet, in the order of `items`."""
        return [Grade(None, False, "not graded by itself") for _ in items]

    def close(self) -> None:
        """Nothing to end."""

    def __enter__(self) -> NoGrader:
        return self

    def __exit__(self, *_exc) -> None:
        self.close()


class Grading(Protocol):
    """What grades the responses to a verifier; a context manager, or to be closed."""

    def grade(self, items: Iterable[Item | tuple[str, str]]) -> list[Grade]:
        """Grades in the order of `items`."""

    def close(self) -> None:
        """End what it has started."""

    def __enter__(self) -> Grading: ...

    def __exit__(self, *_exc: object) -> None: ...


_GRADERS: dict[type[VerifierSection], Callable[[Any, int], Grading]] = {
    MarkerVerifier: lambda verifier, workers: MarkerGrader(verifier),
    MathVerifier: lambda verifier, workers: (
        RecipeGrader(verifier) if verifier.rules == "recipe" else Grader(verifier, workers)
    ),
    RewardVerifier: lambda verifier, workers: NoGrader(),
}
registered("verifier", VERIFIERS.values(), _GRADERS, "rpg/rewards/graders.py")


def grader_for(verifier: VerifierSection, workers: int = 1) -> Grading:
    """The grader that a verifier asks for."""
    return _GRADERS[type(verifier)](verifier, workers)


def _printable(text: str) -> str:
    """What can be stored: no half surrogate pairs, no NUL, and only the beginning of a monstrous answer."""
    text = text[:MAX_ANSWER_CHARACTERS].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode("utf-8")


def rules_name(verifier: VerifierSection) -> str:
    """Name and version of a verifier's rules, with settings that are not the default: `lines-2`, `math_dapo-0.9.1`."""
    if isinstance(verifier, MarkerVerifier):
        return f"marker-{verifier.match}"
    if isinstance(verifier, RewardVerifier):
        return f"reward>={verifier.at_least:g}"
    if not isinstance(verifier, MathVerifier):
        return verifier.type
    if verifier.rules == "recipe":
        return RECIPE
    boxed = "+boxed" if verifier.fallback == "boxed" else ""
    tolerance = f"+tolerance-{verifier.relative_tolerance:g}" if verifier.relative_tolerance else ""
    return LINES + boxed + tolerance


def with_rules(verifier: MathVerifier, rules: str) -> MathVerifier:
    """The same verifier under `default` or `recipe` rules."""
    return MathVerifier.model_validate({**verifier.model_dump(), "rules": rules})
