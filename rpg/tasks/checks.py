"""Checks of problems: gold answers that no response could ever match, so that the reward of a
training on them is constant; and leaks, problems of a benchmark that are in the training data too,
word for word or nearly so.
"""

import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from rpg.config.task import TIERS, MarkerVerifier, Tier, Verifier
from rpg.tasks.problems import DataError, Problem, shortened

SHINGLE = 5
"""Words per shingle."""
THRESHOLD = 0.6
"""Jaccard similarity of shingles from which two problems are near duplicates.

One word replaced in a problem of n words changes 5 shingles of n: 0.6 is two or three replaced
words in forty.
"""
CONTAINED = 0.65
"""Share of a problem's shingles, or of those of some sentences, from which a longer text contains
it."""
SENTENCES = 24
"""Words that sentences need, besides what several problems say alike, to give a problem away
without the others."""

_MARKUP = re.compile(
    r"\\(?:left|right|displaystyle|text|mathrm|mbox|d?frac|quad|qquad|[,;:! ])|[${}~\\]"
)
_LAYOUT = re.compile(
    r"\\[()\[\]]|\\(?:begin|end)\{\w+\*?\}|\\\w*(?:bf|it)\b|<[^<>]{1,30}>|[*#`|&]|__|^\s*>",
    re.MULTILINE,
)
_VARIABLE = re.compile(r"\d+|[a-z]|alpha|beta|gamma|theta|lambda|mu|omega|phi|psi")
_SENTENCE = re.compile(r"(?<=[.?!])\s+")
_WORD = re.compile(r"[^\W_]+|[^\w\s]")
_PUNCTUATION = set(".,:;?!")


@dataclass(frozen=True)
class Leak:
    """A benchmark problem and the training problem that gives it away. `similarity` is 1.0 for the
    same text.

    `tier` is `similar` (Jaccard), `contained` (all of it, or long sentences, in a longer text) or
    `renamed` (either, once letters and numbers are all alike).
    """

    benchmark: str
    problem: str
    training: str
    similarity: float
    tier: Tier = "similar"


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
        word for word in _WORD.findall(_MARKUP.sub(" ", text).lower()) if word not in _PUNCTUATION
    ]


def shingles(tokens: Sequence[str], size: int = SHINGLE) -> frozenset[tuple[str, ...]]:
    """All runs of `size` words (the whole text where it is shorter)."""
    runs = zip(*(tokens[i:] for i in range(size)), strict=False)
    return frozenset(runs) if len(tokens) >= size else frozenset([tuple(tokens)])


def _without_layout(text: str) -> str:
    text = unicodedata.normalize("NFKC", text.translate(_SIGNS)) if not text.isascii() else text
    return _LAYOUT.sub(" ", text)


def _alike(tokens: Sequence[str]) -> list[str]:
    """Letters and numbers are all `x`."""
    return ["x" if _VARIABLE.fullmatch(token) else token for token in tokens]


class _Index:
    """Texts that give problems away, by their shingles."""

    def __init__(self, size: int):
        self.size = size
        self.texts: list[tuple[int, int, bool]] = []
        """Number of a problem, its shingles, and whether this is all of it."""
        self.by_shingle: dict[tuple[str, ...], list[int]] = defaultdict(list)

    def add(self, problem: int, parts: Set[tuple[str, ...]], whole: bool) -> None:
        for part in parts:
            self.by_shingle[part].append(len(self.texts))
        self.texts.append((problem, len(parts), whole))

    def matches(self, tokens: Sequence[str]) -> dict[int, tuple[float, float]]:
        """Number of a problem -> Jaccard similarity with all of it, and containment of it or of its
        sentences."""
        parts = shingles(tokens, self.size)
        shared = Counter(
            i for part in parts if part in self.by_shingle for i in self.by_shingle[part]
        )
        matched: dict[int, tuple[float, float]] = {}
        for i, common in shared.items():
            problem, count, whole = self.texts[i]
            jaccard, contained = matched.get(problem, (0.0, 0.0))
            jaccard = common / (len(parts) + count - common) if whole else jaccard
            matched[problem] = jaccard, max(contained, common / count if count >= _FEWEST else 0.0)
        return matched


_FEWEST = 8
"""Shingles of a text that can be contained in another by more than chance."""
_UNSEEN = dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", "")
_SIGNS = str.maketrans({sign: f"^{n}" for n, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")} | _UNSEEN)


def leaks(
    training: Sequence[Problem],
    benchmarks: Mapping[str, Iterable[Problem]],
    threshold: float = THRESHOLD,
    tiers: Sequence[Tier] = TIERS,
) -> list[Leak]:
    """Every pair of a benchmark's problem and a training problem that gives it away, with the first
    tier that says so.

    Exact (no sketching): inverted indices over the benchmarks' shingles, then one pass over the
    training problems.
    """
    held_out = [(name, problem) for name, group in benchmarks.items() for problem in group]
    texts = {
        problem.text: shingles(words(_without_layout(problem.text))) for _, problem in held_out
    }
    often = Counter(itertools.chain.from_iterable(texts.values()))
    # `The final answer can be written ...`
    shared = {part for part, count in often.items() if count > 2}
    plain = _Index(SHINGLE)
    bare = _Index(SHINGLE)
    alike = _Index(2 * SHINGLE)
    for i, (_, problem) in enumerate(held_out):
        plain.add(i, shingles(words(problem.text)), True)
        text = _without_layout(problem.text)
        sentences = [words(sentence) for sentence in _SENTENCE.split(text)]
        windows = list(sentences)
        if len(sentences) > 2:
            windows += [first + second for first, second in itertools.pairwise(sentences)]
        bare.add(i, shingles(words(text)), True)
        alike.add(i, shingles(_alike(words(text)), alike.size), True)
        for window in windows:
            parts = shingles(window) - shared
            if len(parts) > SENTENCES - SHINGLE:
                bare.add(i, parts, False)
    pairs = []
    for problem in training:
        ways: dict[Tier, dict[int, tuple[float, float]]] = {
            "similar": plain.matches(words(problem.text))
        }
        if len(tiers) > 1:
            tokens = words(_without_layout(problem.text))
            ways |= {"contained": bare.matches(tokens), "renamed": alike.matches(_alike(tokens))}
        reported: set[int] = set()
        for tier in tiers:
            for i, (jaccard, contained) in ways[tier].items():
                share = jaccard if jaccard >= threshold or tier == "similar" else contained
                if i not in reported and share >= (threshold if share == jaccard else CONTAINED):
                    reported.add(i)
                    pairs.append(Leak(held_out[i][0], held_out[i][1].id, problem.id, share, tier))
    pairs.sort(
        key=lambda leak: (TIERS.index(leak.tier), -leak.similarity, leak.problem, leak.training)
    )
    return pairs


def near_duplicates(problems: Sequence[Problem]) -> list[tuple[str, str, float]]:
    """Pairs of problems that are nearly the same, each once, the most alike first."""
    pairs = leaks(problems, {"": problems}, THRESHOLD, ("similar",))
    return [
        (leak.problem, leak.training, leak.similarity)
        for leak in pairs
        if leak.problem < leak.training
    ]


MOST_WORDS = 12
"""Answers with more words than this are sentences; the longest gold answer of the shipped
benchmarks has nine."""
WORKED = "####"
"""How GSM8K ends a worked solution: only what follows it is the answer."""
_ENGLISH = re.compile(r"[A-Za-z]{2,}")


def check_gold(problems: Sequence[Problem], verifier: Verifier, where: str) -> list[str]:
    """What a reader should know about the gold answers of a file, a line each. Raises DataError: an
    answer holds a whole solution, or something that this verifier can find in no response.
    """
    for problem in problems:
        why = _unanswerable(problem.answer, verifier)
        if why:
            raise DataError(
                f"{where}: {problem.id}: field answer: {shortened(problem.answer)} {why}"
            )
    long = [problem for problem in problems if len(_ENGLISH.findall(problem.answer)) > MOST_WORDS]
    return [
        f"{where}: {len(long)} gold answers are whole sentences, which hardly any response "
        "will match, e.g. "
        f"{first.id}: {shortened(first.answer)}"
        for first in long[:1]
    ]


def _unanswerable(answer: str, verifier: Verifier) -> str | None:
    """Why no response can be right by this gold answer; None if one can."""
    if WORKED in answer:
        last = answer.rpartition(WORKED)[2].strip()
        return (
            f"contains a whole solution: only what follows {WORKED} is the answer; write {last!r}"
        )
    if not isinstance(verifier, MarkerVerifier):
        return None
    if "\n" in answer.strip():
        return "has several lines, and an answer ends with its line; write the answer alone"
    if verifier.marker in answer:
        return f"contains the verifier's own marker {verifier.marker!r}; write what follows it"
    return None
