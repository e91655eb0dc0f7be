"""The vocabulary of answers, from vocabulary.toml: words around a value, commands, signs, units;
and number words."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

_DATA = tomllib.loads(Path(__file__).with_name("vocabulary.toml").read_text(encoding="utf-8"))
_WORDS = {name: text.split() for name, text in _DATA["words"].items()}
GREEK = _WORDS["greek"]
FUNCTIONS = {name: name for name in _WORDS["functions"]}
FUNCTIONS |= {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan")}
END_TOKENS = "|".join(
    [
        r"<[|｜][^|｜<>]{1,30}[|｜]>",
        *(re.escape(t) for ts in _DATA["tokens"].values() for t in ts.split()),
    ]
)
"""A pattern of end-of-text and turn tokens."""
MARKS: str = _DATA["marks"]
"""Tick marks and the like, which say nothing."""
SIGNS: dict[str, str] = {
    **_DATA["signs"],
    **dict.fromkeys(MARKS, ""),
    **dict(zip(_DATA["greek_letters"], (f"\\{name} " for name in GREEK), strict=True)),
}
FRACTIONS: dict[str, str] = _DATA["fractions"]
COMMANDS = (
    {
        name: tuple(token.split())
        for token, names in _DATA["commands"].items()
        for name in names.split()
    }
    | {name: ("command", name) for name in _WORDS["kept"]}
    | {name: ("function", f) for name, f in FUNCTIONS.items()}
)
"""LaTeX command -> kind and text of its token."""


def _words(*names: str) -> frozenset[str]:
    return frozenset(word for name in names for word in _WORDS[name])


ENGLISH_PAIRS = _words("english_pairs")
WORDS_IN_FORMULAS = _words("words_in_formulas")
_PREFIXED = {
    prefix + unit for prefix in ("", *_WORDS["unit_prefixes"]) for unit in _WORDS["measured"]
}
SINGLE_UNITS = _words("single_units")
UNITS = {unit for unit in _PREFIXED if len(unit) > 1} - _words("not_units") | _words("units")
COPULAS = _words("copulas")
LEADING = _words("leading")
APPROXIMATE = _words("approximate")
CONCLUDING = _words("concluding")
SUBORDINATE = _words("subordinate")
REASONS = _words("reasons")
JOINING = _words("joining")
SUCH_THAT = _words("such_that")
NUMBERED = _words("numbered")
RETRACTING = _words("retracting")
CORRECTING = _words("correcting")
COUNTING = _words("counting")
SPOILING = _words("spoiling")
DETERMINERS = _words("determiners")
DOUBTING = SPOILING | _words("retracting", "vague") - _words("neutral")
CONFIRMING = _words("confirming")
PHRASES = _words("phrases")
COMPARING = _words("comparing")
CHANGING = _words("changing")
DESCRIBED = _words("described")
DESCRIBING = COMPARING | _words("describing")
RELATIVES = _words("relatives")
STATING = COPULAS | _words("stating")
PREPOSITIONS = RELATIVES | _words("prepositions")
RESTATING = CONCLUDING | _words("restating")
_CONTENT = _words("content") | {
    form for noun in _WORDS["nouns"] for form in (noun, noun + "s", noun + "es")
}
_EXPLAINING = _words("explaining")
SUBJECT = LEADING | COPULAS | COUNTING | _CONTENT | _words("subject")
"""What may stand before the value in a sentence: a word that is not here may deny, doubt or change
it."""
BEHIND = _CONTENT | COUNTING | _words("behind")
"""What may stand behind it."""
LINKING = (
    (DETERMINERS | PREPOSITIONS | BEHIND | COMPARING | _words("linking"))
    - COPULAS
    - {"which", "that"}
)
EXPLAINING = (_EXPLAINING | _CONTENT) - _words("several")
REASONING = EXPLAINING | SUBJECT | _words("reasoning")
SUPPOSING = SPOILING - REASONING - _words("told")
_COURTESY = _words("courtesy")
_CLOSING = _words("closing", "courtesy")
_IMPERATIVES = _words("imperatives")
_OBJECTS = _words("objects")
_OTHERS = _words("others")
_DISMISSED = _words("dismissed")
_PAIRED = _words("paired")


def is_harmless(words: Sequence[str], worded: bool = False, named: Iterable[str] = ()) -> bool:
    """Whether a sentence of these words only explains an answer, or ends the response: all of them
    are known to.

    `worded`: the answer is a word itself, so that words of mathematics may be another. `named`:
    more words that are known.
    """
    pairs = pairwise([*words, ""])
    said = {word for word, after in pairs if word != "both" or after not in _PAIRED}
    if len(words) > 1 and words[0] in _IMPERATIVES and words[1] in _OBJECTS:
        return False
    if said <= REASONING and said & _OTHERS and said & _DISMISSED:
        return not worded
    explaining = _EXPLAINING if worded else EXPLAINING.union(named)
    return said <= explaining or bool(said <= _CLOSING and said & _COURTESY)


UNIT_VALUES: dict[str, str] = {
    name: unit for names, unit in _DATA["units"].items() for name in names.split()
}
PREFIXES: dict[str, int] = _DATA["prefixes"]
_MULTIPLES = [p + name for p in PREFIXES if len(p) > 3 for name in _WORDS["unit_words"]]
UNIT_WORDS = {
    form
    for word in (*_WORDS["unit_words"], *_MULTIPLES)
    for form in (word, word + "s", word + "es")
} | {"feet"}
_ONES = {word: value for value, word in enumerate(_WORDS["numbers"])}
_TENS = {word: 10 * k for k, word in enumerate(_WORDS["tens"], 2)}
SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1_000,
    "million": 1_000_000,
    "billion": 1_000_000_000,
}
_ORDINALS = {word: value for value, word in enumerate(_WORDS["ordinals"], 2)}
_ORDINALS |= {"quarter": 4, "hundredth": 100} | {
    f"{word[:-1]}ieth": value for word, value in _TENS.items()
}
_ORDINALS |= {
    f"{a}-{b}": m + n for a, m in _TENS.items() for b, n in list(_ORDINALS.items()) if n < 10
}
_PARTS = {"halves": 2} | {f"{word}s": value for word, value in _ORDINALS.items()}
NUMBER_WORDS = {*_ONES, *_TENS, *SCALES, *_ORDINALS, *_PARTS}


def number_in_words(words: Sequence[str]) -> tuple[int, Fraction]:
    """(How many of the first words are one number, its value); (0, 0) where the first is none.

    `one` alone is more often a pronoun (`one of`, `the only one`), so it counts only where nothing
    follows.
    """
    total = current = used = 0
    last = "start"
    for k, word in enumerate(words):
        begins = last in ("start", "scale", "hundred", "and")
        parts = (_ORDINALS if total + current == 1 else _PARTS).get(word)
        if word in _ONES and (begins or (last == "tens" and 0 < _ONES[word] < 10)):
            current += _ONES[word]
            last = "ones"
        elif word in _TENS and begins:
            current += _TENS[word]
            last = "tens"
        elif word == "hundred" and last == "ones":
            current *= 100
            last = "hundred"
        elif word in SCALES and last in ("ones", "tens", "hundred"):
            total = total + current * SCALES[word]
            current = 0
            last = "scale"
        elif (
            word == "and"
            and last in ("hundred", "scale")
            and set(words[k + 1 : k + 2]) & {*_ONES, *_TENS}
        ):
            last = "and"
            continue
        elif parts and used == k > 0:
            return k + 1, Fraction(total + current, parts)
        elif word == "and" and 0 < (more := number_in_words(words[k + 1 :]))[1] < 1:
            return k + 1 + more[0], total + current + more[1]
        else:
            break
        used = k + 1
    alone = list(words[:1]) == ["one"] and used == 1 < len(words)
    return (0, Fraction(0)) if alone else (used, Fraction(total + current))
