"""Whether two expression trees are the same expression, two equations the same equation, two
inequalities the same interval: decided by their values at a few points (a polynomial that vanishes
at random points is zero: Schwartz 1980, Zippel 1979).
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import TypeGuard

import mpmath

from rpg.answers.lexer import Unreadable
from rpg.answers.trees import (
    INFINITY,
    Bracketed,
    Call,
    Chain,
    Factorial,
    FiniteSet,
    Negative,
    Remainder,
    Sum,
    Symbol,
    Tree,
    nodes,
)
from rpg.answers.values import BITS, Undefined, close, divided, evaluate, mp, symbols

Places = Iterator[dict[str, Fraction]]
"""Values of all symbols, place after place."""
_DISCRETE = {"floor", "ceil", "binom", "gcd", "lcm"}
"""Functions whose values jump, or that are of integers."""
_ORDER = {"<", "<=", ">", ">="}


def same(left: Tree, right: Tree) -> bool:
    """Whether two expressions have the same value wherever both are defined. Raises Unreadable:
    this cannot be told."""
    if left == right:
        return True
    names = symbols(left) | symbols(right)
    if len(names) > 40:
        raise Unreadable("too many symbols")
    discrete = _is_discrete(left) or _is_discrete(right)
    for places in (_integers,) if discrete else (_rationals, _integers):
        equal = _agree(left, right, sorted(names), places)
        if equal is not None:
            return equal
    raise Unreadable("defined nowhere where it was tried")


def _is_discrete(tree: Tree) -> bool:
    """Whether a tree has to be tried at integers."""
    for node in nodes(tree):
        if isinstance(node, Factorial | Remainder):
            return True
        if isinstance(node, Call) and node.function in _DISCRETE:
            return True
    return False


def _is_complex(tree: Tree) -> bool:
    return any(node == Symbol("i") for node in nodes(tree))


def _agree(
    left: Tree, right: Tree, names: list[str], places: Callable[[list[str]], Places]
) -> bool | None:
    """Whether both have the same real values; None where no place has values of both."""
    seen = False
    for at in places(names):
        try:
            a = evaluate(left, at)
            b = evaluate(right, at)
        except Undefined:
            continue
        if close(a, b):
            seen = True
        elif mpmath.im(mp(a)) == 0 and mpmath.im(mp(b)) == 0:
            return False
        elif _is_complex(left) or _is_complex(right):
            # Complex numbers are meant; else a root or logarithm has left the real ones, which
            # tells nothing.
            return False
    return True if seen else None


@lru_cache(maxsize=4096)
def _seed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:6], "big")


def _rationals(names: list[str]) -> Places:
    """Between 0 and 1, between 1 and 4, mixed, and twice with other signs."""
    for k in range(5):
        at = {}
        for name in names:
            seed = _seed(f"{name}/{k}")
            part = Fraction(seed % 9973 + 1, 9974)
            below_one = k == 0 or (k == 2 and seed >> 20 & 1)
            value = part if below_one else 1 + 3 * part
            if k > 2 and seed >> 30 & 1:
                value = -value
            at[name] = value
        if k == 4:
            at = {name: -value for name, value in at.items()}
        yield at


def _integers(names: list[str]) -> Places:
    """Consecutive integers, so that parities and remainders all occur, and the first ones far
    apart."""
    for k in range(12):
        yield {
            name: Fraction(2 + (_seed(name) % 7 + k * (1 + i % 3)) % 23)
            for i, name in enumerate(names)
        }


def same_equation(gold: tuple[Tree, Tree], answer: tuple[Tree, Tree]) -> bool:
    """Whether two equations have the same solutions: each one's solution for a symbol, in which it
    is of first degree, solves the other; or one is a multiple of the other.
    """
    f = _difference(gold)
    g = _difference(answer)
    names = sorted(symbols(f) | symbols(g))
    if not names or symbols(f) != symbols(g) or len(names) > 40:
        return False
    with mpmath.workprec(BITS):
        for name in names:
            equal = _same_roots(f, g, name, names)
            if equal is not None:
                return equal
        quotients = []
        for at in _rationals(names):
            with contextlib.suppress(Undefined):
                quotients.append(divided(mp(evaluate(f, at)), mp(evaluate(g, at))))
        return len(quotients) > 2 and all(close(q, quotients[0]) and q != 0 for q in quotients)


def _difference(sides: tuple[Tree, Tree]) -> Tree:
    """What is zero where an equation holds."""
    left, right = sides
    return Sum(left, Negative(right))


def _same_roots(f: Tree, g: Tree, name: str, names: list[str]) -> bool | None:
    """None where `f` is not of first degree in `name`."""
    seen = False
    for at in _rationals(names):
        try:
            f0, f1, f2 = (mp(evaluate(f, {**at, name: Fraction(v)})) for v in (1, 2, 3))
            slope = f1 - f0
            if not close(f2 - f1, slope) or slope == 0:
                return None
            root = 1 - f0 / slope
            exact = Fraction(*_ratio(root))
            at_root = mp(evaluate(g, {**at, name: exact}))
            beside = mp(evaluate(g, {**at, name: exact + 1}))
        except Undefined:
            continue
        if abs(at_root) > abs(beside) * mpmath.mpf(2) ** -90 or beside == 0:
            return False
        seen = True
    return True if seen else None


def _ratio(x: mpmath.mpf) -> tuple[int, int]:
    if mpmath.im(x) != 0:
        raise Undefined("a complex root")
    sign, mantissa, exponent, _ = mpmath.re(x)._mpf_
    mantissa = -mantissa if sign else mantissa
    return (mantissa << exponent, 1) if exponent >= 0 else (mantissa, 1 << -exponent)


def is_order(tree: Tree) -> TypeGuard[Chain]:
    return isinstance(tree, Chain) and set(tree.relations) <= _ORDER


def interval(chain: Chain) -> tuple[str, Bracketed] | None:
    """(name, interval) of `x < 5`, `5 > x`, `1 < x \\le 2`; None for anything else."""
    items = chain.items
    relations = chain.relations
    if not is_order(chain) or len(items) > 3:
        return None
    if relations[0] in (">", ">="):
        items = items[::-1]
        relations = tuple(r.replace(">", "<") for r in reversed(relations))
    if not set(relations) <= {"<", "<="}:
        return None
    left = "[" if relations[0] == "<=" else "("
    right = "]" if relations[-1] == "<=" else ")"
    if len(items) == 3:
        between = items[1]
        if not isinstance(between, Symbol):
            return None
        return between.name, Bracketed(left + right, (items[0], items[2]))
    names = [item for item in items if isinstance(item, Symbol) and item != INFINITY]
    if len(names) != 1:
        return None
    if names[0] == items[0]:
        return names[0].name, Bracketed("(" + right, (Negative(INFINITY), items[1]))
    return names[0].name, Bracketed(left + ")", (items[0], INFINITY))


def both(left: Tree, right: Tree) -> Tree | None:
    """`x > 1` and `x \\le 2` as one interval."""
    if not isinstance(left, Chain) or not isinstance(right, Chain):
        return None
    first = interval(left)
    second = interval(right)
    if first is None or second is None or first[0] != second[0]:
        return None
    rays = (first[1], second[1])
    upward = next((ray for ray in rays if ray.items[1] == INFINITY), None)
    downward = next((ray for ray in rays if ray.items[0] == Negative(INFINITY)), None)
    if upward is None or downward is None or upward is downward:
        return None
    brackets = upward.brackets[0] + downward.brackets[1]
    return Bracketed(brackets, (upward.items[0], downward.items[1]))


def as_set(tree: Tree) -> Tree:
    """A part of a union: an interval, or a single value as a set."""
    if is_order(tree):
        bounds = interval(tree)
        return bounds[1] if bounds else tree
    if isinstance(tree, Chain) and tree.relations in (("=",), ("in",)):
        value = tree.items[-1]
        return value if isinstance(value, Bracketed | FiniteSet) else FiniteSet((value,))
    return tree


def same_order(gold: Chain, answer: Tree, same_value: Callable[[Tree, Tree], bool]) -> bool:
    """Whether two inequalities say the same: about the same name, or as an interval without one."""
    expected = interval(gold)
    match answer:
        case Chain((Symbol(name), bounds), ("in",)) if expected and name == expected[0]:
            answer = bounds
    if isinstance(answer, Bracketed):
        return expected is not None and same_value(expected[1], answer)
    if not is_order(answer):
        return False
    stated = interval(answer)
    if expected is not None and stated is not None:
        return expected[0] == stated[0] and same_value(expected[1], stated[1])
    if len(gold.relations) != 1 or len(answer.relations) != 1:
        return False
    strict = "=" not in gold.relations[0]
    return strict == ("=" not in answer.relations[0]) and same(_less(gold), _less(answer))


def _less(chain: Chain) -> Tree:
    """What is below zero where an inequality holds."""
    left, right = chain.items
    return _difference((left, right) if "<" in chain.relations[0] else (right, left))
