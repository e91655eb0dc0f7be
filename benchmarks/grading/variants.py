"""Other ways to write an answer, and answers that are close to it but wrong. Made from any gold
answer."""

import re
from collections.abc import Iterator
from fractions import Fraction

from rpg.answers.numbers import number
from rpg.answers.typesetting import normalise

READABLE = re.compile(r"(?:(?!\\cup|infty|=|\\le|\\ge|where|\\begin|^\[[^]]*,).)*")
"""Expressions around which more algebra can be written."""


def equivalents(gold: str) -> dict[str, str]:
    """At least five responses' last lines that give the same answer as `gold`."""
    bare = normalise(gold)
    forms = {
        "as it stands": gold,
        "dollars": f"${bare}$",
        "boxed": rf"$\boxed{{{bare}}}$",
        "spaced": "  " + re.sub(r"(?<=[+\-=,()])(?=[^\s])|(?=[+=,()])", " ", bare) + "  ",
        "display": rf"\[ {bare} \]",
        "full stop": f"{bare}.",
        "bold": f"**{bare}**",
        "sized": bare.replace("(", r"\left(").replace(")", r"\right)"),
        "big fractions": bare.replace(r"\frac", r"\dfrac"),
    }
    value = number(bare)
    if value is not None:
        exact, mark = value.value * (100 if value.percent else 1), "%" if value.percent else ""
        forms["over one"] = f"{exact.numerator}/{exact.denominator}{mark}"
        forms["fraction"] = rf"\frac{{{exact.numerator}}}{{{exact.denominator}}}{mark}"
        forms["with a unit"] = bare + (r"\text{ cm}" if not mark and "circ" not in gold else "")
        forms["with a name"] = f"x = {bare}"
        if Fraction(exact).limit_denominator(1000) == exact and set(_primes(exact.denominator)) <= {
            2,
            5,
        }:
            forms["decimal"] = _decimal(exact) + mark
        if exact.denominator == 1 and abs(exact) >= 1000 and not value.percent:
            forms["thousands"] = f"{exact.numerator:,}"
            forms["TeX thousands"] = f"{exact.numerator:,}".replace(",", "{,}")
        if exact and not value.percent:
            digits = _decimal(exact) if set(_primes(exact.denominator)) <= {2, 5} else None
            if digits and len(digits) < 40:
                forms["scientific"] = rf"{_decimal(exact / 10**3)} \times 10^{{3}}"
    elements = _elements(bare)
    name, right = _equation(bare)
    if value is None and len(elements) == 1 and not _brackets(bare) and READABLE.fullmatch(right):
        head = f"{name} = " if name else ""
        forms["zero added"] = f"{head}0 + {right}"
        forms["parentheses"] = f"{head}({right})"
        forms["twice half"] = rf"{head}2 \cdot \frac{{{right}}}{{2}}"
    if len(elements) > 1 and "where" not in bare:  # not of a sentence
        forms["other order"] = ", ".join(reversed(elements))
        forms["and"] = ", ".join(elements[:-1]) + " and " + elements[-1]
        forms["a set"] = r"\{" + ", ".join(elements) + r"\}"
    return forms


def near_misses(gold: str) -> dict[str, str]:
    """At least five last lines that look like `gold` and are wrong."""
    bare = normalise(gold)
    value = number(bare)
    if value is not None:
        x, mark = value.value * (100 if value.percent else 1), "%" if value.percent else ""
        misses = {
            "plus one": f"{_written(x + 1)}{mark}",
            "minus one": f"{_written(x - 1)}{mark}",
            "times ten": f"{_written(x * 10 or Fraction(10))}{mark}",
            "off by a thousandth": f"{_written(x * Fraction(1001, 1000) + (x == 0))}{mark}",
            "half": f"{_written(x / 2 if x else Fraction(1, 2))}{mark}",
            "with x": f"{bare} + x" if mark or not x else f"{bare} x",
            "an interval": f"({bare}, {_written(x + 1)})",
        }
        if x:
            misses["sign"] = f"{_written(-x)}{mark}"
        return misses
    elements = _elements(bare)
    if len(elements) > 1:
        return {
            "one missing": ", ".join(elements[1:]),
            "one more": ", ".join([*elements, "17/19"]),
            "one changed": ", ".join([_changed(elements[0]), *elements[1:]]),
            "last changed": ", ".join([*elements[:-1], _changed(elements[-1])]),
            "one only": elements[0],
            "another twice": ", ".join([*elements, elements[0]]),
        }
    if _brackets(bare) and len(_inside(bare)) > 1:
        inside = _inside(bare)
        left, right = bare[0], bare[-1]
        misses = {
            "first changed": f"{left}{', '.join([_changed(inside[0]), *inside[1:]])}{right}",
            "last changed": f"{left}{', '.join([*inside[:-1], _changed(inside[-1])])}{right}",
            "one missing": f"{left}{', '.join(inside[:-1])}{right}",
            "one more": f"{left}{', '.join([*inside, '17/19'])}{right}",
            "first only": inside[0],
            "last only": inside[-1],
        }
        if list(reversed(inside)) != inside:
            misses["other order"] = f"{left}{', '.join(reversed(inside))}{right}"
        return misses
    parts = split(bare, r"\cup")
    if len(parts) > 1:
        return {
            "one part": parts[0],
            "other part": parts[-1],
            "one more": bare + r" \cup (100, 101)",
            "number": "17/19",
            "doubled": rf"{parts[0]} \cup {parts[0]}",
        }
    name, right = _equation(bare)
    head = f"{name} = " if name else ""
    relation = re.match(r"(.*?)(=|\\le|\\ge|<|>)(.*)", bare) if not name else None
    if relation:  # an equation or inequality: its last side is changed
        left, sign, last = relation.groups()
        change = lambda text: f"{left}{sign} {text}"  # noqa: E731
    else:
        last, change = right, lambda text: f"{head}{text}"
    return {
        "plus one": change(f"{last} + 1"),
        "minus one": change(f"{last} - 1"),
        "twice": change(rf"2 \cdot ({last}) + 3"),
        "sign": change(f"-({last}) - 3"),
        "plus a symbol": change(f"{last} + q"),
        "squared": change(f"({last})^2 + 7"),
        "a number": "17/19",
    }


def _changed(text: str) -> str:
    value = number(text)
    if value is not None:
        return _written(value.value + 1)
    if "infty" in text:
        return "17/19"
    name, right = _equation(text)
    if _brackets(right):
        inside = _inside(right)
        return f"{right[0]}{', '.join([_changed(inside[0]), *inside[1:]])}{right[-1]}"
    return (f"{name} = " if name else "") + f"{right} + 1"


def _written(x: Fraction) -> str:
    if x.denominator == 1:
        return str(x.numerator)
    return f"{x.numerator}/{x.denominator}"


def _primes(n: int) -> list[int]:
    out, p = [], 2
    while n > 1 and p < 1000:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return out + ([n] if n > 1 else [])


def _decimal(x: Fraction) -> str:
    places = 0
    while (x * 10**places).denominator != 1:
        places += 1
    digits = str(abs((x * 10**places).numerator)).rjust(places + 1, "0")
    text = digits if places == 0 else f"{digits[:-places]}.{digits[-places:]}"
    return ("-" if x < 0 else "") + text


# ---------------------------------------------------------------------------------------- the
# structure of a gold answer

_OPEN, _CLOSE = "([{", ")]}"


def split(text: str, *separators: str) -> list[str]:
    r"""Parts of `text` between separators that stand outside of all brackets (`\{` counts as
    one)."""
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


def _elements(text: str) -> list[str]:
    r"""`1, 2 and 3`, `\{1,2,3\}` and `1 \pm 2` are lists, whose order does not matter; anything
    else is a list of one."""
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
    """First and last character where they are the brackets around the whole text, as in a tuple or
    interval."""
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


_NAME = re.compile(r"(?:\\?[A-Za-z]++(?:_\{?\s*\\?\w++\s*\}?)?+'?\s*+){1,6}(?:\([^()=]{1,20}\))?")


def _equation(text: str) -> tuple[str, str]:
    """(left, right) of `name = value` or `f(x) = value`; ("", text) for anything else, also other
    equations."""
    parts = split(text, "=", r"\in ")
    if len(parts) < 2 or len(parts[0]) > 60 or not _NAME.fullmatch(parts[0]):
        return "", text
    return parts[0], parts[-1]
