"""Where in a response its answer stands, and what that answer says once its typesetting is gone. Pure text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_ANSWER = re.compile(r"answer[ \t*_]*:[ \t*_]*", re.IGNORECASE)
_BOX_OR_BRACE = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)


def answer_line(response: str) -> tuple[str | None, bool]:
    """What follows the last `Answer:` (any case, bold or not), and whether a line break ends it.

    The recipe of the paper (App. H) asks for the answer on a last line of its own; as in its released verifier, an
    answer on the line below the marker counts too. None where there is no marker.
    """
    last = None
    for last in _ANSWER.finditer(response):  # noqa: B007 - the last match is what is wanted
        pass
    if last is None:
        return None, False
    tail = response[last.end() :].lstrip()
    line, newline, _ = tail.partition("\n")
    return line.strip(), bool(newline)


def last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` whose braces close, else None."""
    boxes = _boxes(text)
    return _content(text, max(boxes)) if boxes else None


def _content(text: str, box: _Box) -> str:
    return text[box.start : box.end]


class _Box(NamedTuple):
    """Where a box begins, where its content does, and where the content ends."""

    begin: int
    start: int
    end: int


def _boxes(text: str) -> list[_Box]:
    """All boxes whose braces close, in one pass, whatever the text."""
    found: list[_Box] = []
    open_braces: list[re.Match | None] = []  # a box's match; None for any other brace
    for match in _BOX_OR_BRACE.finditer(text):
        if match["box"]:
            open_braces.append(match)
        elif match["open"]:
            open_braces.append(None)
        elif match["close"] and open_braces:
            box = open_braces.pop()
            if box is not None:
                found.append(_Box(box.start(), box.end(), match.start()))
    return found


def closing(text: str, start: int) -> int | None:
    r"""Index of the brace that closes the one at `start` (escaped braces `\{` do not count), else None."""
    depth = 0
    escaped = False
    for i in range(start, len(text)):
        c = text[i]
        if escaped:
            escaped = False
        elif c == "\\":
            escaped = True
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return i
    return None


_DROPPED = re.compile(
    # Not after a backslash: two of them end a row of a matrix.
    r"(?<!\\)(?:\\left(?![a-z])\.?|\\right(?![a-z])\.?|\\[Bb]igg?[lr]?(?![a-z])|\\displaystyle|\\quad|\\qquad"
    r"|\\limits(?![a-z])|\\[!,;:> ]|\\\(|\\\)|\\\[|\\\]|\\\$)|~|\$|[€£]|\u200b"
)
_RENAMED = [
    (re.compile(r"(\\\\)\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\]"), r"\1"),  # space between rows
    (re.compile(r"\\[dtc]frac(?![a-z])"), r"\\frac"),
    (re.compile(r"\\(leq?slant|leq)(?![a-z])"), r"\\le"),
    (re.compile(r"\\(geq?slant|geq)(?![a-z])"), r"\\ge"),
    (re.compile(r"<=|≤"), r"\\le "),
    (re.compile(r">=|≥"), r"\\ge "),
    (re.compile(r"\\in(?![a-z])"), r"\\in "),
    (re.compile(r"\\(?:operatorname|text|mathrm|mbox|textbf|mathbf|rm)\s*\{\s*(and|or)\s*\}"), r" \1 "),
    (re.compile(r"[−–]"), "-"),
    (re.compile(r"×"), r"\\times "),
    (re.compile(r"π"), r"\\pi "),
    (re.compile(r"∞"), r"\\infty "),
    (re.compile(r"√\s*(\d+|\([^()]*\))"), r"\\sqrt{\1}"),
    (re.compile(r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ|\\degree|°|\bdegrees?\b"), ""),
    (re.compile(r"\\%|\\?\bper ?cent\b"), "%"),
    (re.compile(r"(?<=\d)\s*\{,\}\s*(?=\d{3})"), ","),
]
_LETTER_UNIT = "[mgshKJWNVL]"
_UNIT = (
    r"(?:mm|cm|dm|km|ft|feet|foot|in|inch(?:es)?|miles?|mi|yards?|met(?:er|re)s?|kilomet(?:er|re)s?"
    r"|centimet(?:er|re)s?|mg|kg|grams?|lbs?|pounds?|seconds?|secs?|ms|minutes?|mins?|hours?|hrs?|days?|weeks?"
    r"|months?|years?|yrs?|kelvins?|joules?|eV|keV|MeV|watts?|newtons?|Pa|Hz|volts?|mol|lit(?:er|re)s?|ml"
    r"|AU|pc|kpc|Mpc|ly|erg|dollars?|cents?|units?|square|cubic|sq|radians?|rad|mph|per|points?)"
)


def _product(unit: str) -> str:
    power = r"(?:\s*\^\s*\{?-?\d\}?)?"
    return rf"{unit}{power}(?:\s*(?:[/*·]|\\cdot|\s)\s*{unit}{power}){{0,3}}"


_EITHER_UNIT = f"(?:{_UNIT}|{_LETTER_UNIT})"
_SET_UNIT = (
    rf"\\(?:mathrm|text|mbox|textrm|rm)\s*\{{\s*{_product(_EITHER_UNIT)}[\s.]*\}}(?:\s*\^\s*\{{?-?\d\}}?)?"
)
_TRAILING_UNIT = re.compile(rf"(?<=[\d}})%])\s*(?:{_SET_UNIT}|\s{_product(_UNIT)})\s*\.?$")
_TRAILING_LETTER_UNIT = re.compile(rf"(?<=[\d}})])\s?{_product(_EITHER_UNIT)}$")
_WRAPPED = re.compile(r"\\(?:text|mathrm|mbox|textbf|mathbf|textrm)\s*(?=\{)")


def normalise(text: str) -> str:
    r"""An answer without what only typesets it: `$\boxed{\dfrac{1}{2}\text{ cm}}$.` becomes `\frac{1}{2}`.

    Dollar signs, delimiter sizes, spacing commands, degree signs, bold, a trailing full stop and a trailing unit of
    measurement go; synonyms get one name. Nothing is reordered and nothing computed.
    """
    text = text.strip(" \t\r\n*_`")
    boxes = _boxes(text)
    if len(boxes) == 1:
        text = _content(text, boxes[0])
    while boxes := _boxes(
        text
    ):  # several are one answer: naming two where one is asked for is no way to be right
        last = max(boxes)
        text = text[: last.begin] + _content(text, last) + text[last.end + 1 :]
    for pattern, replacement in _RENAMED:
        text = pattern.sub(replacement, text)
    text = _DROPPED.sub(" ", text)
    text = " ".join(text.split()).rstrip(".,;: ")
    text = _TRAILING_UNIT.sub("", text).strip()
    match = _WRAPPED.match(text)
    if match and closing(text, match.end()) == len(text) - 1:
        text = text[match.end() + 1 : -1].strip()
    return text.rstrip(".,;: ").strip()


def without_unit(text: str) -> str:
    """`9.8 m/s^2` becomes `9.8`: only where a number is expected, since a letter may be a variable elsewhere."""
    return _TRAILING_LETTER_UNIT.sub("", text).strip()


_BLANK = re.compile(r"(?<![\d.])\s+|\s+(?![\d.])")


def squeeze(text: str) -> str:
    """Without white space, except between two digits (`1 2` is not `12`): the form in which texts are compared."""
    return _BLANK.sub("", text)


_OPEN, _CLOSE = "([{", ")]}"


def split(text: str, *separators: str) -> list[str]:
    r"""Parts of `text` between separators that stand outside of all brackets (`\{` counts as one)."""
    return list(_parts(text, separators))


def _parts(text: str, separators: tuple[str, ...]) -> Iterator[str]:
    depth = start = i = 0
    while i < len(text):
        c = text[i]
        if c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            depth = max(depth - 1, 0)
        elif depth == 0:
            found = next((s for s in separators if text.startswith(s, i)), None)
            if found:
                yield text[start:i].strip()
                i += len(found)
                start = i
                continue
        i += 1
    yield text[start:].strip()
