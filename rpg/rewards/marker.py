"""Grading a response: answer extraction, comparison, and the soft punishment of overlong responses. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from rpg.config.task import MarkerVerifier

_NUMBER = re.compile(r"([-+]?)(\d{1,50}(?:\.\d{0,50})?|\.\d{1,50})(?:/(\d{1,50}))?")


@dataclass(frozen=True)
class Grade:
    """What was found in a response; `reason` says in a few words why it counts or does not."""

    extracted: str | None
    correct: bool
    reason: str


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
        found, expected = number(answer), number(truth)
        if expected is not None:
            right = found == expected
            return Grade(
                answer, right, "correct" if right else "wrong" if found is not None else "not a number"
            )
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
