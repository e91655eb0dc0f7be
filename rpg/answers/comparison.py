r"""Whether an answer line states the gold answer and nothing else.

First text and plain numbers (:func:`quick`, cheap and bounded); what is left is read (rpg.answers.statements) and
compared formula by formula, where it can be killed (rpg.rewards.comparison_worker).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rpg.answers import computer_algebra, identity_testing, inequalities, values
from rpg.answers.extraction import normalise, squeeze
from rpg.answers.lexer import Token, Unreadable, tokens_of, value_of
from rpg.answers.numbers import number, rounds, same, same_value
from rpg.answers.parser import Tree, read
from rpg.answers.statements import Statement, read_line, reading
from rpg.answers.units import without_letters

Verdict = tuple[bool, str]
"""Right or wrong, and why in a few words."""

_SETS_OF_NUMBERS = {f"mathbb {c}" for c in "RZNQC"} | set("RZNQC")


def quick(gold: str, answer: str, relative_tolerance: float = 0.0) -> Verdict | None:
    """The verdict where the same text or plain numbers decide it; None where the answer has to be read."""
    if not answer.strip():
        return False, "empty answer"
    bare, wanted = normalise(answer), normalise(gold)
    if squeeze(wanted) == squeeze(bare) and "boxed" not in answer:
        return True, "same text"
    one, other = number(wanted), number(bare)
    if one is None or other is None or "boxed" in answer:
        return None
    right = same(one, other, relative_tolerance)
    return right, "same number" if right else "other number"


@dataclass(frozen=True)
class Gold:
    """A gold answer, read: one element, or several in any inequalities."""

    elements: tuple[Tree, ...]


@lru_cache(maxsize=4096)
def read_gold(text: str) -> Gold:
    """Raises Unreadable where the grammar does not know the gold answer's notation."""
    statements = read_line(text)
    if len(statements) != 1:
        raise Unreadable("several statements")
    return Gold(tuple(_elements([read(list(f)) for f in statements[0].formulas])))


def equivalent(gold: str, answer: str, relative_tolerance: float = 0.0) -> Verdict:
    """The verdict on an answer line as it was written. May run long on hostile input: call it where it can be killed."""
    verdict = quick(gold, answer, relative_tolerance)
    if verdict is not None:
        return verdict
    try:
        wanted = read_gold(gold)
    except Unreadable as reason:
        return _unread(gold, answer, f"the gold answer is not read: {reason}")
    try:
        stated = read_line(answer)
    except Unreadable as reason:
        return False, f"not read: {reason}"
    right, why = _Match(wanted, relative_tolerance).statements(stated)
    return right, f"{why}; read as {reading(stated)}"


def _unread(gold: str, answer: str, reason: str) -> Verdict:
    """A gold answer in notation that the grammar does not know: the same tokens, or one formula that algebra finds equal."""
    try:
        wanted, found = _plain(gold), _plain(answer)
    except Unreadable as error:
        return False, f"not read: {error}"
    # Letters one by one: whether `an` is a word or a product depends on where the dollar signs stand.
    texts = [
        "".join(f"#{t.text}#" if t.kind == "number" else t.text for t in some) for some in (wanted, found)
    ]
    if texts[0] == texts[1]:
        return True, "same text"
    if any(t.kind in ("word", "sep", "stop", "colon", "dots") for t in found) or answer.count("boxed") > 1:
        return False, reason
    right = computer_algebra.equivalent(normalise(gold), normalise(answer))
    return right, f"{'' if right else 'not '}equivalent (math-verify)"


def _plain(text: str) -> list[Token]:
    return [t for t in tokens_of(text.rstrip(". \n")) if t.kind != "edge" and t.text != "box"]


# ----------------------------------------------------------------------------------------------------- structure


def _elements(trees: Sequence[Tree]) -> list[Tree]:
    """Of a list: the items of a set, both values of `a \\pm b`; anything else is itself."""
    found: list[Tree] = []
    for tree in trees:
        if len(trees) == 1 and tree[0] == "set":
            found += _elements(tree[1]) if len(tree[1]) > 1 else tree[1]
        else:
            found += _signs(tree)
    return found


def _signs(tree: Tree) -> list[Tree]:
    if tree[0] == "pm":
        if tree[1][0] == "number" and tree[1][1] == 0:
            return [tree[2], ("negative", tree[2])]
        return [("add", tree[1], tree[2]), ("add", tree[1], ("negative", tree[2]))]
    if tree[0] == "chain" and tree[2][-1] == "=" and tree[1][-1][0] == "pm":
        return [("chain", (*tree[1][:-1], value), tree[2]) for value in _signs(tree[1][-1])]
    return [tree]


def is_name(tree: Tree) -> bool:
    """What an answer may be called: `x`, `x_1`, `f(x)`, but not `AB` or a derivative."""
    return tree[0] == "symbol" and "/" not in tree[1] and (not tree[1].isupper() or len(tree[1]) == 1)


def _named(tree: Tree) -> tuple[str | None, Tree]:
    """(name, value) of `name = value`; (None, tree) for anything else."""
    if tree[0] == "chain" and tree[2] == ("=",) and is_name(tree[1][0]):
        return tree[1][0][1], tree[1][1]
    return None, tree


class _Match:
    def __init__(self, gold: Gold, tolerance: float):
        self.gold, self.tolerance = gold, tolerance

    def statements(self, stated: list[Statement]) -> Verdict:
        """Every statement has to be the gold answer; a decimal near it may follow its exact value."""
        stated = _concluded(stated)
        exact = False
        for statement in stated:
            try:
                trees = self._trees(statement)
            except Unreadable as reason:
                return False, f"not read: {reason}"
            if statement.approximate and exact and self._near(trees):
                continue
            try:
                right = self.list(trees, statement)
            except Unreadable as reason:
                return False, f"cannot be compared: {reason}"
            if not right:
                if len(trees) > len(self.gold.elements):
                    return False, "states more than the gold answer"
                return False, "not equivalent" if not exact else "states two answers"
            exact = True
        return True, "equivalent"

    def _trees(self, statement: Statement) -> list[Tree]:
        trees = []
        for formula in statement.formulas:
            trees.append(self._tree(formula))
        kept = [t for t in trees if not _domain(t)]
        return kept or trees

    def _tree(self, formula: tuple[Token, ...]) -> Tree:
        """A formula; where the gold answer is a number, letters behind a number are a unit."""
        bare = without_letters(formula) if self._numeric() else list(formula)
        if bare and bare[0].text == "~":
            bare = bare[1:]
        return read(_opaque(bare))

    def _numeric(self) -> bool:
        return all(not values.symbols(_named(e)[1]) for e in self.gold.elements)

    def _near(self, trees: list[Tree]) -> bool:
        if len(trees) != len(self.gold.elements):
            return False
        return all(rounds(_named(g)[1], t) for g, t in zip(self.gold.elements, trees, strict=True))

    # ------------------------------------------------------------------------------------------------ several

    def list(self, trees: list[Tree], statement: Statement) -> bool:
        """Whether formulas that commas, `and` or `or` join are the gold answer."""
        gold = self.gold.elements
        if len(gold) == 1:
            if len(trees) == 1:
                return self.one(gold[0], trees[0])
            if statement.alternatives and all(self.one(gold[0], tree) for tree in trees):
                return True  # 1/2 or 0.5
            return self._parts(gold[0], trees, statement)
        found = _elements(_unnamed_set(trees))
        names = [_named(t)[0] for t in found]
        if len(found) == 1 and len(gold) > 1:
            found = _ungrouped(found[0]) or found
        if len(found) != len(gold):
            return False
        different = {n.split("_")[0] for n in names if n}
        if len(different) > 1 and all(_named(g)[0] is None for g in gold):
            return all(self.one(g, t) for g, t in zip(gold, found, strict=True))
        return _unordered(gold, found, self.one)

    def _parts(self, gold: Tree, trees: list[Tree], statement: Statement) -> bool:
        """A tuple given by its entries, a union by its parts, an interval by its two bounds."""
        if gold[0] == "tuple" and not statement.alternatives and len(trees) == len(gold[2]):
            names = [_named(t)[0] for t in trees]
            entries = [_named(t)[1] for t in trees]
            told = all(names) and len(set(names)) == len(names)
            if gold[1] == "()" and (told or not any(names)) and all(map(self.value, gold[2], entries)):
                return True
        if gold[0] == "union":
            return len(trees) == len(gold[1]) and _unordered(
                gold[1], [inequalities.as_set(t) for t in trees], self.value
            )
        if (
            not statement.alternatives
            and len(trees) == 2
            and (gold[0] == "tuple" or inequalities.is_order(gold))
        ):
            both = inequalities.both(trees[0], trees[1])
            return both is not None and self.one(gold, both)
        return False

    # ----------------------------------------------------------------------------------------------------- one

    def one(self, gold: Tree, answer: Tree) -> bool:
        """Whether one formula is one element of the gold answer."""
        name, wanted = _named(gold)
        if gold[0] == "chain" and name is None:
            if inequalities.is_order(gold):
                return inequalities.same_order(gold, answer, self.value)
            return self._equation(gold, answer)
        if answer[0] == "chain":
            return self._chain(name, wanted, answer)
        return self.value(wanted, answer)

    def _equation(self, gold: Tree, answer: Tree) -> bool:
        if gold[2] != ("=",) or answer[0] != "chain" or answer[2] != ("=",):
            return False
        return identity_testing.same_equation(gold[1], answer[1])

    def _chain(self, name: str | None, wanted: Tree, answer: Tree) -> bool:
        items, relations = answer[1], answer[2]
        if "in" in relations:
            return (
                relations[-1] == "in"
                and set(relations[:-1]) <= {"="}
                and self.value(_one_set(wanted), _one_set(items[-1]))
            )
        if not set(relations) <= {"=", "~"}:
            as_interval = inequalities.interval(answer)
            return (
                as_interval is not None
                and wanted[0] in ("tuple", "union")
                and self.value(wanted, as_interval[1])
            )
        names = [item[1] for item in items if is_name(item)]
        if name is not None and names and not {name, name.split("(")[0]} & set(names):
            other = _renamed(name, names[0])
            if other is None or items[0] != ("symbol", names[0]) or len(items) != 2:
                return False
            return self.value(_substituted(wanted, *other), items[1])
        if wanted[0] in ("tuple", "set", "union", "matrix"):
            return self.value(wanted, items[-1]) and all(
                self._is_label(item) or self.value(wanted, item) for item in items[:-1]
            )
        return self._links(wanted, items, relations)

    def _is_label(self, item: Tree) -> bool:
        if item[0] == "tuple":
            return all(is_name(part) for part in item[2])
        return is_name(item)

    def _links(self, wanted: Tree, items: Sequence[Tree], relations: Sequence[str]) -> bool:
        """A chain of equalities: every link has to hold; one end may be a name, or a quantity that is asked for."""
        if any(item[0] in ("tuple", "set", "union", "matrix", "chain", "pm") for item in items):
            return False
        closed = [not values.symbols(item) for item in items]
        for k, relation in enumerate(relations):
            if closed[k] and closed[k + 1]:
                held = (
                    self.value(items[k], items[k + 1]) if relation == "=" else rounds(items[k], items[k + 1])
                )
                if not held:
                    return False
        numbers = [item for item, is_closed in zip(items, closed, strict=True) if is_closed]
        if not values.symbols(wanted):
            if not numbers or not _contradiction_free(
                [i for i, c in zip(items, closed, strict=True) if not c]
            ):
                return False
            if not self._hold_there(items, numbers[0]):
                return False
            first, last = numbers[0], numbers[-1]
            if "~" in relations and not self.value(wanted, first):
                return self.value(wanted, last) and closed[-1]
            return all(self.value(wanted, n) or ("~" in relations and k) for k, n in enumerate(numbers))
        if numbers:
            return False
        right = [(not is_name(item) and self.value(wanted, item)) or item == wanted for item in items]
        others = [item for item, good in zip(items, right, strict=True) if not good]
        if len(others) == len(items) or len(others) > 1 or (others and right[0] and right[-1]):
            return False
        return (
            not others
            or (is_name(others[0]) and others[0][1] not in values.symbols(wanted))
            or not (values.symbols(others[0]) & values.symbols(wanted))
        )

    def _hold_there(self, items: Sequence[Tree], number: Tree) -> bool:
        """Whether what is composed of the names in a chain is worth what they are: not in `x = 79/x = 81`."""
        composed = [item for item in items if not is_name(item) and values.symbols(item)]
        for name in {item[1] for item in items if is_name(item)}:
            composed = [_substituted(item, name, number) for item in composed]
        return all(values.symbols(item) or self.value(number, item) for item in composed)

    def value(self, gold: Tree, answer: Tree) -> bool:
        """Whether two values are the same: numbers, expressions, tuples, sets, unions, matrices."""
        kind = gold[0]
        if answer[0] == "set" and len(answer[1]) == 1 and kind not in ("set", "union"):
            return self.value(gold, answer[1][0])
        if kind == "tuple":
            if answer[0] == "chain":
                found = inequalities.interval(answer)
                return found is not None and self.value(gold, found[1])
            return (
                answer[0] == "tuple"
                and gold[1] == answer[1]
                and len(gold[2]) == len(answer[2])
                and all(map(self.value, gold[2], answer[2]))
            )
        if kind in ("set", "union"):
            return answer[0] == kind and _unordered(gold[1], answer[1], self.value)
        if kind == "matrix":
            return (
                answer[0] == "matrix"
                and [len(row) for row in gold[1]] == [len(row) for row in answer[1]]
                and all(
                    self.value(a, b)
                    for one, two in zip(gold[1], answer[1], strict=True)
                    for a, b in zip(one, two, strict=True)
                )
            )
        if answer[0] in ("tuple", "set", "union", "matrix", "chain", "pm") or kind in ("chain", "pm"):
            return gold == answer
        if values.symbols(gold) or values.symbols(answer):
            return identity_testing.same(gold, answer)
        return same_value(gold, answer, self.tolerance)


# ------------------------------------------------------------------------------------------------------- helpers


_UNREAD = {
    "sum",
    "prod",
    "int",
    "lim",
    "iint",
    "oint",
    "partial",
    "max",
    "min",
    "sup",
    "inf",
    "gcd",
    "lcm",
    "deg",
    "det",
    "dim",
}


def _opaque(formula: list[Token]) -> list[Token]:
    """A quantity that the grammar does not read (`\\sum_{k=1}^6 2k = 42`) as a name, where it is what the value is of."""
    depth = 0
    for i, token in enumerate(formula):
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0 and token.kind == "rel":
            quantity = formula[:i]
            if token.text == "=" and any(
                t.kind in ("command", "function") and t.text in _UNREAD for t in quantity
            ):
                return [Token("symbol", "quantity"), *formula[i:]]
            return formula
    return formula


def _concluded(stated: list[Statement]) -> list[Statement]:
    """`m = 7, n = 5, so m + n = 12`: what was concluded from named values is what is stated."""
    for k in range(len(stated) - 1, 0, -1):
        if not stated[k].concluded:
            continue
        before = [list(f) for s in stated[:k] for f in s.formulas]
        names = [_label(f) for f in before]
        own = {_label(f) for f in stated[k].formulas}
        if all(names) and not own & set(names):
            return stated[k:]
    return stated


def _label(formula: Sequence[Token]) -> str | None:
    """What stands before the first equality sign outside of brackets."""
    depth = 0
    for i, token in enumerate(formula):
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0 and token.kind == "rel":
            return "".join(t.text for t in formula[:i]) if token.text == "=" else None
    return None


def _domain(tree: Tree) -> bool:
    """`k \\in \\mathbb{Z}`, which only says what k stands for."""
    return (
        tree[0] == "chain"
        and tree[2] == ("in",)
        and is_name(tree[1][0])
        and tree[1][1][0] == "symbol"
        and tree[1][1][1] in _SETS_OF_NUMBERS
    )


def _one_set(tree: Tree) -> Tree:
    return tree[1][0] if tree[0] == "set" and len(tree[1]) == 1 else tree


def _unnamed_set(trees: list[Tree]) -> list[Tree]:
    """`S = \\{1, 2\\}` and `x \\in \\{1, 2\\}` as the set; `(x, y) = (1, 2)` as the tuple."""
    found = []
    for tree in trees:
        if tree[0] == "chain" and tree[2] in (("=",), ("in",)) and tree[1][-1][0] in ("set", "tuple"):
            left = tree[1][0]
            if is_name(left) or (left[0] == "tuple" and all(map(is_name, left[2]))):
                tree = tree[1][-1]
        found.append(tree)
    return found


def _ungrouped(tree: Tree) -> list[Tree] | None:
    """`100,200` may be a list where one is expected."""
    if tree[0] == "number" and "," in tree[2]:
        return [("number", value_of(part), part) for part in tree[2].split(",")]
    return None


def _unordered(gold: Sequence[Tree], answer: Sequence[Tree], match) -> bool:
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


def _contradiction_free(trees: Sequence[Tree]) -> bool:
    """Whether quantities of the same symbols, which a chain calls equal, are (`2x + 1 = 2x` are not)."""
    composed = [t for t in trees if not is_name(t)]
    for one, other in itertools.pairwise(composed):
        if values.symbols(one) == values.symbols(other) and not identity_testing.same(one, other):
            return False
    return True


def _renamed(gold: str, answer: str) -> tuple[str, Tree] | None:
    """`f(x)` and `f(n)`: the letter in the gold answer's name and the one in the answer's."""
    if gold.endswith(")") and answer.endswith(")"):
        (one, x), (other, y) = gold[:-1].split("(", 1), answer[:-1].split("(", 1)
        if one == other and x.isalpha() and y.isalpha():
            return x, ("symbol", y)
    return None


def _substituted(tree: Tree, old: str, new: Tree) -> Tree:
    if tree == ("symbol", old):
        return new
    return tuple(_substituted(part, old, new) if isinstance(part, tuple) else part for part in tree)
