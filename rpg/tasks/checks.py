"""Checks of problems: gold answers that no response could ever match, so that the reward of a training on them is constant;
and leaks, problems of a benchmark that are in the training data too, word for word or nearly so.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rpg.config.task import MarkerVerifier, Verifier
from rpg.tasks.problems import DataError, Problem, shortened

SHINGLE = 5
"""Words per shingle."""
THRESHOLD = 0.6
"""Jaccard similarity of shingles from which two problems are near duplicates.

One word replaced in a problem of n words changes 5 shingles of n: 0.6 is two or three replaced words in forty.
"""

_MARKUP = re.compile(r"\\(?:left|right|displaystyle|text|mathrm|mbox|d?frac|quad|qquad|[,;:! ])|[${}~\\]")
_WORD = re.compile(r"[^\W_]+|[^\w\s]")


@dataclass(frozen=True)
class Leak:
    """A benchmark problem and the training problem that gives it away. `similarity` is 1.0 for the same text."""

    benchmark: str
    problem: str
    training: str
    similarity: float


@dataclass(frozen=True)
class Checks:
    """What was checked about a benchmark's problems."""

    rows: int
    """Rows of the source; those that repeat a problem were collapsed."""
    near_duplicates: tuple[tuple[str, str, float], ...]
    """Pairs of its problems that are nearly the same, with their similarity."""
    training: str | None = None
    """Source of the training problems that were compared, if any were."""
    leaks: tuple[Leak, ...] = ()
    """Its problems that are among those too; one entry per pair."""


def words(text: str) -> list[str]:
    """Words, numbers and operators without typesetting and case."""
    return [
        w for w in _WORD.findall(_MARKUP.sub(" ", text).lower()) if w not in {".", ",", ":", ";", "?", "!"}
    ]


def shingles(text: str) -> frozenset[int]:
    """Hashes of all runs of five words (of the whole text where it is shorter)."""
    tokens = words(text)
    runs = (
        [tokens]
        if len(tokens) < SHINGLE
        else [tokens[i : i + SHINGLE] for i in range(len(tokens) - SHINGLE + 1)]
    )
    return frozenset(
        int.from_bytes(hashlib.blake2b(" ".join(r).encode("utf-8", "replace"), digest_size=8).digest())
        for r in runs
    )


def leaks(
    training: Sequence[Problem], benchmarks: Mapping[str, Iterable[Problem]], threshold: float = THRESHOLD
) -> list[Leak]:
    """Every pair of a benchmark's problem and a training problem whose shingles have Jaccard similarity >= threshold.

    Exact (no sketching): an inverted index over the benchmarks' shingles, then one pass over the training problems.
    """
    held_out = [
        (name, problem, shingles(problem.text)) for name, group in benchmarks.items() for problem in group
    ]
    index: dict[int, list[int]] = defaultdict(list)
    for i, (_, _, hashes) in enumerate(held_out):
        for shingle in hashes:
            index[shingle].append(i)
    pairs = []
    for problem in training:
        hashes = shingles(problem.text)
        shared = Counter(i for shingle in hashes for i in index.get(shingle, ()))
        for i, common in shared.items():
            name, other, theirs = held_out[i]
            similarity = common / (len(hashes) + len(theirs) - common)
            if similarity >= threshold:
                pairs.append(Leak(name, other.id, problem.id, similarity))
    return sorted(pairs, key=lambda leak: (-leak.similarity, leak.problem, leak.training))


def near_duplicates(
    problems: Sequence[Problem], threshold: float = THRESHOLD
) -> list[tuple[str, str, float]]:
    """Pairs of problems that are nearly the same, each once, the most alike first."""
    pairs = leaks(problems, {"": problems}, threshold)
    return [(leak.problem, leak.training, leak.similarity) for leak in pairs if leak.problem < leak.training]


MOST_WORDS = 12
"""Answers with more words than this are sentences; the longest gold answer of the shipped benchmarks has nine."""
WORKED = "####"
"""How GSM8K ends a worked solution: only what follows it is the answer."""
_ENGLISH = re.compile(r"[A-Za-z]{2,}")


def check_gold(problems: Sequence[Problem], verifier: Verifier, where: str) -> list[str]:
    """What a reader should know about the gold answers of a file, a line each. Raises DataError: an answer holds a
    whole solution, or something that this verifier can find in no response.
    """
    for problem in problems:
        why = unanswerable(problem.answer, verifier)
        if why:
            raise DataError(f"{where}: {problem.id}: field answer: {shortened(problem.answer)} {why}")
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
    long = [problem for problem in problems if len(_ENGLISH.findall(problem.answer)) > MOST_WORDS]
    if not long:
        return []
    return [
        f"{where}: {len(long)} gold answers are whole sentences, which hardly any response will match, e.g. "
        f"{long[0].id}: {shortened(long[0].answer)}"
    ]
