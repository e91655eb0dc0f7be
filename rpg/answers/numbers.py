"""Numbers with the way they were written: plain ones read from text, and expressions without
symbols.

Bounded: no text of a model makes a large computation.
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction

import mpmath

from rpg.answers import units, values
from rpg.answers.lexer import Unreadable
from rpg.answers.trees import (
    Negative,
    Numeral,
    Percent,
    Power,
    Product,
    Quantity,
    Tree,
    nodes,
)
from rpg.answers.typesetting import normalise, squeeze

_MAX_EXPONENT = 400

_UNSIGNED = r"(?:\d{1,60}(?:\.\d{0,60})?|\.\d{1,60})"
_DECIMAL = re.compile(
    rf"(?P<sign>[-+]?)(?P<mantissa>{_UNSIGNED})"
    r"(?:[eE](?P<e>[-+]?\d{1,3})|(?:\\times|\\cdot|\*|x)10(?:\^|\*\*)(?:\{(?P<b>[-+]?\d{1,3})\}|(?P<t>[-+]?\d{1,3})))?"
)
_FRACTION = re.compile(
    rf"(?P<sign>[-+]?)(?:\\frac(?:\{{(?P<n>[-+]?{_UNSIGNED})\}}|(?P<n1>\d))(?:\{{(?P<d>[-+]?{_UNSIGNED})\}}|(?P<d1>\d))"
    rf"|\(?(?P<p>{_UNSIGNED})\)?/\(?(?P<q>{_UNSIGNED})\)?)"
)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)(?:\.\d*)?%?")


SIGNIFICANT = 6
"""Digits that a decimal needs to count as the rounding of a number without finite decimals."""


@dataclass(frozen=True)
class Number:
    """A value and how it was written."""

    value: Fraction
    """Exact; where it comes from an expression (`worth`) it may be a number of mpmath."""
    unit: Fraction = Fraction(0)
    """Of the last digit, where it was written as a decimal: 0.01 for 3.14 and 1 for 314; 0 for
    anything else."""
    digits: int = 0
    """Significant digits of a decimal."""
    percent: bool = False
    """A percent sign followed; it is part of `value`."""


def number(text: str) -> Number | None:
    r"""The value of `12`, `1,234`, `-0.50`, `1.2e-5`, `1.2 \times 10^{-5}`, `1/2`, `\frac{1}{2}`,
    `62.5%`; else None.

    `text` is normalised (:func:`rpg.answers.extraction.normalise`).
    """
    if len(text) > 200:
        return None
    bare = squeeze(text)
    if _THOUSANDS.fullmatch(bare) and not re.search(r",\s", text):
        bare = bare.replace(",", "").replace(" ", "")
    percent = bare.endswith("%")
    bare = bare.removesuffix("%")
    if bare.startswith("(") and bare.endswith(")") and bare.count("(") == 1:
        bare = bare[1:-1]
    match = _DECIMAL.fullmatch(re.sub(r"^([-+]?)(?=10\^)", r"\g<1>1*", bare))
    if match:
        exponent = int(match["e"] or match["b"] or match["t"] or 0)
        if abs(exponent) > _MAX_EXPONENT:
            return None
        value = _unsigned(match["mantissa"]) * Fraction(10) ** exponent
        unit, digits = written(match["mantissa"], exponent)
    elif match := _FRACTION.fullmatch(bare):
        above = match["n"] or match["n1"] or match["p"]
        below = match["d"] or match["d1"] or match["q"]
        divisor = _unsigned(below)
        if not divisor:
            return None
        value = _unsigned(above) / divisor
        unit = Fraction(0)
        digits = 0
    else:
        return None
    value = -value if match["sign"] == "-" else value
    return Number(
        value / 100 if percent else value, unit / 100 if percent else unit, digits, percent
    )


def vote(extracted: str | None) -> str | None:
    """The same string for all ways to write an answer. Longer ones than graders read are as they
    are."""
    if extracted is None or len(extracted) > 2_000:
        return extracted
    text = normalise(extracted)
    value = number(text)
    return squeeze(text) if value is None else str(value.value)


def _unsigned(text: str) -> Fraction:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-").removesuffix(".")
    return sign * Fraction("0" + digits if digits.startswith(".") else digits)


def written(text: str, exponent: int = 0) -> tuple[Fraction, int]:
    """(Unit of the last digit, significant digits) of a decimal such as `0.0120`."""
    whole, _, decimals = text.lstrip("+-").partition(".")
    digits = (whole + decimals).lstrip("0")
    return Fraction(10) ** (exponent - len(decimals)), len(digits)


def same(gold: Number, answer: Number, relative_tolerance: float = 0.0) -> bool:
    """Whether two numbers are the same answer.

    Equal values are. Where one of them is no finite decimal (1/3), a decimal of at least six
    significant digits may be its rounding, or cut off; two finite decimals are never rounded onto
    each other. A percent sign is a hundredth; where the gold answer has one, the number before it
    alone counts, too.
    """
    bare = replace(gold, value=gold.value * 100, percent=False)
    if gold.percent and not answer.percent and same(bare, answer):
        return True
    if gold.value == answer.value:
        return True
    gap = abs(gold.value - answer.value)
    if relative_tolerance and gap <= Fraction(relative_tolerance) * abs(gold.value):
        return True
    return _periodic_rounded(gold, answer) or _periodic_rounded(answer, gold)


def _periodic_rounded(decimal: Number, exact: Number) -> bool:
    if decimal.digits < SIGNIFICANT or finite(exact.value):
        return False
    return _rounded(exact.value, decimal)


def _rounded(exact: values.Value, decimal: Number) -> bool:
    """To the nearest last digit, or cut off behind it."""
    value: values.Value = decimal.value
    unit: values.Value = decimal.unit
    if not isinstance(exact, Fraction):
        value = values.mp(value)
        unit = values.mp(unit)
    if exact * value <= 0:  # other signs
        return False
    return bool(-unit <= 2 * (abs(exact) - abs(value)) < 2 * unit)


def finite(value: Fraction) -> bool:
    """Whether the decimal expansion ends."""
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def worth(tree: Tree) -> Number:
    """A tree without symbols as a number. Raises Unreadable: it has no value, or one beyond the
    bounds."""
    try:
        value = values.evaluate(tree)
    except values.Undefined as error:
        raise Unreadable(f"no value: {error}") from None
    bare = tree.operand if isinstance(tree, Negative) else tree
    unit, digits = _written(tree)
    return Number(value, unit, digits, percent=isinstance(bare, Percent))


def _written(tree: Tree) -> tuple[Fraction, int]:
    """As in Number, of `3.14`, `-3.14`, `3.1 \\times 10^{-5}`, `3.14%`."""
    match tree:
        case Numeral(text=text):
            plain = text.replace(",", "").replace(" ", "").rstrip(".")
            if "(" in plain:
                return Fraction(0), 0
            mantissa, _, exponent = plain.lower().partition("e")
            return written(mantissa, int(exponent or 0))
        case Negative(operand):
            return _written(operand)
        case Percent(operand):
            unit, digits = _written(operand)
            return unit / 100, digits
        case Quantity(amount, name):
            unit, digits = _written(amount)
            known = units.unit(name)
            return (unit if known is None else unit * known[0]), digits
        case Product(factor, Power(Numeral(value=base)) as power) if base == 10:
            unit, digits = _written(factor)
            scale = values.evaluate(power)
            if isinstance(scale, Fraction):
                return unit * scale, digits
    return Fraction(0), 0


def was_rounded(tree: Tree) -> bool:
    """Whether a value has a number that may have been rounded: `3.14`, `6.1 \\times 10^{12}`, not
    `314` or `22/7`."""
    numerals = (node for node in nodes(tree) if isinstance(node, Numeral))
    return any("." in numeral.text or "e" in numeral.text for numeral in numerals)


def same_value(gold: Tree, answer: Tree, tolerance: float) -> bool:
    """Whether two expressions without symbols are the same answer (`same`). Raises Unreadable: no
    value in bounds."""
    if gold == answer:
        return True
    expected = worth(gold)
    stated = worth(answer)
    if isinstance(expected.value, Fraction) and isinstance(stated.value, Fraction):
        return same(expected, stated, tolerance)
    if values.close(expected.value, stated.value):
        return True
    with mpmath.workprec(values.BITS):
        a = values.mp(expected.value)
        b = values.mp(stated.value)
        if mpmath.im(a) != 0 or mpmath.im(b) != 0:
            return False
        if tolerance and abs(a - b) <= tolerance * abs(a):
            return True
        return _irrational_rounded(expected, stated) or _irrational_rounded(stated, expected)


def _irrational_rounded(decimal: Number, exact: Number) -> bool:
    """What is not rational has no finite decimals: a decimal may be its rounding."""
    if not isinstance(decimal.value, Fraction) or decimal.digits < SIGNIFICANT:
        return False
    return _rounded(values.mp(exact.value), decimal)


def same_number(gold: Tree, answer: Tree, tolerance: float) -> bool:
    """`same_value`, in the base that the gold answer names, if it does: then its digits alone
    count, too."""
    if isinstance(gold, Numeral) and gold.written and isinstance(answer, Numeral):
        if answer.written and answer.written.base != gold.written.base:
            return False
        return gold.value == answer.value or gold.written.digits == answer.text
    return same_value(gold, answer, tolerance)


def rounds(exact: Tree, decimal: Tree) -> bool:
    """Whether a decimal is near a number, to less than one unit of the last digit of either."""
    if values.symbols(exact) or values.symbols(decimal):
        return False
    try:
        a = worth(exact)
        b = worth(decimal)
    except Unreadable:
        return False
    if values.close(a.value, b.value):
        return True
    with mpmath.workprec(200):
        return bool(abs(values.mp(a.value) - values.mp(b.value)) < values.mp(max(a.unit, b.unit)))
