r"""Whether an answer line states the gold answer and nothing else.

First text and plain numbers (:func:`quick`, cheap and bounded); what is left is read
(rpg.answers.statements) and compared formula by formula. That may run long on hostile input: call
it in a process that can be killed.
"""

import itertools
import re
from collections.abc import Sequence, Set
from functools import lru_cache

from rpg.answers import computer_algebra, identity_testing, rewriting, values
from rpg.answers.extraction import words
from rpg.answers.lexer import Token, Unreadable, tokens_of
from rpg.answers.lexicon import COPULAS, EXPLAINING, LEADING, REASONS, SUBJECT, is_harmless
from rpg.answers.numbers import number, rounds, same, same_number, same_value, was_rounded
from rpg.answers.parser import read
from rpg.answers.rewriting import domain, elements_of, is_label, is_name, named, periodic, unordered
from rpg.answers.statements import Statement, read_line, reading
from rpg.answers.trees import (
    COLLECTIONS,
    REALS,
    Bracketed,
    Chain,
    FiniteSet,
    Matrix,
    PlusMinus,
    Quantity,
    Remainder,
    Symbol,
    Tree,
    Union,
    nodes,
)
from rpg.answers.typesetting import normalise, squeeze
from rpg.answers.units import with_unit

Verdict = tuple[bool, str]
"""Right or wrong, and why in a few words."""

_SEVERAL = {"word", "sep", "stop", "colon", "dots"}
"""Kinds of tokens that an answer of one formula does not have."""
_ONE_BOX = re.compile(r"\s*\$*\s*\\boxed\s*\{((?:(?!\\boxed).)*)\}\s*\$*[\s.]*")
_NOT_READ = set("sum prod int lim iint oint partial max min sup inf gcd lcm deg det dim".split())
"""Commands and functions of quantities that the grammar does not evaluate."""
_WITH_UNIT = re.compile(
    r"[A-Za-z°¢£€¥]{2}|\\(?:\$|circ)|[A-Za-z°¢£€¥℃%]\W*$|^\W*(?:\$\s?\d[^$]*|[¢£€¥].*)$"
)
"""A gold answer that may have a unit."""
_HEDGED = re.compile(r"\.\.\W*$|~\W*$|^\W*~|^[^*]*[^*\s]\s*\*$|\d,\s+\d{3}(?!\d)")
"""Dots at the end, a mark of a footnote, numbers apart: read, not normalised away."""
_CHOICE = re.compile(r"\W*(?:\\(?:text\w*|math\w+)\W*)?\(?([A-H])\)?\W*")
_LETTER = re.compile(r"(?<![A-Za-z'])[A-H](?![A-Za-z'])")
_CHOSEN = re.compile(
    r"\([A-H]\)|^[\s$*]*[A-H][).:](?:\s|$)|\b(?:option|choice)\W{1,3}[A-H]\b", re.IGNORECASE
)
"""A bare letter as gold answer is a choice where the answer names it as one; otherwise it may be a
symbol."""


def quick(gold: str, answer: str, relative_tolerance: float = 0.0) -> Verdict | None:
    """The verdict where the same text or plain numbers decide it; None where the answer has to be
    read."""
    if not answer.strip():
        return False, "empty answer"
    if answer == gold:
        return True, "same text"
    if _HEDGED.search(answer) or _WITH_UNIT.search(gold):
        return None
    answer_text = normalise(answer)
    gold_text = normalise(gold)
    if squeeze(gold_text) == squeeze(answer_text) and "boxed" not in answer:
        return True, "same text"
    gold_number = number(gold_text)
    answer_number = number(answer_text)
    if gold_number is None or answer_number is None or "boxed" in answer:
        return None
    right = same(gold_number, answer_number, relative_tolerance)
    return right, "same number" if right else "other number"


def equivalent(gold: str, answer: str, relative_tolerance: float = 0.0) -> Verdict:
    """The verdict on an answer line as it was written."""
    verdict = quick(gold, answer, relative_tolerance)
    if verdict is not None:
        return verdict
    choice = _CHOICE.fullmatch(gold)
    if choice and (len(gold) > 1 or _CHOSEN.search(answer)):
        harmless = SUBJECT | EXPLAINING | {choice[1].lower()}
        right = set(_LETTER.findall(answer)) == {choice[1]} and harmless.issuperset(words(answer))
        right = right and not re.search(r"[-+*/^=<>?]|\\[lgn]e", answer)
        return right, "same choice" if right else "no choice, or another"
    try:
        elements, names = read_gold(gold)
    except Unreadable as reason:
        return _by_algebra(gold, answer, f"the gold answer is not read: {reason}")
    try:
        stated = read_line(answer)
    except Unreadable as reason:
        return False, f"not read: {reason}"
    right, why = _Match(elements, names, relative_tolerance).statements(stated)
    return right, f"{why}; read as {reading(stated)}"


@lru_cache(maxsize=4096)
def read_gold(text: str) -> tuple[tuple[Tree, ...], tuple[str, ...]]:
    """The elements of a gold answer: one, or several in any order; and the names of a tuple's
    entries where it has some. Raises Unreadable: the grammar does not know the notation.
    """
    statements = read_line(text)
    if len(statements) != 1:
        raise Unreadable("several statements")
    (statement,) = statements
    formulas = [read(_measured(formula)) for formula in statement.formulas]
    trees = [_without_membership(tree) for tree in rewriting.unfolded(formulas)]

    # `x = 1, y = 2` is the tuple (1, 2) with named entries.
    pairs = [named(tree) for tree in trees]
    names = tuple(name for name, _ in pairs if name)
    every_entry_is_named = len(set(names)) == len(names) == len(trees)
    if every_entry_is_named and len(trees) > 1:
        entries = tuple(value for _, value in pairs)
        return (Bracketed("()", entries),), names

    # `x < 1 or x > 2` is one set.
    if statement.alternatives and all(identity_testing.is_order(tree) for tree in trees):
        sets = tuple(identity_testing.as_set(tree) for tree in trees)
        return (Union(sets),), ()
    return tuple(elements_of(trees)), ()


def _without_membership(tree: Tree) -> Tree:
    """`x \\in (0, 1)` as the interval."""
    match tree:
        case Chain((name, collection), ("in",)) if is_name(name):
            return collection
    return tree


def _measured(formula: Sequence[Token]) -> list[Token]:
    """`9.8 m/s^2` with its unit; `4m` may be a product."""
    whole = with_unit(formula)
    measured = whole[-1].kind == "unit" and ("/" in whole[-1].text or "." in whole[0].text)
    return whole if measured else list(formula)


def _position(name: str) -> str:
    """Alphabetical, but for spherical coordinates: rho, theta, phi."""
    return name.replace("phi", "thi")


def _by_algebra(gold: str, answer: str, reason: str) -> Verdict:
    """A gold answer in notation that the grammar does not know: the same tokens, or one formula
    that algebra finds equal."""
    try:
        gold_tokens = _bare_tokens(gold)
        answer_tokens = _bare_tokens(answer)
    except Unreadable as error:
        return False, f"not read: {error}"
    # Letters one by one: whether `an` is a word or a product depends on where the dollar signs
    # stand.
    if _letters(gold_tokens) == _letters(answer_tokens):
        return True, "same text"
    if not any(
        t.kind in ("number", "op", "command", "open") and t.text != "{" for t in gold_tokens
    ):
        said = {_words(part, gold_tokens) for part in _sentences(answer_tokens)}
        return said == {_words(gold_tokens, gold_tokens)}, "words"
    several = any(t.kind in _SEVERAL for t in answer_tokens)
    if several or answer.count("boxed") > 1:
        return False, reason
    right = bool(computer_algebra.verdict(normalise(gold), normalise(answer)))
    return right, f"{'' if right else 'not '}equivalent (math-verify)"


_APART = re.compile(r"'|(?<![A-Za-z])_|\d\s*\\frac|\\boxed")
"""Minutes, a number with an index, a mixed number, a box beside something: the grammar refuses
these on purpose."""


def reread(gold: str, answer: str) -> bool | None:
    """A computer algebra system's verdict on an answer that the grammar could not read; None where
    it cannot read it either, or it is more than one formula: words, lists and alternatives stay
    unread, whatever the algebra would pick from them.
    """
    box = _ONE_BOX.fullmatch(answer)
    if box:
        answer = box[1]
    if _HEDGED.search(answer) or _APART.search(answer):
        return None
    try:
        tokens = _bare_tokens(answer)
    except Unreadable:
        return None
    depth = 0
    relations = 0
    for token in tokens:
        depth += (token.kind == "open") - (token.kind == "close")
        relations += token.kind == "rel"
        if relations > 1 or token.kind == "word" or (token.kind in _SEVERAL and depth == 0):
            return None
    return computer_algebra.verdict(normalise(gold), normalise(answer), digits=12)


def _sentences(tokens: list[Token]) -> list[list[Token]]:
    """Without their reasons, and without those that say nothing."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind == "stop":
            parts.append([])
        elif not (parts[-1] and parts[-1][-1].text in REASONS):
            parts[-1].append(token)
    stated = []
    for part in parts:
        if part and part[-1].text in REASONS:
            part = part[:-1]
        if not part:
            continue
        if part[-1].kind == "sep":
            part = part[:-1]
        worded = all(token.kind == "word" for token in part)
        if not worded or not is_harmless([token.text for token in part], worded=True):
            stated.append(part)
    return stated


def _words(tokens: list[Token], gold: list[Token]) -> str:
    """What is said, without articles and what it is said about."""
    gold_words = {token.text.lower() for token in gold}
    articles = LEADING - gold_words
    for token, following in itertools.pairwise(tokens):
        if token.text.lower() == "no" and following.kind == "word":
            articles = frozenset()  # `no answer` is not `no`
    tokens = [token for token in tokens if token.kind != "stop" and token.text not in "{}"]
    start = 0  # behind the last copula
    for i, token in enumerate(tokens):
        if token.text in COPULAS:
            start = i + 1
    subject = tokens[:start]
    words_of_subject = {token.text.lower() for token in subject if token.kind == "word"}
    mark = "" if words_of_subject <= SUBJECT | gold_words else "?"
    said = _joined(tokens[start:], articles) or _joined(subject, articles)
    return mark + said


def _joined(tokens: list[Token], articles: Set[str]) -> str:
    return "".join(token.text.lower() for token in tokens if token.text not in articles)


def _letters(tokens: list[Token]) -> str:
    return "".join(f"#{t.text}#" if t.kind == "number" else t.text for t in tokens)


def _bare_tokens(text: str) -> list[Token]:
    return [t for t in tokens_of(text.rstrip(". \n")) if t.kind != "edge" and t.text != "box"]


class _Match:
    def __init__(self, gold: tuple[Tree, ...], names: tuple[str, ...], tolerance: float):
        self.gold = gold
        self.names = names
        self.tolerance = tolerance
        self.rounded = tolerance > 0 or all(was_rounded(named(tree)[1]) for tree in gold)
        """The gold answer may be a rounded number, so that `about` says no less."""

    def statements(self, stated: list[Statement]) -> Verdict:
        """Every statement has to be the gold answer; a decimal near it may follow its exact
        value."""
        was_exact = False  # an earlier statement is the gold answer itself
        for statement in _concluded(stated):
            try:
                trees = [self._tree(formula) for formula in statement.formulas]
            except Unreadable as reason:
                return False, f"not read: {reason}"
            if was_exact and all(map(domain, trees)):
                continue
            if any(map(_of_naturals, trees)) and len(self.gold) == 1 and periodic(self.gold[0]):
                return False, "not every integer"
            trees = rewriting.unfolded(trees)
            if statement.approximate and was_exact and self._near(trees):
                continue
            if statement.approximate and not was_exact and not self.rounded:
                return False, "not read: unclear: about an exact value"
            try:
                right = self._several(trees, statement)
            except Unreadable as reason:
                return False, f"cannot be compared: {reason}"
            if not right and len(trees) > len(self.gold):
                return False, "states more than the gold answer"
            if not right:
                return False, "states two answers" if was_exact else "not equivalent"
            was_exact = True
        return True, "equivalent"

    def _tree(self, formula: tuple[Token, ...]) -> Tree:
        """A formula; where the gold answer is a number, letters behind a number are a unit."""
        numeric = all(not values.symbols(named(element)[1]) for element in self.gold)
        bare = with_unit(formula) if numeric else _measured(formula)
        if bare and bare[0].text == "~":
            bare = bare[1:]
        return read(_opaque(bare))

    def _near(self, trees: list[Tree]) -> bool:
        pairs = zip(self.gold, trees, strict=False)
        near = (rounds(values.bare(named(g)[1]), values.bare(t)) for g, t in pairs)
        return len(trees) == len(self.gold) and all(near)

    def _several(self, trees: list[Tree], statement: Statement) -> bool:
        gold = self.gold
        if len(gold) == 1:
            return self._one(gold[0], trees, statement)
        elements = elements_of(rewriting.unnamed_set(self._grouped(trees, statement)))
        names = {name.split("_")[0] for name in (named(t)[0] for t in elements) if name}
        if len(elements) == 1:
            elements = rewriting.ungrouped(elements[0]) or elements
        if len(elements) != len(gold):
            return False
        if len(names) > 1 and all(named(g)[0] is None for g in gold):
            return all(self.element(g, t) for g, t in zip(gold, elements, strict=True))
        return unordered(gold, elements, self.element)

    def _one(self, gold: Tree, trees: list[Tree], statement: Statement) -> bool:
        """Whether the trees are a single gold element: itself, once or more, or its parts."""
        if len(trees) == 1:
            return self.element(gold, trees[0])
        if statement.alternatives and all(self.element(gold, tree) for tree in trees):
            return True  # 1/2 or 0.5
        return self._parts(gold, trees, statement)

    def _grouped(self, trees: list[Tree], statement: Statement) -> list[Tree]:
        """`x = 1, y = 2 or x = 3, y = 4` as two pairs."""
        names = [named(t)[0] for t in trees]
        size = len(set(names))
        repeated = names == names[:size] * (len(trees) // max(size, 1))
        if None in names or not statement.alternatives or not repeated or size < 2:
            return trees
        order = sorted(range(size), key=lambda k: _position(str(names[k])))
        rows = [trees[i : i + size] for i in range(0, len(trees), size)]
        return [Bracketed("()", tuple(named(row[k])[1] for k in order)) for row in rows]

    def _parts(self, gold: Tree, trees: list[Tree], statement: Statement) -> bool:
        """A tuple given by its entries, a union by its parts, an interval by its two bounds."""
        if isinstance(gold, Union):
            if statement.conjoined and any(map(identity_testing.is_order, trees)):
                return False
            parts = [identity_testing.as_set(tree) for tree in trees]
            return unordered(gold.items, parts, self.value)
        if statement.alternatives:
            return False
        if isinstance(gold, Bracketed) and self._entries(gold, trees):
            return True
        bounded = isinstance(gold, Bracketed) or identity_testing.is_order(gold)
        if len(trees) != 2 or not bounded:
            return False
        interval = identity_testing.both(trees[0], trees[1])
        return interval is not None and self.element(gold, interval)

    def _entries(self, gold: Bracketed, trees: list[Tree]) -> bool:
        """A tuple given by its entries, in its order or by name: `x = 1, y = 2`."""
        if len(trees) != len(gold.items):
            return False
        names = [named(tree)[0] for tree in trees]
        entries = [named(tree)[1] for tree in trees]
        may_be_compared = not any(names)
        if all(names) and len(set(names)) == len(names):
            same_names = set(self.names) == set(names)
            order = self.names if same_names else sorted(map(str, names), key=_position)
            entries = [entries[names.index(name)] for name in order]
            may_be_compared = not self.names or same_names
        if not may_be_compared or gold.brackets != "()":
            return False
        return all(map(self.value, gold.items, entries))

    def element(self, gold: Tree, answer: Tree) -> bool:
        name, value = named(gold)
        if isinstance(gold, Chain) and name is None:
            if identity_testing.is_order(gold):
                return identity_testing.same_order(gold, answer, self.value)
            return gold.relations in (("=",), ("!=",)) and _same_equation(gold, answer)
        solved = name and values.symbols(value) and named(answer)[0] != name
        if solved and _same_equation(gold, answer):
            return True
        if isinstance(answer, Chain):
            return self._chain(name, value, answer)
        return self.value(value, answer)

    def _chain(self, name: str | None, gold: Tree, answer: Chain) -> bool:
        items = answer.items
        relations = answer.relations
        if "in" in relations:
            member = relations[-1] == "in" and set(relations[:-1]) <= {"="}
            return member and self.value(gold, items[-1])
        if not set(relations) <= {"=", "~"}:
            interval = identity_testing.interval(answer)
            if interval is None or not isinstance(gold, Bracketed | Union):
                return False
            return self.value(gold, interval[1])
        names = [item.name for item in items if is_name(item)]
        if name is not None and names and not {name, name.split("(")[0]} & set(names):
            letters = rewriting.renaming(name, names[0])
            if letters is None or items[0] != Symbol(names[0]) or len(items) != 2:
                return False
            old, new = letters
            return self.value(rewriting.substituted(gold, old, new), items[1])
        if isinstance(gold, COLLECTIONS):
            before = items[:-1]
            return self.value(gold, items[-1]) and all(
                is_label(item) or self.value(gold, item) for item in before
            )
        return self._equalities(gold, items, relations)

    def _equalities(self, gold: Tree, items: Sequence[Tree], relations: Sequence[str]) -> bool:
        """A chain of equalities: every link has to hold; one end may be a name, or a quantity that
        is asked for."""
        if any(isinstance(item, (*COLLECTIONS, Chain, PlusMinus)) for item in items):
            return False
        for (left, right), relation in zip(itertools.pairwise(items), relations, strict=True):
            if values.symbols(left) or values.symbols(right):
                continue  # a link between quantities that are no numbers cannot be told by itself
            holds = self.value(left, right) if relation == "=" else rounds(left, right)
            if not holds:
                return False
        numbers = [item for item in items if not values.symbols(item)]
        if not values.symbols(gold):
            return bool(numbers) and self._equal_numbers(gold, items, relations, numbers)
        if numbers:
            return False
        # All are the gold answer, but for one at an end.
        equal = [(not is_name(item) and self.value(gold, item)) or item == gold for item in items]
        if all(equal):
            return True
        if equal.count(False) > 1 or (equal[0] and equal[-1]):
            return False
        names = values.symbols(gold)
        other = items[equal.index(False)]
        if is_name(other) and other.name not in names:
            return True
        return not values.symbols(other) & names

    def _equal_numbers(
        self, gold: Tree, items: Sequence[Tree], relations: Sequence[str], numbers: Sequence[Tree]
    ) -> bool:
        """Whether the numbers of a chain are the gold answer, and its quantities may be worth what
        they are said to be."""
        if not rewriting.contradiction_free([item for item in items if values.symbols(item)]):
            return False
        if not self._hold_there(items, numbers[0]):
            return False
        first = numbers[0]
        last = numbers[-1]
        if not self.rounded and first != items[0] and relations[items.index(first) - 1] == "~":
            return False
        if "~" in relations and not self.value(gold, first):
            return self.value(gold, last) and not values.symbols(items[-1])
        return all(
            self.value(gold, n) or ("~" in relations and k > 0) for k, n in enumerate(numbers)
        )

    def _hold_there(self, items: Sequence[Tree], number: Tree) -> bool:
        """Whether what is composed of the names in a chain is worth what they are: not in `x = 79/x
        = 81`."""
        composed = [item for item in items if not is_name(item) and values.symbols(item)]
        for name in {item.name for item in items if is_name(item)}:
            composed = [rewriting.substituted(item, name, number) for item in composed]
        return all(values.symbols(item) or self.value(number, item) for item in composed)

    def value(self, gold: Tree, answer: Tree) -> bool:
        """Whether two values are the same: numbers, expressions, tuples, sets, unions, matrices.

        Where both have units, in these units; else without.
        """
        gold_measured = values.has_unit(gold)
        answer_measured = values.has_unit(answer)
        if gold_measured and answer_measured:
            if values.dimension(gold) != values.dimension(answer):
                return False
            match gold, answer:
                case Quantity(amount, unit), Quantity(other, other_unit) if unit == other_unit:
                    return self.value(amount, other)
        elif gold_measured or answer_measured:
            if self.value(values.bare(gold), values.bare(answer)):
                return not periodic(gold) or not _in_degrees(answer)
            if values.dimension(gold) or values.dimension(answer):
                return False  # else an angle, which is a number, too
        return self._value(gold, answer)

    def _value(self, gold: Tree, answer: Tree) -> bool:
        match gold, answer:
            case (FiniteSet(items), FiniteSet(others)) | (Union(items), Union(others)):
                return unordered(items, others, self.value)
            case (FiniteSet() | Union(), _):
                return False
            case (_, FiniteSet((item,))):
                return self.value(gold, item)
            case (Matrix(), _) | (Bracketed(), Matrix()):
                return self._matrix(rewriting.as_matrix(gold), rewriting.as_matrix(answer))
            case (Bracketed(), _):
                return self._tuple(gold, answer)
            # `3 \\pmod 7` is neither 3 modulo 8 nor 4 modulo 7; where only one has a modulus, its
            # remainder counts.
            case (Remainder(right=modulus), Remainder(right=other_modulus)):
                return self.value(modulus, other_modulus) and same_value(gold, answer, 0.0)
            case (Remainder(), _) | (_, Remainder()):
                return same_value(gold, answer, 0.0)
        if any(isinstance(tree, (*COLLECTIONS, Chain, PlusMinus)) for tree in (gold, answer)):
            return gold == answer
        if values.symbols(gold) or values.symbols(answer):
            return identity_testing.same(gold, rewriting.same_letter(gold, answer))
        return same_number(gold, answer, self.tolerance)

    def _matrix(self, gold: Tree, answer: Tree) -> bool:
        if not isinstance(gold, Matrix) or not isinstance(answer, Matrix):
            return False
        if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
            return False
        gold_entries = itertools.chain(*gold.rows)
        entries = itertools.chain(*answer.rows)
        return all(map(self.value, gold_entries, entries))

    def _tuple(self, gold: Bracketed, answer: Tree) -> bool:
        if isinstance(answer, Chain):
            interval = identity_testing.interval(answer)
            return interval is not None and self.value(gold, interval[1])
        if gold == REALS and answer == Symbol("R"):
            return True
        if not isinstance(answer, Bracketed):
            ratio = gold.brackets == ":" and len(gold.items) == 1
            return ratio and self.value(gold.items[0], answer)
        if gold.brackets != answer.brackets or len(gold.items) != len(answer.items):
            return False
        return all(map(self.value, gold.items, answer.items))


def _of_naturals(tree: Tree) -> bool:
    """`k \\in \\mathbb{N}`."""
    return domain(tree) and any("N" in name for name in values.symbols(tree))


def _in_degrees(tree: Tree) -> bool:
    units = (node.unit for node in nodes(tree) if isinstance(node, Quantity))
    return any(unit.startswith("degree") for unit in units)


def _same_equation(gold: Tree, answer: Tree) -> bool:
    """Whether two equations, or two inequations, have the same solutions."""
    match gold, answer:
        case Chain((left, right), relation), Chain((other_left, other_right), other_relation):
            if relation != other_relation:
                return False
            return identity_testing.same_equation((left, right), (other_left, other_right))
    return False


def _opaque(formula: list[Token]) -> list[Token]:
    """A quantity that the grammar does not read (`\\sum_{k=1}^6 2k = 42`) as a name, where it is
    what the value is of."""
    i = _first_relation(formula)
    if i is None or formula[i].text != "=":
        return formula
    not_read = any(t.kind in ("command", "function") and t.text in _NOT_READ for t in formula[:i])
    return [Token("symbol", "quantity"), *formula[i:]] if not_read else formula


def _first_relation(formula: Sequence[Token]) -> int | None:
    depth = 0
    for i, token in enumerate(formula):
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0 and token.kind == "rel":
            return i
    return None


def _concluded(stated: list[Statement]) -> list[Statement]:
    """`m = 7, n = 5, so m + n = 12`: what was concluded from named values is what is stated."""
    for k in range(len(stated) - 1, 0, -1):
        if not stated[k].concluded:
            continue
        before = [_left_side(f) for s in stated[:k] for f in s.formulas]
        if all(before) and not {_left_side(f) for f in stated[k].formulas} & set(before):
            return stated[k:]
    return stated


def _left_side(formula: Sequence[Token]) -> str | None:
    i = _first_relation(formula)
    return None if i is None or formula[i].text != "=" else "".join(t.text for t in formula[:i])
