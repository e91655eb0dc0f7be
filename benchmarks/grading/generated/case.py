"""One generated response and its verdict."""

from collections.abc import Iterator
from typing import NamedTuple


class Case(NamedTuple):
    """`group` is right, hedge (wrong: it names more than one answer, or spoils it) or wrong
    (another answer)."""

    benchmark: str
    gold: str
    group: str
    kind: str
    response: str

    @property
    def right(self) -> bool:
        return self.group == "right"


def last_line(answer: str) -> str:
    """A response that ends in `Answer: ...`."""
    return f"We work it out step by step.\n\nAnswer: {answer}"


def last_lines(*answers: str) -> Iterator[str]:
    return map(last_line, answers)
