"""Units behind a value: how far they reach, and what they are worth."""

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from rpg.answers.lexer import Token, closing, tokens_of, value_of
from rpg.answers.lexicon import (
    ENGLISH_PAIRS,
    PREFIXES,
    SINGLE_UNITS,
    UNIT_VALUES,
    UNIT_WORDS,
    UNITS,
)

_LETTERS = SINGLE_UNITS | {"mu", "Omega", "AA", "odot", "ohm", "hbar", "F", "C", "H", "T", "B", "M"}
_CONNECTING = {"*", "/", "^", "-", "_", "+"}


Unit = tuple[Fraction, dict[str, int]]
"""A factor, and powers of base units; `pi` among them is a number."""
_EXPONENT = re.compile(r"\s*\^\s*[{(]?\s*(-?)\s*(\d)\s*[})]?")
_NUMBER = re.compile(r"\d+(?:[./]\d+)?")
_FACTOR = re.compile(
    r"(?P<over>/|\bper\b)?[\s*]*(?P<open>\()?\s*(?:(?P<square>square|sq)|(?P<cubic>cubic))?\s*"
    r"(?P<name>[A-Za-zµ-]+)(?:\^(?P<power>-?\d))?\s*(?P<close>\))?"
)


@lru_cache(maxsize=4096)
def unit(text: str) -> Unit | None:
    """What `cm^2`, `square meters`, `miles per hour`, `m s^{-2}` is worth; None where a unit is not
    known."""
    text = _EXPONENT.sub(r"^\1\2 ", text)
    number = _NUMBER.match(text)
    factor = Fraction(number[0]) if number else Fraction(1)
    dimension = Counter[str]()
    of_group = 1  # the sign of exponents within the parentheses that are open
    for match in _FACTOR.finditer(text, number.end() if number else 0):
        sign = -1 if match["over"] else of_group
        if match["close"]:
            of_group = 1
        elif match["open"]:
            of_group = sign
        power = sign * _power(match)
        named = _named(match["name"])
        if named is None:
            return None
        scale, powers = named
        factor *= scale**power
        dimension.update({base: exponent * power for base, exponent in powers.items()})
    return factor, {base: exponent for base, exponent in dimension.items() if exponent}


def _power(factor: re.Match[str]) -> int:
    if factor["power"]:
        return int(factor["power"])
    if factor["square"]:
        return 2
    return 3 if factor["cubic"] else 1


def _named(name: str) -> Unit | None:
    words = [name]
    if len(name) > 2:
        low = name.lower()
        words += [low, low.removesuffix("s"), low.removesuffix("es")]
    for word in words:
        value = UNIT_VALUES.get(word)
        if value is not None:
            return (Fraction(1), {word: 1}) if value in (word, "=") else unit(value)
        prefixed = _prefixed(word)
        if prefixed is not None:
            return prefixed
    return (Fraction(1), {name: 1}) if name in UNIT_VALUES.values() else None


def _prefixed(word: str) -> Unit | None:
    """`km`, `kilometer`: a short prefix before a short unit, or a long one before a long one."""
    for prefix, exponent in PREFIXES.items():
        rest = word.removeprefix(prefix)
        if rest != word and rest in UNIT_VALUES and (len(prefix) > 2) == (len(rest) > 3):
            scale, powers = _named(rest) or (Fraction(1), {})
            return scale * Fraction(10) ** exponent, powers
    return None


def unit_token(tokens: Sequence[Token]) -> list[Token]:
    """One token for all of a unit; none where its worth is not known, so that it is only a noun."""
    text = " ".join(t.text for t in tokens if t.kind != "edge")
    return [Token("unit", text)] if text and unit(text) else []


def compound(first: Sequence[Token], second: Sequence[Token]) -> tuple[Token, ...] | None:
    """`5 feet 6 inches`, `6 dollars and 25 cents` as one value in the first unit; None where they
    are none."""
    *number, large_unit = [token for token in first if token.kind != "edge"]
    rest = [token for token in second if token.kind != "edge"]
    if large_unit.kind != "unit" or [token.kind for token in rest] != ["number", "unit"]:
        return None
    rest_number, small_unit = rest
    large, dimension = unit(large_unit.text) or (Fraction(1), {})
    small, small_dimension = unit(small_unit.text) or (Fraction(1), {})
    # 6 inches are half a foot; 15 inches behind 5 feet are no rest.
    share = value_of(rest_number.text) * small / large
    if not dimension or small_dimension != dimension or share >= 1:
        return None
    opened = tokens_of("{")
    added = tokens_of(f"+{share}}}")
    return (*opened, *number, *added, large_unit)


def is_unit(token: Token) -> bool:
    """A word that names a unit."""
    return token.kind == "word" and (token.text in UNITS or token.text.lower() in UNIT_WORDS)


def _unit_at(tokens: Sequence[Token], i: int) -> bool:
    """Whether a unit stands there: `in` is none before a word (`in total`)."""
    followed = i + 1 < len(tokens) and tokens[i + 1].kind == "word" and not is_unit(tokens[i + 1])
    return is_unit(tokens[i]) and not (followed and tokens[i].text in ENGLISH_PAIRS)


def unit_length(tokens: Sequence[Token], i: int) -> int:
    """How many tokens from `i` are one unit, with its powers and quotients; 0 where none begins
    there."""
    if not _unit_at(tokens, i):
        return 0
    end = i + 1
    while end < len(tokens):
        token = tokens[end]
        follows = tokens[end + 1] if end + 1 < len(tokens) else None
        if _unit_at(tokens, end) or (token.kind == "symbol" and token.text in _LETTERS):
            end += 1
        elif token.text in ("/", "*", "^", "_") and token.kind == "op" and follows is not None:
            unit = is_unit(follows) or follows.text in _LETTERS or follows.kind in ("edge", "open")
            if token.text in ("/", "*") and not unit:
                break
            end += 1
            if follows.kind == "open":
                while end < len(tokens) and tokens[end].kind != "close":
                    end += 1
                end += 1
            elif token.text in ("^", "_"):  # behind `2` or `-1`
                end += 2 if follows.text == "-" else 1
        elif (
            token.kind == "edge"
            and follows
            and follows.kind == "op"
            and follows.text in ("/", "^", "*")
        ):
            end += 1
        else:
            break
    return end - i


def cut_units(formula: list[Token]) -> list[Token]:
    """With every unit as one token, also within brackets: words, and upright letters behind a
    value."""
    measured: list[Token] = []
    i = 0
    while i < len(formula):
        length = unit_length(formula, i)
        measured += unit_token(formula[i : i + length]) if length else [formula[i]]
        i += length or 1
    return _cut(measured, upright=True)


def with_unit(formula: Sequence[Token]) -> list[Token]:
    """With letters behind a number as a unit, where a number is expected: `9.8 m/s^2`, `3 \\mu
    m`."""
    bare = list(formula)
    while len(bare) > 2 and bare[0][:2] == ("open", "box") and closing(bare, 0) == len(bare) - 1:
        bare = bare[1:-1]
    return _cut(bare)


def letters_length(tokens: Sequence[Token], i: int) -> int:
    """How many tokens from `i` are letters that are units behind a formula's end: `$9.8$ m/s^2`; 0
    where others come."""
    end = i
    while end < len(tokens) and (
        tokens[end].kind in ("symbol", "op", "number") or is_unit(tokens[end])
    ):
        end += 1
    run = list(tokens[i:end])
    return end - i if run and run[0].text in SINGLE_UNITS and _only_units(run) else 0


def _cut(formula: list[Token], upright: bool = False) -> list[Token]:
    """A formula whose last letters, behind a value, are read as a unit."""
    depth = 0
    for i, token in enumerate(formula):
        is_named = token.text in _LETTERS or _of_a_star(token.text)
        is_letter = is_named and token.kind == "symbol" and (token.upright or not upright)
        behind_value = depth == 0 and i > 0 and formula[i - 1].kind in ("number", "close")
        if is_letter and behind_value and _only_units(formula[i:]):
            return formula[:i] + unit_token(formula[i:])
        if token.kind == "open":
            depth += 1
        elif token.kind == "close":
            depth -= 1
    return formula


def _of_a_star(name: str) -> bool:
    """`M_\\odot`, `R_{\\oplus}`: of the sun, of the earth."""
    letter, _, index = name.partition("_")
    return letter in ("M", "R", "L") and index.lstrip("\\") in ("odot", "oplus", "sun", "earth")


def _only_units(tokens: list[Token]) -> bool:
    exponent = False
    for token in tokens:
        if token.kind == "symbol":
            if token.text.split("_")[0] not in _LETTERS and not _of_a_star(token.text):
                return False
        elif token.kind == "number":
            if not exponent or len(token.text) > 1:
                return False
        elif token.kind == "op":
            if token.text not in _CONNECTING:
                return False
            exponent = token.text in ("^", "-", "_")
            continue
        elif token.kind not in ("open", "close", "word"):
            return False
        if token.kind != "open":
            exponent = False
    return True
