"""What expression trees are worth: exactly where rational numbers suffice, else to fifty digits.
Bounded: whatever the tree, no number grows beyond some thousand digits.
"""

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import mpmath

from rpg.answers.lexer import Unreadable
from rpg.answers.trees import (
    Bracketed,
    Call,
    Factorial,
    FiniteSet,
    Negative,
    Numeral,
    Percent,
    Power,
    Product,
    Quantity,
    Quotient,
    Remainder,
    Sum,
    Symbol,
    Tree,
    nodes,
    rebuilt,
)
from rpg.answers.units import unit

BITS = 200
_EXACT_BITS = 30_000
_MAX_EXPONENT = 100_000
_CLOSE = mpmath.mpf(2) ** -110
_CONSTANTS = {"pi", "e", "i"}
Value: TypeAlias = Any
"""A Fraction where it is exact, else a real or complex number of mpmath, which has no types of its
own."""


class TooLarge(Unreadable):
    """A number beyond the bounds."""


class Undefined(ValueError):
    """No value here: a division by zero, a logarithm of zero."""


def symbols(tree: Tree) -> frozenset[str]:
    """Names of a tree's variables; `e`, `i` and pi are constants."""
    names = frozenset(node.name for node in nodes(tree) if isinstance(node, Symbol))
    return names - _CONSTANTS


def has_unit(tree: Tree) -> bool:
    return any(isinstance(node, Quantity) for node in nodes(tree))


def dimension(tree: Tree) -> dict[str, int]:
    """Powers of the base units of a value. Raises Unreadable: a sum of different ones."""
    match tree:
        case Quantity(_, name):
            _, powers = _scale_and_powers(name)
            return {base: exponent for base, exponent in powers.items() if base != "pi"}
        case Negative(operand) | Percent(operand):
            return dimension(operand)
        case Sum(left, right):
            powers = dimension(left)
            if powers != dimension(right):
                raise Unreadable("a sum of different units")
            return powers
        case Product(left, right):
            return _added(dimension(left), dimension(right), 1)
        case Quotient(left, right):
            return _added(dimension(left), dimension(right), -1)
    return {}


def _added(left: dict[str, int], right: dict[str, int], sign: int) -> dict[str, int]:
    """The powers of base units in a product (sign 1) or a quotient (sign -1)."""
    powers = dict(left)
    for base, exponent in right.items():
        powers[base] = powers.get(base, 0) + sign * exponent
    return {base: exponent for base, exponent in powers.items() if exponent}


def _scale_and_powers(name: str) -> tuple[Fraction, dict[str, int]]:
    """Of a unit; an unknown one counts as 1."""
    known = unit(name)
    if known is None:
        return Fraction(1), {}
    scale, powers = known
    return scale, dict(powers)


def bare(tree: Tree) -> Tree:
    """Without units."""
    if isinstance(tree, Quantity):
        return bare(tree.amount)
    return rebuilt(tree, bare)


def evaluate(tree: Tree, at: dict[str, Fraction] | None = None) -> Value:
    """The value of a tree where its symbols have these values. Raises Undefined: there is none;
    TooLarge: a number on the way is beyond the bounds; Unreadable: the tree is a collection, or a
    function that is not known here.
    """
    with mpmath.workprec(BITS):
        try:
            return _value(tree, at or {})
        except (Unreadable, Undefined):
            raise
        except (ArithmeticError, ValueError) as error:
            raise Undefined(str(error)) from None


def _value(tree: Tree, at: dict[str, Fraction]) -> Value:
    match tree:
        case Numeral():
            return tree.value
        case Symbol():
            return _symbol(tree.name, at)
        case Sum() | Product() | Quotient() | Remainder():
            return _arithmetic(
                _OPERATORS[type(tree)], _value(tree.left, at), _value(tree.right, at)
            )
        case Negative():
            return -_value(tree.operand, at)
        case Power():
            return _power(_value(tree.base, at), _value(tree.exponent, at))
        case Call():
            return _call(tree, at)
        case Percent():
            return _value(Product(tree.operand, Numeral(Fraction(1, 100), "")), at)
        case Quantity():
            return _value(Product(tree.amount, _unit_as_number(tree.unit)), at)
        case Factorial():
            return _factorial(_value(tree.operand, at))
    raise Unreadable(f"no value of a {tree.kind}")


def _arithmetic(operation: Callable[[Value, Value], Value], a: Value, b: Value) -> Value:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return _bounded(operation(a, b))
    return _bounded(operation(mp(a), mp(b)))


def _unit_as_number(name: str) -> Tree:
    """What a unit is worth in base units; an angle's has a factor of pi."""
    scale, powers = _scale_and_powers(name)
    factor = Numeral(scale, "")
    return Product(factor, Symbol("pi")) if powers.get("pi") else factor


def _symbol(name: str, at: dict[str, Fraction]) -> Value:
    if name in at:
        return at[name]
    if name == "i":
        return mpmath.mpc(0, 1)
    if name not in _CONSTANTS:
        raise Undefined(name)
    return +getattr(mpmath, name)


def divided(a: Value, b: Value) -> Value:
    """a / b. Raises Undefined: b is 0."""
    if b == 0:
        raise Undefined("division by zero")
    return a / b


def _remainder(a: Value, b: Value) -> Value:
    if not isinstance(a, Fraction) or not isinstance(b, Fraction) or b <= 0:
        raise Undefined("a remainder of what is no number")
    return a % b


_OPERATORS: dict[type[Tree], Callable[[Value, Value], Value]] = {
    Sum: operator.add,
    Product: operator.mul,
    Quotient: divided,
    Remainder: _remainder,
}


def mp(value: Value) -> mpmath.mpf | mpmath.mpc:
    """As a number of mpmath."""
    if isinstance(value, Fraction):
        return mpmath.mpf(value.numerator) / value.denominator
    return value


def _bounded(value: Value) -> Value:
    if isinstance(value, Fraction):
        if value.numerator.bit_length() + value.denominator.bit_length() > 2 * _EXACT_BITS:
            raise TooLarge("a number too long to compute with")
    elif value != 0 and abs(mpmath.mag(value)) > 10 * _MAX_EXPONENT:
        raise TooLarge("a number too large to compute with")
    return value


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        exact = _exact_power(base, exponent)
        if exact is not None:
            return exact
    a = mp(base)
    b = mp(exponent)
    if a == 0:
        if mpmath.re(b) <= 0:
            raise Undefined("a power of zero")
        return Fraction(0)
    size = abs(mpmath.mag(a)) + 1
    if b != 0 and mpmath.mag(b) + math.log2(size) > math.log2(_MAX_EXPONENT):
        raise TooLarge("a power too large to compute")
    return _bounded(mpmath.power(a, b))


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """None where it is not rational, or too long."""
    n = int(exponent)
    if n == exponent:
        if base == 0 and n < 0:
            raise Undefined("division by zero")
        if base in (0, 1) or n in (0, 1):
            return base if n else Fraction(1)
        if base == -1:
            return Fraction(-1 if n % 2 else 1)
        bits = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(n)
        return Fraction(base**n) if bits <= _EXACT_BITS else None
    if exponent == Fraction(1, 2) and base >= 0:
        return _quotient_if_exact(base, math.isqrt(base.numerator), math.isqrt(base.denominator), 2)
    return None


def _quotient_if_exact(x: Fraction, above: int, below: int, n: int) -> Fraction | None:
    """above / below where that is the n-th root of x."""
    return Fraction(above, below) if above**n == x.numerator and below**n == x.denominator else None


def _factorial(value: Value) -> Value:
    whole = isinstance(value, Fraction) and value.denominator == 1
    if whole and value < 0:
        raise Undefined("a factorial of a negative number")
    if abs(mp(value)) > 2_000:
        raise TooLarge("a factorial too large to compute")
    return Fraction(math.factorial(int(value))) if whole else mpmath.gamma(mp(value) + 1)


_OWN_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "lg": "log10"}
_BY_MPMATH = {
    name: getattr(mpmath, _OWN_NAMES.get(name, name))
    for name in (*_OWN_NAMES, *"sin cos tan cot sec csc sinh cosh tanh coth ln arg".split())
}


def _call(call: Call, at: dict[str, Fraction]) -> Value:
    name = call.function
    extra = call.extra
    if name in ("max", "min", "gcd", "lcm"):
        return _of_several(name, call.argument, at)
    x = _value(call.argument, at)
    if name == "sqrt":
        return _root(x, Fraction(2) if extra is None else _value(extra, at))
    if name == "cbrt":
        return _root(x, Fraction(3))
    if name == "abs":
        return abs(x)
    if name in ("floor", "ceil"):
        return _rounded(name, x)
    if name == "binom" and extra is not None:
        return _binomial(x, _value(extra, at))
    return _elementary(name, x, extra, at)


def _rounded(name: str, x: Value) -> Fraction:
    if isinstance(x, Fraction):
        return Fraction(math.floor(x) if name == "floor" else math.ceil(x))
    if mpmath.im(x) != 0 or mpmath.mag(x) > 150:
        raise Undefined(f"no {name}")
    near = mpmath.nint(x)
    if abs(x - near) < _CLOSE:  # an integer, but for the last digits
        return Fraction(int(near))
    return Fraction(int(mpmath.floor(x) if name == "floor" else mpmath.ceil(x)))


def _elementary(name: str, x: Value, base: Tree | None, at: dict[str, Fraction]) -> Value:
    largest = 17 if name in ("exp", "sinh", "cosh", "tanh", "coth") else 2_000
    if x != 0 and mpmath.mag(mp(x)) > largest:
        raise TooLarge(f"a {name} too large to compute")
    if name == "exp":
        return mpmath.exp(mp(x))
    if name in ("log", "ln", "lg") and x == 0:
        raise Undefined("a logarithm of zero")
    if name == "log":
        # Without a base: the natural logarithm, or base ten; quotients of logarithms are the same
        # in both.
        natural = mpmath.ln(mp(x))
        return natural if base is None else natural / mpmath.ln(mp(_value(base, at)))
    if name == "sgn":
        return Fraction((x > 0) - (x < 0))
    if name in _BY_MPMATH:
        return _bounded(_BY_MPMATH[name](mp(x)))
    raise Unreadable(f"the function {name}")


def _root(x: Value, n: Value) -> Value:
    if n == 2 and isinstance(x, Fraction):
        return _power(x, Fraction(1, 2))
    odd = _is_integer(n) and n % 2
    if odd and mpmath.im(mp(x)) == 0 and mp(x) < 0:
        return -_root(-x, n)  # the real root
    if n == 0:
        raise Undefined("a zeroth root")
    if not isinstance(n, Fraction):
        return _power(x, 1 / mp(n))
    if isinstance(x, Fraction) and 0 < n <= 12:
        exact = _exact_root(x, int(n))
        if exact is not None:
            return exact
    return _power(x, 1 / n)


def _exact_root(x: Fraction, n: int) -> Fraction | None:
    if max(x.numerator, x.denominator) > 10**12:
        return None
    above = round(x.numerator ** (1 / n))
    below = round(x.denominator ** (1 / n))
    return _quotient_if_exact(x, above, below, n)


def _binomial(n: Value, k: Value) -> Value:
    if any(abs(mp(v)) > 5_000 for v in (n, k)):
        raise TooLarge("a binomial too large to compute")
    if _is_integer(n) and _is_integer(k) and n >= 0:
        return Fraction(math.comb(int(n), int(k)) if k >= 0 else 0)
    return mpmath.binomial(mp(n), mp(k))


def _is_integer(value: Value) -> bool:
    return isinstance(value, Fraction) and value.denominator == 1


def _of_several(name: str, argument: Tree, at: dict[str, Fraction]) -> Value:
    """max, min, gcd or lcm."""
    items = argument.items if isinstance(argument, Bracketed | FiniteSet) else (argument,)
    values = [_value(item, at) for item in items]
    if name in ("max", "min"):
        if any(mpmath.im(mp(value)) != 0 for value in values):
            raise Undefined(f"{name} of what is not real")
        extreme = max if name == "max" else min
        return extreme(values, key=mp)
    if not all(map(_is_integer, values)):
        raise Undefined(f"{name} of what is no integer")
    integers = [int(value) for value in values]
    common = math.gcd if name == "gcd" else math.lcm
    return Fraction(common(*integers))


def close(a: Value, b: Value) -> bool:
    """Whether two values are the same, to some thirty digits where they are not rational."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    with mpmath.workprec(BITS):
        x = mp(a)
        y = mp(b)
        scale = max(abs(x), abs(y))
        return bool(abs(x - y) <= _CLOSE * scale or scale < mpmath.mpf(2) ** -170)
