"""What a formula is taken for before it is compared: names, lists, sets and letters, as trees."""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeGuard

from rpg.answers import identity_testing, values
from rpg.answers.lexer import value_of
from rpg.answers.trees import (
    REALS,
    Bracketed,
    Chain,
    FiniteSet,
    Matrix,
    Negative,
    Numeral,
    PlusMinus,
    Sum,
    Symbol,
    Tree,
    Union,
    nodes,
    rebuilt,
)

_SETS_OF_NUMBERS = {f"mathbb {c}" for c in "RZNQC"} | set("RZNQC")
_INTEGERS = frozenset("kmnlpqjrN")


def is_name(tree: Tree) -> TypeGuard[Symbol]:
    """What an answer may be called: `x`, `x_1`, `f(x)`, but not `AB` or a derivative."""
    if not isinstance(tree, Symbol) or "/" in tree.name:
        return False
    return len(tree.name) == 1 or not tree.name.isupper()


def named(tree: Tree) -> tuple[str | None, Tree]:
    """(name, value) of `name = value`; (None, tree) for anything else."""
    match tree:
        case Chain((Symbol() as symbol, value), ("=",)) if is_name(symbol):
            return symbol.name, value
    return None, tree


def is_label(tree: Tree) -> bool:
    return all(map(is_name, tree.items)) if isinstance(tree, Bracketed) else is_name(tree)


def domain(tree: Tree) -> bool:
    """`k \\in \\mathbb{Z}`, which only says what k stands for."""
    match tree:
        case Chain((symbol, Symbol(numbers)), ("in",)):
            return is_name(symbol) and numbers in _SETS_OF_NUMBERS
        case Chain((symbol, numbers), ("in",)):
            return is_name(symbol) and numbers == REALS
    return False


def elements_of(trees: Sequence[Tree]) -> list[Tree]:
    """Of a list: the items of a set, both values of `a \\pm b`; anything else is itself."""
    parts: list[Tree] = []
    for tree in trees:
        if len(trees) == 1 and isinstance(tree, FiniteSet) and tree.items:
            parts += elements_of(tree.items) if len(tree.items) > 1 else tree.items
        elif isinstance(tree, Union) and all(isinstance(part, FiniteSet) for part in tree.items):
            for part in tree.items:
                assert isinstance(part, FiniteSet)
                parts += part.items
        elif any(isinstance(node, PlusMinus) for node in nodes(tree)):
            parts += [_signed(tree, upper=True), _signed(tree, upper=False)]
        else:
            parts.append(tree)
    return parts


def _signed(tree: Tree, upper: bool) -> Tree:
    """With all upper signs, or all lower ones."""
    tree = rebuilt(tree, lambda part: _signed(part, upper))
    if not isinstance(tree, PlusMinus):
        return tree
    term = tree.right if upper else Negative(tree.right)
    if isinstance(tree.left, Numeral) and tree.left.value == 0:
        return term
    return Sum(tree.left, term)


def unfolded(trees: list[Tree]) -> list[Tree]:
    """Without domains where something else is stated; `(x, y) = (1, 2)` as `x = 1, y = 2`."""
    trees = [tree for tree in trees if not domain(tree)] or trees
    match trees:
        case [Chain((Bracketed(items=names) as label, Bracketed(items=entries)), ("=",))]:
            if is_label(label) and len(names) == len(entries):
                return [Chain(pair, ("=",)) for pair in zip(names, entries, strict=True)]
    return trees


def unnamed_set(trees: list[Tree]) -> list[Tree]:
    """`S = \\{1, 2\\}` and `x \\in \\{1, 2\\}` as the set; `(x, y) = (1, 2)` as the tuple."""

    return [_unlabelled(tree) for tree in trees]


def _unlabelled(tree: Tree) -> Tree:
    match tree:
        case Chain((label, FiniteSet() | Bracketed() as value), ("=",) | ("in",)):
            return value if is_label(label) else tree
    return tree


def ungrouped(tree: Tree) -> list[Tree] | None:
    """`100,200` may be a list where one is expected."""
    if isinstance(tree, Numeral) and "," in tree.text:
        return [Numeral(value_of(part), part) for part in tree.text.split(",")]
    return None


def as_matrix(tree: Tree) -> Tree:
    """Of a tuple: a column, or its rows."""
    if not isinstance(tree, Bracketed) or tree.brackets not in ("()", "[]"):
        return tree
    return Matrix(tuple(row.items if isinstance(row, Bracketed) else (row,) for row in tree.items))


def same_letter(gold: Tree, answer: Tree) -> Tree:
    """An answer with the gold answer's letter for any integer: `n\\pi` for `k\\pi`."""
    letters = [*values.symbols(gold), *values.symbols(answer)]
    if len(letters) == 2 and set(letters) <= _INTEGERS and periodic(gold):
        return substituted(answer, letters[1], Symbol(letters[0]))
    return answer


def periodic(tree: Tree) -> bool:
    """Whether its letter can only be any integer: `k\\pi`."""
    return any(node == Symbol("pi") for node in nodes(tree))


def renaming(gold: str, answer: str) -> tuple[str, Tree] | None:
    """`f(x)` and `f(n)`: the letter in the gold answer's name and the one in the answer's."""
    if gold.endswith(")") and answer.endswith(")"):
        function, x = gold[:-1].split("(", 1)
        other, y = answer[:-1].split("(", 1)
        if function == other and x.isalpha() and y.isalpha():
            return x, Symbol(y)
    return None


def substituted(tree: Tree, old: str, new: Tree) -> Tree:
    if tree == Symbol(old):
        return new
    return rebuilt(tree, lambda part: substituted(part, old, new))


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
