r"""Whether two answers say the same: text, then numbers, then structure (lists, tuples, sets, equations), and only
for what is left a computer algebra system, through the library math-verify.

The first two are cheap and bounded (:func:`quick`); the rest runs where it can be killed (rpg.rewards.worker).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from rpg.rewards.extract import split, squeeze, without_unit
from rpg.rewards.numbers import number, same

Verdict = tuple[bool, str]
"""Right or wrong, and why in a few words."""


def quick(gold: str, answer: str, relative_tolerance: float = 0.0) -> Verdict | None:
    """The verdict where text or plain numbers decide it; None where more work is needed. Both are normalised."""
    if squeeze(gold) == squeeze(answer):
        return True, "same text"
    if not answer:
        return False, "empty answer"
    wanted = number(gold)
    if wanted is None:
        return None
    found = number(answer) or number(without_unit(answer)) or number(_right_hand_side(answer))
    if found is None:
        return None
    right = same(wanted, found, relative_tolerance)
    return right, "same number" if right else "other number"


def equivalent(gold: str, answer: str, relative_tolerance: float = 0.0) -> Verdict:
    """The verdict on two normalised answers. May run long on hostile input: call it where it can be killed."""
    verdict = _equivalent(gold, answer, relative_tolerance)
    return verdict, "equivalent" if verdict else "not equivalent"


def _equivalent(gold: str, answer: str, tolerance: float) -> bool:
    verdict = quick(gold, answer, tolerance)
    if verdict is not None:
        return verdict[0]

    def match(a: str, b: str) -> bool:
        return _equivalent(a, b, tolerance)

    wanted, found = _elements(gold), _elements(answer)
    if len(wanted) > 1 or len(found) > 1:
        if _brackets(gold) == "()" and _brackets(answer) is None:
            return _ordered(_inside(gold), found, match)  # a tuple without its parentheses
        return len(wanted) == len(found) and _unordered(wanted, found, match)

    # One element each. A union of intervals or sets, whatever its order:
    wanted, found = split(gold, r"\cup", "∪"), split(answer, r"\cup", "∪")
    if len(wanted) > 1 or len(found) > 1:
        return len(wanted) == len(found) and _unordered(wanted, found, match)

    kind = _brackets(gold)
    if kind is not None and len(_inside(gold)) > 1:  # tuple, interval: order and brackets matter
        return kind == _brackets(answer) and _ordered(_inside(gold), _inside(answer), match)

    left, right = _equation(gold)
    other_left, other_right = _equation(answer)
    if left and other_left and squeeze(left) == squeeze(other_left):
        return match(right, other_right)
    if bool(left) != bool(other_left):  # `k = 1` and `1`: the name of what was asked for may be left out
        return match(right, other_right)
    return _algebra(gold, answer)


# ------------------------------------------------------------------------------------------------ structure


def _elements(text: str) -> list[str]:
    r"""`1, 2 and 3`, `\{1,2,3\}` and `1 \pm 2` are lists, whose order does not matter; anything else is a list of one."""
    text = text.strip()
    if text.startswith(r"\{") and text.endswith(r"\}"):
        text = text[2:-2]
    parts = [part for part in split(text, ",", ";", " and ", " or ") if part]
    return [choice for part in parts for choice in _signs(part)]


def _signs(text: str) -> list[str]:
    r"""`a \pm b` stands for `a + b` and `a - b`."""
    text = text.replace("±", r"\pm ")
    if text.count(r"\pm") != 1:
        return [text]
    return [re.sub(r"^\s*\+", "", text.replace(r"\pm", sign)).strip() for sign in "+-"]


def _brackets(text: str) -> str | None:
    """First and last character where they are the brackets around the whole text, as in a tuple or interval."""
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]":
        return None
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and i < len(text) - 1:
            return None
    return text[0] + text[-1]


def _inside(text: str) -> list[str]:
    return split(text[1:-1], ",", ";")


# Possessive quantifiers, so that a long word costs one pass.
_NAME = re.compile(r"(?:\\?[A-Za-z]++(?:_\{?\s*\\?\w++\s*\}?)?+'?\s*+){1,6}(?:\([^()=]{1,20}\))?")


def _equation(text: str) -> tuple[str, str]:
    """(left, right) of `name = value` or `f(x) = value`; ("", text) for anything else, also other equations."""
    parts = split(text, "=", r"\in ")
    if len(parts) < 2 or len(parts[0]) > 60 or not _NAME.fullmatch(parts[0]):
        return "", text
    return parts[0], parts[-1]


def _right_hand_side(text: str) -> str:
    return _equation(text)[1]


def _ordered(gold: list[str], answer: list[str], match: Callable[[str, str], bool]) -> bool:
    return len(gold) == len(answer) and all(match(a, b) for a, b in zip(gold, answer, strict=True))


def _unordered(gold: list[str], answer: list[str], match: Callable[[str, str], bool]) -> bool:
    """Every element has its own partner: `1, 1, 2` is not `1, 2, 2`."""
    left = list(answer)
    for element in gold:
        partner = next((i for i, other in enumerate(left) if match(element, other)), None)
        if partner is None:
            return False
        del left[partner]
    return not left


# -------------------------------------------------------------------------------------------------- algebra


def _algebra(gold: str, answer: str) -> bool:
    from math_verify import verify

    wanted, found = _parsed(gold), _parsed(answer)
    if wanted is None or found is None:
        return False
    # `0 + m` has to become `m`: a symbol is compared by its name only. (Matrices do not know the question.)
    if getattr(wanted, "is_Symbol", False) != getattr(found, "is_Symbol", False):
        wanted, found = wanted.doit(), found.doit()
    # No time limits of its own: they rest on signals, which Python handles only between its own instructions.
    return verify(wanted, found, timeout_seconds=None)


@lru_cache(maxsize=4096)
def _parsed(text: str):
    r"""The sympy object that math-verify makes of a normalised answer, read as LaTeX only; None where it cannot.

    Its second reader, for expressions such as `2*3`, hands text to `sympy.parse_expr`, which evaluates Python code;
    it is left out, so nothing that a model wrote is ever evaluated. Its removal of units is off: it takes the m of
    `6m` for metres, and 6 would be as good as 6m (:func:`rpg.rewards.extract.normalise` has removed units).
    """
    from math_verify import parse

    found = parse(
        f"${_latex(text)}$", extraction_config=_reader(), fallback_mode="no_fallback", parsing_timeout=None
    )
    return found[0] if found else None


@lru_cache(maxsize=1)
def _reader() -> list:
    from math_verify import LatexExtractionConfig

    usual = LatexExtractionConfig()
    return [replace(usual, normalization_config=replace(usual.normalization_config, units=False))]


_PLAIN = [
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"(?<![\\\w])sqrt\s*\(([^()]*)\)"), r"\\sqrt{\1}"),
    (re.compile(r"(?<![\\\w])(pi|alpha|beta|gamma|theta|omega|lambda|tau|sigma)(?![A-Za-z])"), r"\\\1 "),
    (re.compile(r"(?<![\\\w])(sin|cos|tan|log|ln|exp|arcsin|arccos|arctan)(?![A-Za-z])"), r"\\\1"),
    (re.compile(r"\*"), r" \\cdot "),
    (re.compile(r"\^\(([^()]*)\)"), r"^{\1}"),
    (re.compile(r"\^(-?\d{2,})"), r"^{\1}"),
    # E with an index is an energy, not Euler's number with one, which the reader refuses; nor does it know the sun.
    (re.compile(r"(?<![\\A-Za-z])E(?=\s*_)"), r"\\Xi "),
    (re.compile(r"_\s*\{?\s*\\odot\s*\}?"), "_{sun}"),
]


def _latex(text: str) -> str:
    """Plain notation that people write within answers (`2*sqrt(3)`, `x**2`) as LaTeX."""
    for pattern, replacement in _PLAIN:
        text = pattern.sub(replacement, text)
    return text
