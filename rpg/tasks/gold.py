"""Gold answers that no response could ever match, so that the reward of a training on them is constant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rpg.config.task import MarkerVerifier, Verifier
from rpg.tasks.problems import DataError, Problem

MOST_WORDS = 12
"""Answers with more words than this are sentences; the longest gold answer of the shipped benchmarks has nine."""
WORKED = "####"
"""How GSM8K ends a worked solution: only what follows it is the answer."""
_SHOWN = 60
_WORD = re.compile(r"[A-Za-z]{2,}")


def check_gold(problems: Sequence[Problem], verifier: Verifier, where: str) -> list[str]:
    """What a reader should know about the gold answers of a file, a line each.

    Raises:
        DataError: an answer holds a whole solution, or something that this verifier can find in no response.
    """
    for problem in problems:
        why = unanswerable(problem.answer, verifier)
        if why:
            raise DataError(f"{where}: {problem.id}: field answer: {_short(problem.answer)} {why}")
    return _sentences(problems, where)


def unanswerable(answer: str, verifier: Verifier) -> str | None:
    """Why no response can be right by this gold answer; None if one can."""
    if WORKED in answer:
        last = answer.rpartition(WORKED)[2].strip()
        return f"holds a whole solution: only what follows {WORKED} is the answer; write {last!r}"
    if isinstance(verifier, MarkerVerifier):
        if "\n" in answer.strip():
            return "has several lines, and an answer ends with its line; write the answer alone"
        if verifier.marker in answer:
            return f"contains the verifier's own marker {verifier.marker!r}; write what follows it"
    return None


def _sentences(problems: Iterable[Problem], where: str) -> list[str]:
    long = [problem for problem in problems if len(_WORD.findall(problem.answer)) > MOST_WORDS]
    if not long:
        return []
    return [
        f"{where}: {len(long)} gold answers are whole sentences, which hardly any response will match, e.g. "
        f"{long[0].id}: {_short(long[0].answer)}"
    ]


def _short(text: str) -> str:
    shown = " ".join(text.split())
    return repr(shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "...")
