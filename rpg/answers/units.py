"""Units behind a value: how far they reach, and formulas without them."""

from __future__ import annotations

from collections.abc import Sequence

from rpg.answers.lexer import Token
from rpg.answers.lexicon import SINGLE_UNITS, UNIT_WORDS, UNITS

_LETTERS = SINGLE_UNITS | {"mu", "Omega", "AA", "odot", "ohm", "hbar", "F", "C", "H", "T", "B", "M"}
_CONNECTING = {"*", "/", "^", "-", "_", "+"}


def is_unit(token: Token) -> bool:
    """A word that names a unit."""
    return token.kind == "word" and (token.text in UNITS or token.text.lower() in UNIT_WORDS)


def unit_length(tokens: Sequence[Token], i: int) -> int:
    """How many tokens from `i` are one unit, with its powers and quotients; 0 where none begins there."""
    if not is_unit(tokens[i]):
        return 0
    end = i + 1
    while end < len(tokens):
        token = tokens[end]
        follows = tokens[end + 1] if end + 1 < len(tokens) else None
        if is_unit(token) or (token.kind == "symbol" and token.text in _LETTERS):
            end += 1
        elif token.text in ("/", "*", "^", "_") and token.kind == "op" and follows is not None:
            unit = is_unit(follows) or follows.text in _LETTERS or follows.kind in ("edge", "open")
            if token.text in ("/", "*") and not unit:
                break
            end += 1
            if token.text in ("^", "_"):
                end = _exponent(tokens, end)
            elif follows.kind == "open":
                while end < len(tokens) and tokens[end].kind != "close":
                    end += 1
                end += 1
        elif token.kind == "edge" and follows and follows.kind == "op" and follows.text in ("/", "^", "*"):
            end += 1
        else:
            break
    return end - i


def _exponent(tokens: Sequence[Token], i: int) -> int:
    """Behind `2`, `-1` or `{-1}`."""
    if tokens[i].kind == "open":
        while i < len(tokens) and tokens[i].kind != "close":
            i += 1
        return i + 1
    return i + 2 if tokens[i].text == "-" else i + 1


def cut_units(formula: list[Token]) -> list[Token]:
    """Without upright letters behind a value: `9.8\\,\\mathrm{m}/\\mathrm{s}^2`."""
    return _cut(formula, upright=True)


def without_letters(formula: Sequence[Token]) -> list[Token]:
    """Without letters behind a number that are units where a number is expected: `9.8 m/s^2`, `3 \\mu m`."""
    bare = list(formula)
    while len(bare) > 2 and bare[0] == Token("open", "box", bare[0].upright) and _closes_last(bare):
        bare = bare[1:-1]
    return _cut(bare)


def _closes_last(formula: list[Token]) -> bool:
    depth = 0
    for i, token in enumerate(formula):
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0:
            return i == len(formula) - 1
    return False


def letters_length(tokens: Sequence[Token], i: int) -> int:
    """How many tokens from `i` are letters that are units behind a formula's end: `$9.8$ m/s^2`; 0 where others come."""
    end = i
    while end < len(tokens) and tokens[end].kind in ("symbol", "op", "number"):
        end += 1
    run = list(tokens[i:end])
    return end - i if run and run[0].text in SINGLE_UNITS and _only_units(run) else 0


def _cut(formula: list[Token], upright: bool = False) -> list[Token]:
    depth = 0
    for i, token in enumerate(formula):
        letter = token.kind == "symbol" and (token.upright or not upright) and _is_letter(token.text)
        behind_value = depth == 0 and i and formula[i - 1].kind in ("number", "close")
        if letter and behind_value and _only_units(formula[i:]):
            return formula[:i]
        depth += (token.kind == "open") - (token.kind == "close")
    return formula


def _is_letter(name: str) -> bool:
    return name in _LETTERS or _of_a_star(name)


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
