"""What a formula is taken for before it is compared: names, lists, sets and letters, as trees
(rpg.answers.parser)."""

import itertools
from collections.abc import Callable, Sequence

from rpg.answers import identity_testing, values
from rpg.answers.lexer import value_of
from rpg.answers.parser import REALS, Tree

_SETS_OF_NUMBERS = {f"mathbb {c}" for c in "RZNQC"} | set("RZNQC")
_INTEGERS = frozenset("kmnlpqjrN")


def is_name(tree: Tree) -> bool:
    """What an answer may be called: `x`, `x_1`, `f(x)`, but not `AB` or a derivative."""
    return (
        tree[0] == "symbol" and "/" not in tree[1] and (not tree[1].isupper() or len(tree[1]) == 1)
    )


def named(tree: Tree) -> tuple[str | None, Tree]:
    """(name, value) of `name = value`; (None, tree) for anything else."""
    if tree[0] == "chain" and tree[2] == ("=",) and is_name(tree[1][0]):
        return tree[1][0][1], tree[1][1]
    return None, tree


def is_label(tree: Tree) -> bool:
    return all(map(is_name, tree[2])) if tree[0] == "tuple" else is_name(tree)


def domain(tree: Tree) -> bool:
    """`k \\in \\mathbb{Z}`, which only says what k stands for."""
    if tree[0] != "chain" or tree[2] != ("in",):
        return False
    name, numbers = tree[1]
    return is_name(name) and (
        numbers == REALS or (numbers[0] == "symbol" and numbers[1] in _SETS_OF_NUMBERS)
    )


def elements_of(trees: Sequence[Tree]) -> list[Tree]:
    """Of a list: the items of a set, both values of `a \\pm b`; anything else is itself."""
    parts: list[Tree] = []
    for tree in trees:
        if len(trees) == 1 and tree[0] == "set" and tree[1]:
            parts += elements_of(tree[1]) if len(tree[1]) > 1 else tree[1]
        elif tree[0] == "union" and all(part[0] == "set" for part in tree[1]):
            parts += itertools.chain.from_iterable(part[1] for part in tree[1])
        else:
            signed = "pm" in values.kinds(tree)
            parts += [_signed(tree, upper) for upper in (True, False)] if signed else [tree]
    return parts


def _signed(tree: Tree, upper: bool) -> Tree:
    """With all upper signs, or all lower ones."""
    parts = tuple(
        _signed(part, upper) if isinstance(part, tuple) and part else part for part in tree
    )
    if parts[0] != "pm":
        return parts
    term = parts[2] if upper else ("negative", parts[2])
    return term if parts[1][:2] == ("number", 0) else ("add", parts[1], term)


def unfolded(trees: list[Tree]) -> list[Tree]:
    """Without domains where something else is stated; `(x, y) = (1, 2)` as `x = 1, y = 2`."""
    trees = [tree for tree in trees if not domain(tree)] or trees
    if len(trees) != 1 or trees[0][0] != "chain" or trees[0][2] != ("=",):
        return trees
    names, entries = trees[0][1]
    if not (
        names[0] == entries[0] == "tuple" and is_label(names) and len(names[2]) == len(entries[2])
    ):
        return trees
    return [("chain", pair, ("=",)) for pair in zip(names[2], entries[2], strict=True)]


def unnamed_set(trees: list[Tree]) -> list[Tree]:
    """`S = \\{1, 2\\}` and `x \\in \\{1, 2\\}` as the set; `(x, y) = (1, 2)` as the tuple."""

    def labelled(tree: Tree) -> bool:
        link = tree[0] == "chain" and tree[2] in (("=",), ("in",))
        return link and tree[1][-1][0] in ("set", "tuple") and is_label(tree[1][0])

    return [tree[1][-1] if labelled(tree) else tree for tree in trees]


def ungrouped(tree: Tree) -> list[Tree] | None:
    """`100,200` may be a list where one is expected."""
    if tree[0] == "number" and "," in tree[2]:
        return [("number", value_of(part), part) for part in tree[2].split(",")]
    return None


def as_matrix(tree: Tree) -> Tree:
    """Of a tuple: a column, or its rows."""
    if tree[0] != "tuple" or tree[1] not in ("()", "[]"):
        return tree
    return ("matrix", tuple(row[2] if row[0] == "tuple" else (row,) for row in tree[2]))


def same_letter(gold: Tree, answer: Tree) -> Tree:
    """An answer with the gold answer's letter for any integer: `n\\pi` for `k\\pi`."""
    letters = [*values.symbols(gold), *values.symbols(answer)]
    if len(letters) == 2 and {*letters} <= _INTEGERS and periodic(gold):
        return substituted(answer, letters[1], ("symbol", letters[0]))
    return answer


def periodic(tree: Tree) -> bool:
    """Whether its letter can only be any integer: `k\\pi`."""
    return "'pi'" in repr(tree)


def renaming(gold: str, answer: str) -> tuple[str, Tree] | None:
    """`f(x)` and `f(n)`: the letter in the gold answer's name and the one in the answer's."""
    if gold.endswith(")") and answer.endswith(")"):
        (function, x) = gold[:-1].split("(", 1)
        (other, y) = answer[:-1].split("(", 1)
        if function == other and x.isalpha() and y.isalpha():
            return x, ("symbol", y)
    return None


def substituted(tree: Tree, old: str, new: Tree) -> Tree:
    if tree == ("symbol", old):
        return new
    return tuple(substituted(part, old, new) if isinstance(part, tuple) else part for part in tree)


def unordered(
    gold: Sequence[Tree], answer: Sequence[Tree], match: Callable[[Tree, Tree], bool]
) -> bool:
    """Every element has its own partner: `1, 1, 2` is not `1, 2, 2`."""
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for element in gold:
        partner = next((i for i, other in enumerate(left) if match(element, other)), None)
        if partner is None:
            return False
        del left[partner]
    return True


def contradiction_free(trees: Sequence[Tree]) -> bool:
    """Whether quantities of the same symbols, which a chain calls equal, are (`2x + 1 = 2x` are
    not)."""
    return all(
        values.symbols(left) != values.symbols(right) or identity_testing.same(left, right)
        for left, right in itertools.pairwise(tree for tree in trees if not is_name(tree))
    )
