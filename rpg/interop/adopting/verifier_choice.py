"""Which verifier fits the right answers of somebody's data: by their form, and by trying.

Each answer is written again as a model might write it, and as another answer of the data. A
verifier has to accept the first and refuse the second.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rpg.config.task import MarkerVerifier, MathVerifier, Verifier
from rpg.tasks.rewards import Grade, Item, grader_for

TRIED = 80
"""Answers that are written again."""
_MOSTLY = 0.95
_NUMBER = re.compile(
    r"\$?\s*(?P<number>[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)\s*(?P<unit>%|\(?[A-Za-z][A-Za-z "
    r".]*\)?)?"
)
_MATHEMATICS = re.compile(r"[\\^_=<>{}/*+()\[\]√π]|\d")


@dataclass(frozen=True)
class Tried:
    """A verifier, with the shares of rewritten answers that it accepts and of other answers that it
    refuses."""

    verifier: Verifier
    accepted: float
    refused: float

    @property
    def score(self) -> float:
        return min(self.accepted, self.refused)


def variants(gold: str) -> list[str]:
    """The answer as models write it."""
    written = [gold, f" {gold} ", f"{gold}."]
    number = _NUMBER.fullmatch(gold.strip())
    if number:
        digits = number["number"].replace(",", "")
        written += [
            digits,
            f"${digits}$",
            f"\\({digits}\\)",
            f"\\boxed{{{digits}}}",
            f"**{digits}**",
        ]
        whole = digits.lstrip("+-")
        if whole.isdigit():
            grouped = f"{int(whole):,}"
            written += [digits + ".0", digits.replace(whole, grouped)]
    elif _MATHEMATICS.search(gold):
        bare = gold.strip().strip("$")
        written += [f"${bare}$", f"\\({bare}\\)"]
        written.append(bare.replace("\\frac", "\\dfrac"))
        written.append(re.sub(r"\\(left|right|,|!|;)(?![a-z])", "", bare))
        written.append(re.sub(r"\\d?frac\{(\w+)\}\{(\w+)\}", r"(\1)/(\2)", bare))
    return list(dict.fromkeys(written))


def candidates(golds: Sequence[str], marker: str) -> dict[str, Verifier]:
    """The verifiers that the form of the answers admits, from the simplest to the most general."""
    numbers = [gold for gold in golds if _NUMBER.fullmatch(gold.strip())]
    mathematical = [gold for gold in golds if _MATHEMATICS.search(gold)]
    found: dict[str, Verifier] = {}
    if len(numbers) >= _MOSTLY * len(golds):
        found["number"] = MarkerVerifier(marker=marker, match="number")
    if mathematical:
        found["math"] = MathVerifier(fallback="boxed")
    found["text"] = MarkerVerifier(marker=marker)
    return found


def tried(verifier: Verifier, golds: Sequence[str]) -> Tried:
    """How a verifier judges the answers as they may be written, and other answers of the data."""
    step = max(1, len(golds) // TRIED)
    chosen = list(golds[::step])
    right = [Item(verifier.written(text), gold) for gold in chosen for text in variants(gold)]
    wrong = _wrong(verifier, chosen)
    with grader_for(verifier) as grader:
        grades = grader.grade([*right, *wrong])
    accepted = _share_right(grades[: len(right)])
    accepted_wrongly = _share_right(grades[len(right) :])
    return Tried(verifier, accepted, refused=1 - accepted_wrongly)


def _wrong(verifier: Verifier, golds: Sequence[str]) -> list[Item]:
    """Wrong answers: of each row, the right answer of the next."""
    items = []
    following = [*golds[1:], *golds[:1]]
    for gold, other in zip(golds, following, strict=True):
        if other.strip() != gold.strip():
            items.append(Item(verifier.written(other), gold))
    return items


def _share_right(grades: Sequence[Grade]) -> float:
    """0 where there are none."""
    right = sum(grade.correct for grade in grades)
    return right / max(1, len(grades))


def choose(verifiers: dict[str, Verifier], golds: Sequence[str]) -> tuple[str, str]:
    """The name of the best verifier, the first of equals, and what was measured of each."""
    results = {name: tried(verifier, golds) for name, verifier in verifiers.items()}
    best = max(results, key=lambda name: round(results[name].score, 2))
    measured = [
        f"{name} accepts {result.accepted:.0%} of the answers as models may write them and refuses "
        f"{result.refused:.0%} of others"
        for name, result in results.items()
    ]
    return best, f"{best} ({'; '.join(measured)})"
