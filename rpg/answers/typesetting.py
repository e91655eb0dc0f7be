"""What of an answer is only typesetting: boxes and braces in LaTeX, and a text without them in its
normal form."""

import re
from typing import NamedTuple

_BOX_OR_BRACE = re.compile(
    r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL
)


class Box(NamedTuple):
    """Where a box begins, where its content does, and where the content ends."""

    begin: int
    start: int
    end: int

    def of(self, text: str) -> str:
        """The content."""
        return text[self.start : self.end]


def boxes(text: str) -> list[Box]:
    """All boxes whose braces close, in one pass, whatever the text."""
    found: list[Box] = []
    open_braces: list[re.Match[str] | None] = []  # a box's match; None for any other brace
    for match in _BOX_OR_BRACE.finditer(text):
        if match["box"] or match["open"]:
            open_braces.append(match if match["box"] else None)
        elif match["close"] and open_braces:
            box = open_braces.pop()
            if box is not None and text[box.end() : match.start()].strip():
                found.append(Box(box.start(), box.end(), match.start()))
    return found


def braced(text: str, i: int) -> tuple[int | None, int]:
    """Where the content of the brace that opens at or after i begins and ends; (None, i) without
    one.

    One that does not close reaches to the end of the text.
    """
    i = len(text) - len(text[i:].lstrip())
    if not text.startswith("{", i):
        return None, i
    depth = 0
    start = i + 1
    while i < len(text):
        if text[i] == "\\":
            i += 2
            continue
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return start, i
        i += 1
    return start, len(text)


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
    (
        re.compile(r"\\(?:operatorname|text|mathrm|mbox|textbf|mathbf|rm)\s*\{\s*(and|or)\s*\}"),
        r" \1 ",
    ),
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
    rf"\\(?:mathrm|text|mbox|textrm|rm)\s*\{{\s*{_product(_EITHER_UNIT)}[\s.]*\}}"
    r"(?:\s*\^\s*\{?-?\d\}?)?"
)
_TRAILING_UNIT = re.compile(rf"(?<=[\d}})%])\s*(?:{_SET_UNIT}|\s{_product(_UNIT)})\s*\.?$")
_WRAPPED = re.compile(r"\\(?:text|mathrm|mbox|textbf|mathbf|textrm)\s*(?=\{)")
_BLANK = re.compile(r"(?<![\d.])\s+|\s+(?![\d.])")


def normalise(text: str) -> str:
    r"""An answer without what only typesets it: `$\boxed{\dfrac{1}{2}\text{ cm}}$.` becomes
    `\frac{1}{2}`.

    Dollar signs, delimiter sizes, spacing commands, degree signs, bold, a trailing full stop and a
    trailing unit of measurement go; synonyms get one name. Nothing is reordered and nothing
    computed.
    """
    text = text.strip(" \t\r\n*_`")
    alone = boxes(text)
    if len(alone) == 1:
        text = alone[0].of(text)
    while several := boxes(
        text
    ):  # several are one answer: naming two where one is asked for is wrong
        last = max(several)
        text = text[: last.begin] + last.of(text) + text[last.end + 1 :]
    for pattern, replacement in _RENAMED:
        text = pattern.sub(replacement, text)
    text = _DROPPED.sub(" ", text)
    text = " ".join(text.split()).rstrip(".,;: ")
    text = _TRAILING_UNIT.sub("", text).strip()
    match = _WRAPPED.match(text)
    if match and braced(text, match.end())[1] == len(text) - 1:
        text = text[match.end() + 1 : -1].strip()
    return text.rstrip(".,;: ").strip()


def squeeze(text: str) -> str:
    """Without white space, except between two digits (`1 2` is not `12`): the form in which texts
    are compared."""
    return _BLANK.sub("", text)
