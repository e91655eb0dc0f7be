"""Grading the answer behind a marker."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from rpg.config.task import MarkerVerifier
from rpg.rewards.grades import Gradable, Grade, Grading, Item

_NUMBER = re.compile(r"([-+]?)(\d{1,50}(?:\.\d{0,50})?|\.\d{1,50})(?:/(\d{1,50}))?")


class MarkerGrader(Grading):
    """Grades what follows a verifier's marker."""

    def __init__(self, verifier: MarkerVerifier):
        self.verifier = verifier

    def grade(self, items: Iterable[Gradable]) -> list[Grade]:
        """Grades in the order of `items`."""
        return [grade(self.verifier, *Item(*item)) for item in items]


def grade(verifier: MarkerVerifier, response: str, truth: str, truncated: bool = False) -> Grade:
    """Compare the answer of `response` with `truth`.

    The answer is what follows the last marker, up to the end of its line. In a response that was cut off by the
    length limit (`truncated`), an answer that reaches the cut is incomplete and does not count.
    """
    _, marker, tail = response.rpartition(verifier.marker)
    if not marker:
        return Grade(None, False, "cut off before an answer" if truncated else f"no {verifier.marker!r}")
    line, newline, _ = tail.partition("\n")
    answer = line.strip()
    if truncated and not newline:
        return Grade(answer, False, "answer cut off")
    if not answer:
        return Grade(answer, False, "empty answer")
    if verifier.match == "number":
        stated, expected = number(answer), number(truth)
        if expected is not None:
            if stated is None:
                return Grade(answer, False, "not a number")
            return Grade(answer, stated == expected, "correct" if stated == expected else "wrong")
    right = answer in truth.split() if verifier.match == "any" else answer == truth.strip()
    return Grade(answer, right, "correct" if right else "wrong")


def number(text: str) -> Fraction | None:
    """The value of `12`, `-0.50`, `1/2`, `1,000` (also within `$ $` or before a full stop); None for anything else."""
    bare = text.strip().strip("$").strip().removesuffix(".").replace(" ", "")
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?", bare):
        bare = bare.replace(",", "")
    match = _NUMBER.fullmatch(bare)
    if not match:
        return None
    sign, value, denominator = match.groups()
    if denominator is not None and not int(denominator):
        return None
    result = Fraction("0" + value if value.startswith(".") else value.removesuffix("."))
    result /= int(denominator or 1)
    return -result if sign == "-" else result
