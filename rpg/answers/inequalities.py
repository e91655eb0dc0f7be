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
    named = [i for i, item in enumerate(items) if item[0] == "symbol" and item != _INFINITY]
    if len(items) == 3:
        if items[1][0] != "symbol":
            return None
        brackets = ("[" if relations[0] == "<=" else "(") + ("]" if relations[1] == "<=" else ")")
        return items[1][1], ("tuple", brackets, (items[0], items[2]))
    if len(named) != 1:
        return None
    if named == [0]:
        return items[0][1], (
            "tuple",
            "(" + ("]" if relations[0] == "<=" else ")"),
            (("negative", _INFINITY), items[1]),
        )
    return items[1][1], ("tuple", ("[" if relations[0] == "<=" else "(") + ")", (items[0], _INFINITY))


def both(one: Tree, other: Tree) -> Tree | None:
    """`x > 1` and `x \\le 2` as one interval."""
    found = [interval(t) if t[0] == "chain" else None for t in (one, other)]
    if None in found or found[0][0] != found[1][0]:
        return None
    (_, a), (_, b) = found
    low = next((t for t in (a, b) if t[2][1] == _INFINITY), None)
    high = next((t for t in (a, b) if t[2][0] == ("negative", _INFINITY)), None)
    if low is None or high is None or low is high:
        return None
    return ("tuple", low[1][0] + high[1][1], (low[2][0], high[2][1]))


def as_set(tree: Tree) -> Tree:
    """A part of a union: an interval, or a single value as a set."""
    if is_order(tree):
        found = interval(tree)
        return found[1] if found else tree
    if tree[0] == "chain" and tree[2] in (("=",), ("in",)):
        value = tree[1][-1]
        return value if value[0] in ("tuple", "set") else ("set", (value,))
    return tree


def same_order(gold: Tree, answer: Tree, same: Callable[[Tree, Tree], bool]) -> bool:
    """Whether two inequalities say the same: about the same name, or as an interval without one."""
    wanted = interval(gold)
    if answer[0] == "chain" and answer[2] == ("in",) and wanted and answer[1][0] == ("symbol", wanted[0]):
        answer = answer[1][1]
    if answer[0] == "tuple":
        return wanted is not None and same(wanted[1], answer)
    if answer[0] != "chain" or not is_order(answer):
        return False
    found = interval(answer)
    if wanted is not None and found is not None:
        return wanted[0] == found[0] and same(wanted[1], found[1])
    if len(gold[2]) == 1 == len(answer[2]):
        one, other = _less(gold), _less(answer)
        return gold[2][0].replace(">", "<") == answer[2][0].replace(">", "<") and identity_testing.same(
            one, other
        )
    return False


def _less(chain: Tree) -> Tree:
    left, right = chain[1] if "<" in chain[2][0] else chain[1][::-1]
    return ("add", left, ("negative", right))
