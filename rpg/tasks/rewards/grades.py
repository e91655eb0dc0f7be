"""What every grader takes and gives."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple


class Item(NamedTuple):
    """A response to grade. `truncated`: it was cut off by the length limit, so an answer at its end
    is incomplete. `columns`: the other columns of its problem."""

    response: str
    truth: str
    truncated: bool = False
    columns: Mapping[str, Any] = {}


Gradable = Item | tuple[str, str] | tuple[str, str, bool]


@dataclass(frozen=True)
class Grade:
    """What was found in a response; `reason` says in a few words why it counts or does not.
    `score`: from 0 to 1, of a verifier that knows more than right and wrong."""

    extracted: str | None
    correct: bool
    reason: str
    score: float | None = None


class Grading(AbstractContextManager["Grading"]):
    """Base of every grader: a context manager, or to be closed."""

    def grade(self, items: Iterable[Gradable]) -> list[Grade]:
        """Grades in the order of `items`; never raises because of what a response contains."""
        raise NotImplementedError

    def reread(self, pairs: Sequence[tuple[str, str]]) -> list[bool | None]:
        """A second reader's verdicts on (gold, answer) that could not be read; None where it cannot
        read them either."""
        return [None for _ in pairs]

    def close(self) -> None:
        """End the processes it has started, if any."""

    def __exit__(self, *_exception: object) -> None:
        self.close()
