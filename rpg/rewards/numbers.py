"""Plain numbers in the ways people write them, exactly. Bounded: no text of a model makes a large computation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from rpg.rewards.extract import squeeze

_MAX_EXPONENT = 400

_UNSIGNED = r"(?:\d{1,60}(?:\.\d{0,60})?|\.\d{1,60})"
_DECIMAL = re.compile(
    rf"(?P<sign>[-+]?)(?P<mantissa>{_UNSIGNED})"
    r"(?:[eE](?P<e>[-+]?\d{1,3})|(?:\\times|\\cdot|\*|x)10(?:\^|\*\*)(?:\{(?P<b>[-+]?\d{1,3})\}|(?P<t>[-+]?\d{1,3})))?"
)
_POWER_OF_TEN = re.compile(r"(?P<sign>[-+]?)10\^(?:\{(?P<b>[-+]?\d{1,3})\}|(?P<t>\d{1,3}))")
_FRACTION = re.compile(
    rf"(?P<sign>[-+]?)(?:\\frac(?:\{{(?P<n>[-+]?{_UNSIGNED})\}}|(?P<n1>\d))(?:\{{(?P<d>[-+]?{_UNSIGNED})\}}|(?P<d1>\d))"
    rf"|\(?(?P<p>{_UNSIGNED})\)?/\(?(?P<q>{_UNSIGNED})\)?)"
)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)(?:\.\d*)?%?")


@dataclass(frozen=True)
class Number:
    """An exact value and how it was written."""

    value: Fraction
    decimal: bool = False
    """Written with a decimal point or a power of ten."""
    percent: bool = False
    """A percent sign followed; `value` is the number before it."""


def number(text: str) -> Number | None:
    r"""The value of `12`, `1,234`, `-0.50`, `1.2e-5`, `1.2 \times 10^{-5}`, `1/2`, `\frac{1}{2}`, `62.5%`; else None.

    `text` is normalised (:func:`rpg.rewards.extract.normalise`).
    """
    if len(text) > 200:
        return None
    bare = squeeze(text)
    if _THOUSANDS.fullmatch(bare):
        bare = bare.replace(",", "").replace(" ", "")
    percent = bare.endswith("%")
    bare = bare.removesuffix("%")
    if bare.startswith("(") and bare.endswith(")") and bare.count("(") == 1:
        bare = bare[1:-1]
    if match := _DECIMAL.fullmatch(bare):
        exponent = int(match["e"] or match["b"] or match["t"] or 0)
        if abs(exponent) > _MAX_EXPONENT:
            return None
        value = _unsigned(match["mantissa"]) * Fraction(10) ** exponent
        written = bool(exponent) or "." in match["mantissa"]
    elif match := _POWER_OF_TEN.fullmatch(bare):
        exponent = int(match["b"] or match["t"])
        if abs(exponent) > _MAX_EXPONENT:
            return None
        value, written = Fraction(10) ** exponent, False
    elif match := _FRACTION.fullmatch(bare):
        above = match["n"] or match["n1"] or match["p"]
        below = match["d"] or match["d1"] or match["q"]
        divisor = _unsigned(below)
        if not divisor:
            return None
        value, written = _unsigned(above) / divisor, False
    else:
        return None
    return Number(-value if match["sign"] == "-" else value, written, percent)


def _unsigned(text: str) -> Fraction:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-").removesuffix(".")
    return sign * Fraction("0" + digits if digits.startswith(".") else digits)


ROUNDING = Fraction(5, 10**6)


def same(gold: Number, answer: Number, relative_tolerance: float = 0.0) -> bool:
    """Whether two numbers are the same answer.

    Equal values are. Where one of them is no finite decimal (1/3), a decimal that agrees with it to six significant
    digits is its rounding; two decimals, or a decimal and an integer, are never rounded onto each other.
    With one percent sign the number before it or its hundredth may be meant: 62.5% is 62.5 and 0.625.
    """
    if gold.percent != answer.percent:
        bare = same(
            Number(gold.value, gold.decimal), Number(answer.value, answer.decimal), relative_tolerance
        )
        return bare or same(_hundredth(gold), _hundredth(answer), relative_tolerance)
    if gold.value == answer.value:
        return True
    gap = abs(gold.value - answer.value)
    if relative_tolerance and gap <= Fraction(relative_tolerance) * abs(gold.value):
        return True
    rounded = (gold.decimal and not _finite(answer.value)) or (answer.decimal and not _finite(gold.value))
    return rounded and gap < ROUNDING * abs(gold.value)


def _hundredth(n: Number) -> Number:
    return Number(n.value / 100, True) if n.percent else Number(n.value, n.decimal)


def _finite(value: Fraction) -> bool:
    """Whether the decimal expansion ends."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
