"""Expression trees without symbols as numbers: what they are worth and how they were written."""

from __future__ import annotations

from fractions import Fraction

import mpmath

from rpg.rewards import numbers, values
from rpg.rewards.numbers import Number
from rpg.rewards.tokens import Unreadable
from rpg.rewards.trees import Tree


def worth(tree: Tree) -> Number:
    """A tree without symbols as a number.

    Raises:
        Unreadable: it has no value, or one beyond the bounds.
    """
    try:
        value = values.evaluate(tree)
    except values.Undefined as error:
        raise Unreadable(f"no value: {error}") from None
    unit, digits = _written(tree)
    return Number(
        value, unit, digits, tree[0] == "percent" or (tree[0] == "negative" and tree[1][0] == "percent")
    )


def _written(tree: Tree) -> tuple[Fraction, int]:
    """As in Number, of `3.14`, `-3.14`, `3.1 \\times 10^{-5}`, `3.14%`."""
    kind = tree[0]
    if kind == "number":
        plain = tree[2].replace(",", "").replace(" ", "").rstrip(".")
        mantissa, _, exponent = plain.lower().partition("e")
        return (Fraction(0), 0) if "(" in plain else numbers.written(mantissa, int(exponent or 0))
    if kind == "negative":
        return _written(tree[1])
    if kind == "percent":
        unit, digits = _written(tree[1])
        return unit / 100, digits
    if kind == "multiply" and tree[2][0] == "power" and tree[2][1][:2] == ("number", 10):
        unit, digits = _written(tree[1])
        power = values.evaluate(tree[2])
        return (unit * power, digits) if isinstance(power, Fraction) else (Fraction(0), 0)
    return Fraction(0), 0


def same_value(gold: Tree, answer: Tree, tolerance: float) -> bool:
    """Whether two expressions without symbols are the same answer (rpg.rewards.numbers.same).

    Raises:
        Unreadable: one has no value, or one beyond the bounds.
    """
    if gold == answer:
        return True
    one, other = worth(gold), worth(answer)
    if isinstance(one.value, Fraction) and isinstance(other.value, Fraction):
        return numbers.same(one, other, tolerance)
    if values.close(one.value, other.value):
        return True
    if mpmath.im(values.mp(one.value)) != 0 or mpmath.im(values.mp(other.value)) != 0:
        return False
    with mpmath.workprec(200):
        gap = abs(values.mp(one.value) - values.mp(other.value))
        if tolerance and gap <= tolerance * abs(values.mp(one.value)):
            return True
        # What is not rational has no finite decimals: a decimal may be its rounding.
        return any(
            isinstance(a.value, Fraction) and a.digits >= numbers.SIGNIFICANT and gap < values.mp(a.unit)
            for a in (one, other)
        )


def rounds(exact: Tree, decimal: Tree) -> bool:
    """Whether a decimal is near a number, to less than one unit of the last digit of either."""
    if values.symbols(exact) or values.symbols(decimal):
        return False
    try:
        a, b = worth(exact), worth(decimal)
    except Unreadable:
        return False
    if values.close(a.value, b.value):
        return True
    with mpmath.workprec(200):
        return abs(values.mp(a.value) - values.mp(b.value)) < values.mp(max(a.unit, b.unit))
