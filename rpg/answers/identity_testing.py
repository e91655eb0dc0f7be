"""Whether two expression trees are the same expression, two equations the same equation, two
inequalities the same interval: decided by their values at a few points (a polynomial that vanishes
at random points is zero: Schwartz 1980, Zippel 1979).
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache

import mpmath

from rpg.answers.lexer import Unreadable
from rpg.answers.parser import INFINITY, Tree
from rpg.answers.values import BITS, Undefined, close, divided, evaluate, kinds, mp, symbols

Places = Iterator[dict[str, Fraction]]
"""Values of all symbols, place after place."""
_DISCRETE = {"floor", "ceil", "factorial", "binom", "mod", "gcd", "lcm"}
_ORDER = {"<", "<=", ">", ">="}


def same(left: Tree, right: Tree) -> bool:
    """Whether two expressions have the same value wherever both are defined. Raises Unreadable:
    this cannot be told."""
    if left == right:
        return True
    names = symbols(left) | symbols(right)
    if len(names) > 40:
        raise Unreadable("too many symbols")
    discrete = bool((kinds(left) | kinds(right)) & _DISCRETE)
    for places in (_integers,) if discrete else (_rationals, _integers):
        equal = _agree(left, right, sorted(names), places)
        if equal is not None:
            return equal
    raise Unreadable("defined nowhere where it was tried")


def _agree(
    left: Tree, right: Tree, names: list[str], places: Callable[[list[str]], Places]
) -> bool | None:
    """Whether both have the same real values; None where no place has values of both."""
    seen = False
    for at in places(names):
        try:
            a, b = evaluate(left, at), evaluate(right, at)
        except Undefined:
            continue
        if close(a, b):
            seen = True
        elif mpmath.im(mp(a)) == 0 and mpmath.im(mp(b)) == 0:
            return False
        elif "('symbol', 'i')" in repr((left, right)):
            # complex numbers are meant; else a root or logarithm has left the real ones, which
            # tells nothing
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
            value = part if k == 0 or (k == 2 and seed >> 20 & 1) else 1 + 3 * part
            at[name] = -value if k > 2 and seed >> 30 & 1 else value
        if k == 4:
            at = {name: -at_k for name, at_k in at.items()}
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
    f, g = (("add", left, ("negative", right)) for left, right in (gold, answer))
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


def is_order(tree: Tree) -> bool:
    return tree[0] == "chain" and set(tree[2]) <= _ORDER


def interval(chain: Tree) -> tuple[str, Tree] | None:
    """(name, interval) of `x < 5`, `5 > x`, `1 < x \\le 2`; None for anything else."""
    items = chain[1]
    relations = chain[2]
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
        kind, name = items[1][:2]
        return (name, ("tuple", left + right, (items[0], items[2]))) if kind == "symbol" else None
    names = [item for item in items if item[0] == "symbol" and item != INFINITY]
    if len(names) != 1:
        return None
    if names[0] == items[0]:
        return names[0][1], ("tuple", "(" + right, (("negative", INFINITY), items[1]))
    return names[0][1], ("tuple", left + ")", (items[0], INFINITY))


def both(left: Tree, right: Tree) -> Tree | None:
    """`x > 1` and `x \\le 2` as one interval."""
    first, second = (interval(t) if t[0] == "chain" else None for t in (left, right))
    if first is None or second is None or first[0] != second[0]:
        return None
    bounds = (first[1], second[1])
    low = next((t for t in bounds if t[2][1] == INFINITY), None)
    high = next((t for t in bounds if t[2][0] == ("negative", INFINITY)), None)
    if low is None or high is None or low is high:
        return None
    return ("tuple", low[1][0] + high[1][1], (low[2][0], high[2][1]))


def as_set(tree: Tree) -> Tree:
    """A part of a union: an interval, or a single value as a set."""
    if is_order(tree):
        bounds = interval(tree)
        return bounds[1] if bounds else tree
    if tree[0] == "chain" and tree[2] in (("=",), ("in",)):
        value = tree[1][-1]
        return value if value[0] in ("tuple", "set") else ("set", (value,))
    return tree


def same_order(gold: Tree, answer: Tree, same_value: Callable[[Tree, Tree], bool]) -> bool:
    """Whether two inequalities say the same: about the same name, or as an interval without one."""
    expected = interval(gold)
    if (
        answer[0] == "chain"
        and answer[2] == ("in",)
        and expected
        and answer[1][0] == ("symbol", expected[0])
    ):
        answer = answer[1][1]
    if answer[0] == "tuple":
        return expected is not None and same_value(expected[1], answer)
    if answer[0] != "chain" or not is_order(answer):
        return False
    stated = interval(answer)
    if expected is not None and stated is not None:
        return expected[0] == stated[0] and same_value(expected[1], stated[1])
    relations = [relation.replace(">", "<") for relation in (*gold[2], *answer[2])]
    return len(relations) == 2 and relations[0] == relations[1] and same(_less(gold), _less(answer))


def _less(chain: Tree) -> Tree:
    left, right = chain[1] if "<" in chain[2][0] else chain[1][::-1]
    return ("add", left, ("negative", right))
