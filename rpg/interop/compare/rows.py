"""What every reader makes of a file: one row per graded sample."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.errors import UserError


class CompareError(UserError):
    """Files that cannot be compared."""


@dataclass(frozen=True)
class Row:
    """The score of one sample."""

    problem: str
    score: float
    benchmark: str = ""
    text: str = ""
    """A digest of the problem's text, so that two problems of one name are not taken for one."""
    cluster: str = ""
    training: str = ""
    """The seed of the training that made the model, where the file has several."""
    model: str = ""


@dataclass(frozen=True)
class Read:
    """A file as it was read: its format in words, its rows, and what one should know of it."""

    kind: str
    rows: list[Row]
    metric: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Choice:
    """What a reader may choose from: the metric by name, as the user gave it ("": the first)."""

    metric: str = ""

    def of(self, path: Path, names: list[str]) -> str:
        """The metric that is read. Raises CompareError: the file has none of that name."""
        if not self.metric:
            return names[0]
        if self.metric not in names:
            raise CompareError(
                f"{path}: there is no metric {self.metric!r}; there are: {', '.join(names)}"
            )
        return self.metric

    def note(self, chosen: str, names: list[str]) -> list[str]:
        """Says that others were there to choose from."""
        others = [name for name in names if name != chosen]
        if self.metric or not others:
            return []
        return [f"{chosen} is compared; choose another with --metric: {', '.join(others)}"]


LONGEST_SHOWN = 60
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Inspect's values: correct, partial, incorrect, no answer."""
WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "right": 1.0, "wrong": 0.0}


def score_of(value: Any, path: Path, where: str) -> float:
    """A score between 0 and 1. Raises CompareError: it is none."""
    number = _number(value)
    if number is None or not 0 <= number <= 1:
        raise CompareError(
            f"{path}: {where} has the score {shown(value)}; expected a number between 0 and 1, "
            "true or false, or one of Inspect's letters C, P, I, N"
        )
    return number


def shown(value: Any) -> str:
    """A value in a message, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _number(value: Any) -> float | None:
    if isinstance(value, int):
        return float(value) if value in (0, 1) else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text in LETTERS:
        return LETTERS[text]
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def digest(text: Any) -> str:
    """Of a problem's text, however it is written."""
    return hashlib.sha256(repr(text).encode()).hexdigest()[:16]


def check_once(path: Path, names: Iterable[str]) -> None:
    """Raises CompareError: a sample is there twice."""
    for name, times in Counter(names).items():
        if times > 1:
            raise CompareError(f"{path}: {name} is there {times} times; expected once")
