"""Inequalities, and the intervals they stand for."""

from __future__ import annotations

from collections.abc import Callable

from rpg.answers import identity_testing
from rpg.answers.parser import Tree

_INFINITY: Tree = ("symbol", "infty")
_ORDER = {"<", "<=", ">", ">="}


def is_order(tree: Tree) -> bool:
    """Whether a tree is a chain of inequalities."""
    return tree[0] == "chain" and set(tree[2]) <= _ORDER


def interval(chain: Tree) -> tuple[str, Tree] | None:
    """(name, interval) of `x < 5`, `5 > x`, `1 < x \\le 2`; None for anything else."""
    items, relations = chain[1], chain[2]
    if not is_order(chain) or len(items) > 3:
        return None
    if relations[0] in (">", ">="):
        items, relations = items[::-1], tuple(r.replace(">", "<") for r in reversed(relations))
    if not set(relations) <= {"<", "<="}:
        return None
    left = "[" if relations[0] == "<=" else "("
    right = "]" if relations[-1] == "<=" else ")"
    if len(items) == 3:
        return (
            (items[1][1], ("tuple", left + right, (items[0], items[2]))) if items[1][0] == "symbol" else None
        )
    names = [item for item in items if item[0] == "symbol" and item != _INFINITY]
    if len(names) != 1:
        return None
    if names[0] == items[0]:
        return names[0][1], ("tuple", "(" + right, (("negative", _INFINITY), items[1]))
    return names[0][1], ("tuple", left + ")", (items[0], _INFINITY))


def both(left: Tree, right: Tree) -> Tree | None:
    """`x > 1` and `x \\le 2` as one interval."""
    first, second = (interval(t) if t[0] == "chain" else None for t in (left, right))
    if first is None or second is None or first[0] != second[0]:
        return None
    bounds = (first[1], second[1])
    low = next((t for t in bounds if t[2][1] == _INFINITY), None)
    high = next((t for t in bounds if t[2][0] == ("negative", _INFINITY)), None)
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


def same_order(gold: Tree, answer: Tree, same: Callable[[Tree, Tree], bool]) -> bool:
    """Whether two inequalities say the same: about the same name, or as an interval without one."""
    expected = interval(gold)
    if answer[0] == "chain" and answer[2] == ("in",) and expected and answer[1][0] == ("symbol", expected[0]):
        answer = answer[1][1]
    if answer[0] == "tuple":
        return expected is not None and same(expected[1], answer)
    if answer[0] != "chain" or not is_order(answer):
        return False
    stated = interval(answer)
    if expected is not None and stated is not None:
        return expected[0] == stated[0] and same(expected[1], stated[1])
    if not len(gold[2]) == 1 == len(answer[2]) or gold[2][0].replace(">", "<") != answer[2][0].replace(
        ">", "<"
    ):
        return False
    return identity_testing.same(_less(gold), _less(answer))


def _less(chain: Tree) -> Tree:
    left, right = chain[1] if "<" in chain[2][0] else chain[1][::-1]
    return ("add", left, ("negative", right))
