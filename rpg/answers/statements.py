"""What an answer line states: the formulas that make the statement, how they are joined, and what
is only said about them. A line that leaves open what is stated, or takes it back, is Unreadable,
with the reason.

    line       := sentence*                      every sentence that has a formula has to say the
    same sentence   := [subject copula] statement (restating statement)* statement  := formula ((','
    | 'and' | 'or') formula)* formula    := tokens without words at their top level, perhaps with a
    unit
"""

import itertools
from collections.abc import Set
from dataclasses import dataclass, field

from rpg.answers import lexicon
from rpg.answers.lexer import EDGE, Token, Unreadable, closing, tokens_of, with_number_words
from rpg.answers.units import compound, cut_units, letters_length, unit_length, unit_token

_ALL = {"all", "every", "any", "each"}
_QUANTIFIERS = _ALL | set("some real integer positive".split())
_INTRODUCING = lexicon.LEADING | lexicon.APPROXIMATE | lexicon.RESTATING
_BINARY = {"+", "-", "*", "/", "^", "!", "%", "pm", "mod", "cup", "_"}
_SHOWN = 120
_CONCLUDING = lexicon.CONCLUDING | {"namely", "equivalently", "giving", "meaning"}
_REFERRING = (
    lexicon.NUMBERED
    | lexicon.REASONS
    | lexicon.SUBORDINATE - {"for"}
    | set("by from using via with".split())
)
"""A remark with one of these before its formula only says why, whatever formulas it has."""
_EXPLAINING = {"by", "using", "via", "which"}
_NOT_A_REASON = {"well", "a", "an", "of", "per", "one"}
_STATING = lexicon.JOINING | lexicon.COPULAS | lexicon.RESTATING


@dataclass
class Statement:
    """Formulas joined by commas, `and` or `or` (`alternatives`)."""

    formulas: list[tuple[Token, ...]]
    alternatives: bool = False
    conjoined: bool = False
    """By an explicit `and`."""
    approximate: bool = False
    concluded: bool = False
    """Introduced by `so` or `hence`: what stands before it is how it was found."""


@dataclass
class Item:
    """A piece of a sentence: formula, word, sep, copula or remark (words in parentheses)."""

    kind: str
    text: str = ""
    tokens: tuple[Token, ...] = ()
    inner: "list[Item]" = field(default_factory=list)


def read_line(text: str) -> list[Statement]:
    """The statements of an answer line, at least one. Raises Unreadable: nothing is stated, or
    unclearly, or taken back."""
    stated: list[Statement] = []
    for sentence in _SentenceReader(_flat(with_number_words(tokens_of(text)))).read():
        for clause in _clauses(sentence):
            stated += _statements(clause)
    if not stated:
        raise Unreadable("no value")
    return stated


def reading(statements: list[Statement]) -> str:
    """What was read, in one line: formulas between bars, statements between semicolons."""
    text = "; ".join(map(_read_as, statements))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _read_as(statement: Statement) -> str:
    formulas = " | ".join(map(_shown, statement.formulas))
    return f"about {formulas}" if statement.approximate else formulas


def _shown(formula: tuple[Token, ...]) -> str:
    pieces = []
    for token in formula:
        if token.text == "box":
            continue
        word = token.kind == "symbol" and len(token.text) > 1 and token.text.isalpha()
        named = word or token.kind in ("command", "function")
        pieces.append(f"\\{token.text} " if named else token.text)
    return "".join(pieces).strip()


def _flat(tokens: list[Token]) -> list[Token]:
    """Boxes and groups that hold more than a formula (words, lists, relations) are opened; others
    stay brackets."""
    opened: list[Token] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        end = closing(tokens, i) if token.kind == "open" else i
        inside = tokens[i + 1 : end]
        before = opened[-1] if opened else None
        group = token.kind == "open" and token.text in ("box", "{")
        if group and not _takes_an_argument(before) and _holds_more(inside):
            after = next((t for t in tokens[end + 1 :] if t.kind != "edge"), None)
            joined = after is not None and after.kind == "op" and after.text in _BINARY
            if joined or (before is not None and before.kind == "op"):
                raise Unreadable("a sign beside a box of words or several values")
            opened += [EDGE, *_flat(inside), EDGE]
        else:
            opened += tokens[i : end + 1]
        i = end + 1
    return opened


def _takes_an_argument(token: Token | None) -> bool:
    if token is None:
        return False
    return token.kind in ("command", "function") or token.text in ("^", "_")


def _holds_more(inside: list[Token]) -> bool:
    depth = 0
    for token in inside:
        depth += (token.kind == "open") - (token.kind == "close")
        letters = token.kind == "symbol" and token.upright
        apart = letters or token.kind in ("word", "rel", "colon", "dots", "sep", "stop", "edge")
        if (depth == 0 and apart) or token[:2] == ("open", "box"):
            return True
    return False


class _SentenceReader:
    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.i = 0
        self.sentences: list[list[Item]] = [[]]
        self.formula: list[Token] = []
        self.ended = False
        """The open formula may have ended: a dollar sign or a unit stood behind it."""

    def read(self) -> list[list[Item]]:
        while self.i < len(self.tokens):
            token = self.tokens[self.i]
            if token.kind == "edge":
                self.ended = bool(self.formula)
                self.i += 1
            elif token.kind in ("word", "sep", "stop", "colon"):
                self._between(token)
            elif token.kind == "dots":
                raise Unreadable("an answer that goes on")
            elif not self._remark(token):
                self._part_of_formula(token)
        self._close_formula()
        return [sentence for sentence in self.sentences if sentence]

    def _close_formula(self) -> None:
        if sum(t[:2] == ("open", "box") for t in self.formula) > 1:
            raise Unreadable("two boxes in one formula")
        if self.formula:
            self.sentences[-1].append(Item("formula", tokens=tuple(cut_units(self.formula))))
        self.formula = []

    def _remark(self, token: Token) -> bool:
        """Reads words in parentheses; False where there are none."""
        if token.kind != "open" or token.text not in ("(", "["):
            return False
        end = closing(self.tokens, self.i)
        inside = self.tokens[self.i + 1 : end]
        before = self.formula[-1] if self.formula else None
        if not self._says_something(inside, before):
            return False
        self._close_formula()
        items = [item for sentence in _SentenceReader(_flat(inside)).read() for item in sentence]
        self.sentences[-1].append(Item("remark", inner=items))
        self.i = end + 1
        self.ended = False
        return True

    def _says_something(self, inside: list[Token], before: Token | None) -> bool:
        """Whether parentheses hold words, or the value once more, and no part of a formula."""
        is_factor = before is not None and before.kind == "op" and before.text in ("/", "*")
        has_words = any(token.kind == "word" or _spelled(token) for token in inside)
        if has_words and not is_factor:
            return True
        first = next((token for token in inside if token.kind != "edge"), None)
        if first is not None and first.text in ("~", "="):
            return True
        if any(token[:2] == ("rel", "in") for token in inside):
            return True
        return before is not None and _spelled(before)

    def _between(self, token: Token) -> None:
        """A word, a unit, a comma, a full stop or a colon."""
        length = unit_length(self.tokens, self.i) if token.kind == "word" and self.formula else 0
        if length:
            self.formula += unit_token(self.tokens[self.i : self.i + length])
            self.i = self.i + length
            self.ended = True
            return
        behind_words = (
            self.sentences[-1] and self.sentences[-1][-1].kind != "formula" and not self.formula
        )
        if token.kind == "colon" and not behind_words:
            raise Unreadable("a ratio or label")
        if token.text == "&":
            raise Unreadable("a function in pieces")
        self._close_formula()
        if token.kind == "colon":
            self.sentences[-1].append(Item("copula"))
        elif token.kind == "stop":
            self.sentences.append([])
        else:
            copula = token.kind == "word" and token.text in lexicon.COPULAS
            self.sentences[-1].append(Item("copula" if copula else token.kind, token.text))
        self.i = self.i + 1
        self.ended = False

    def _part_of_formula(self, token: Token) -> None:
        if self.ended and self.formula:
            last = self.formula[-1]
            dangling = last.kind == "rel" or (
                last.kind == "op" and last.text in _BINARY - {"!", "%"}
            )
            sign = token.kind == "op" and token.text in _BINARY
            if not (dangling or sign or token.kind == "rel" or token.text == "circ"):
                length = letters_length(self.tokens, self.i)
                self.formula += unit_token(self.tokens[self.i : self.i + length])
                self._close_formula()
                if length:
                    self.i += length
                    return
        self.ended = False
        end = closing(self.tokens, self.i) if token.kind == "open" else self.i
        self.formula += self.tokens[self.i : end + 1]
        self.i = end + 1


def _spelled(token: Token) -> bool:
    return token.upright and (token.kind == "number" or token.text == "}")


def _words(items: list[Item]) -> list[str]:
    words: list[str] = []
    for item in items:
        if item.kind not in ("word", "copula"):
            words += _words(item.inner)
        elif item.text:
            words.append(item.text)
    return words


def _clauses(items: list[Item]) -> list[list[Item]]:
    """`$17 + 25 = 42$, so the answer is $42$` in two, `5, which is 10/2`, too."""
    formulas = [k for k, item in enumerate(items) if item.kind == "formula"]
    for k in range(formulas[0] + 1, formulas[-1]) if formulas else ():
        restates = items[k].text in ("that", "which") and items[k + 1].kind == "copula"
        start = k - (items[k - 1].text == "and")
        if (restates or items[k].text in _CONCLUDING) and items[start - 1].kind != "word":
            return [items[:start], *_clauses(items[k:])]
    return [items]


def _statements(items: list[Item], remark: bool = False) -> list[Statement]:
    """What a clause states. Raises Unreadable: it has a word that is not known, where it stands, to
    leave that as it is."""
    items, reasons = _without_reasons(items, remark)
    _check(reasons, lexicon.REASONING)
    if all(item.kind != "formula" for item in items):
        return _of_words(items, remark)
    items = _without_opening(items)
    start = _predicate(items)
    subject = items[:start]
    predicate = _without_references(items[start:])
    first = next((i for i, item in enumerate(predicate) if item.kind == "formula"), None)
    if first is None:
        raise Unreadable("only the number of a problem or a step")
    _check_subject(subject)
    head = predicate[:first]
    leading = _words(predicate[:first])
    if remark and not _REFERRING.isdisjoint(leading):
        _check(predicate, lexicon.REASONING)
        return []
    formula = predicate[first].tokens
    named = formula[0].text == "="  # Area = 5
    allowed = _INTRODUCING | lexicon.JOINING if remark else _INTRODUCING
    _check(head, lexicon.SUBJECT if named else allowed)
    approximate = not lexicon.APPROXIMATE.isdisjoint(leading) or formula[0].text == "~"
    concluded = items[0].text in lexicon.CONCLUDING
    statement = Statement([_bare(formula)], approximate=approximate, concluded=concluded)
    stated = _behind(statement, predicate[first + 1 :])
    if {"either", "both"} & set(leading) and len(stated[0].formulas) == 1:
        raise Unreadable("unclear: one value where several are named")
    if len(subject) == 2 and subject[0].kind == "formula":
        # `x is 5` and `6 is 5`: read as equations
        stated[0].formulas[0] = (*subject[0].tokens, Token("rel", "="), *stated[0].formulas[0])
    return stated


def _of_words(items: list[Item], remark: bool) -> list[Statement]:
    """What the remarks of a clause without a formula state."""
    words = [word for word in _words(items) if not (remark and word in lexicon.APPROXIMATE)]
    if not lexicon.is_harmless(words):
        raise Unreadable(f"unclear: {' '.join(words)!r}")
    return [s for item in items if item.kind == "remark" for s in _statements(item.inner, True)]


def _without_opening(items: list[Item]) -> list[Item]:
    """Without `After simplification, `."""
    first = next(i for i, item in enumerate(items) if item.kind == "formula")
    end = max((i for i, item in enumerate(items[:first]) if item.kind == "sep"), default=0)
    opening = set(_words(items[:end]))
    return (
        items[end + 1 :] if opening and opening <= lexicon.EXPLAINING - {"case", "cases"} else items
    )


def _behind(statement: Statement, following: list[Item]) -> list[Statement]:
    """A statement with the formulas that follow the first one, and what its remarks state."""
    stated = [statement]
    remarks = list[Statement]()
    between: list[Item] = []
    for i, item in enumerate(following):
        if item.kind == "remark":
            remarks += _statements(item.inner, True)
            statement.approximate |= not (remarks or lexicon.APPROXIMATE.isdisjoint(_words([item])))
        elif item.kind == "formula":
            _join(stated, between, item.tokens)
            between = []
        elif item.text in lexicon.SUBORDINATE and _explains(item, following[i + 1 :]):
            _check(following[i + 1 :], lexicon.REASONING)
            break
        else:
            between.append(item)
    _check_behind(between)
    return stated + remarks


def _check(items: list[Item], harmless: Set[str]) -> None:
    """Raises Unreadable: a word that is not known to leave what is stated as it is."""
    for word in _words(items):
        if word not in harmless:
            raise Unreadable(f"unclear: {word!r}")


def _check_subject(subject: list[Item]) -> None:
    """Raises Unreadable: what is said to be the value is not known to be; or another value stands
    before it."""
    words = _words(subject)
    explains = bool(words) and (words[0] in lexicon.REASONS or words[0].endswith("ing"))
    harmless = lexicon.REASONING if explains else lexicon.SUBJECT
    _check(subject, harmless | {"when"} if "remainder" in words else harmless)
    if words[:1] in (["a"], ["an"]) or "of the answer" in " ".join(words):
        raise Unreadable("unclear: not the answer, but something of it")
    for before, item in itertools.pairwise([Item("sep"), *subject]):
        described = before.kind in ("word", "copula") and before.text not in lexicon.CONCLUDING
        value = item.kind == "formula" and not _is_symbol(item.tokens)
        if (
            value
            and not described
            and len(subject) > 2
            and all(t.kind != "rel" for t in item.tokens)
        ):
            raise Unreadable("unclear: a value before the answer")


def _check_behind(items: list[Item]) -> None:
    """Raises Unreadable: words behind the value that are neither what is counted nor known to be
    harmless."""
    separated = False
    for separates, clause in itertools.groupby(items, lambda item: item.kind == "sep"):
        words = _words(list(clause))
        separated |= separates
        explains = separated or (words and words[0] in _EXPLAINING)
        if (
            separates
            or not words
            or (explains and lexicon.is_harmless(words, worded=not separated))
        ):
            continue
        asserts = words[0] in ("is", "are") and words[1:2] in (["the"], ["our"], ["my"])
        harmless = lexicon.BEHIND | (lexicon.SUBJECT if asserts else set())
        unknown = [word for word in words if word not in harmless]
        of_answer = " of the answer" in " ".join(words)
        if unknown or of_answer or (words[-1] in lexicon.COUNTING and not asserts):
            raise Unreadable(f"unclear: {(unknown or words)[-1]!r} behind the value")


def _without_reasons(items: list[Item], remark: bool) -> tuple[list[Item], list[Item]]:
    """What is stated, and what only says why: behind `since`, or behind `as` that follows a formula
    or opens a remark."""
    stated = False
    for k, item in enumerate(items):
        begins = remark if k == 0 else stated and items[k - 1].kind != "word"
        compares = item.text == "as" and _NOT_A_REASON & set(_words(items[k + 1 : k + 2]))
        if begins and item.text in lexicon.REASONS and not compares:
            return items[:k], items[k:]
        stated |= item.kind == "formula"
    return items, []


def _predicate(items: list[Item]) -> int:
    """Where the statement begins: behind the last copula that a formula follows; 0 without one."""
    formulas = [i for i, item in enumerate(items) if item.kind == "formula"]
    last = formulas[-1] if formulas else 0
    copulas = [i for i, item in enumerate(items[:last]) if item.kind == "copula"]
    for before, i in itertools.pairwise(copulas):
        between = items[before:i]
        states_more = any(
            item.kind == "formula" and not _is_symbol(item.tokens) for item in between
        )
        joined = any(item.kind == "sep" or item.text in lexicon.JOINING for item in between)
        if states_more and joined:
            raise Unreadable("unclear: several statements")
    return copulas[-1] + 1 if copulas else 0


def _is_symbol(formula: tuple[Token, ...]) -> bool:
    return len(formula) == 1 and formula[0].kind == "symbol"


def _explains(item: Item, after: list[Item]) -> bool:
    """`for all x`, `where C is a constant`: what follows only explains. `5 for n = 1` and `5 for
    integers` do not."""
    if item.text != "for":
        return _words(after[:1]) != ["possible"]
    quantified = bool(after) and after[0].text in _QUANTIFIERS
    return quantified and (after[0].text in _ALL or any(item.kind == "formula" for item in after))


def _bare(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """Without the sign of a relation whose left side is in words, and without an arrow."""
    sign = tokens[0].text in ("=", "to") and tokens[0].kind in ("rel", "command")
    return tokens[1:] if sign and len(tokens) > 1 else tokens


def _without_references(items: list[Item]) -> list[Item]:
    """`from step 3` is words alone."""
    kept: list[Item] = []
    for item in items:
        numbered = bool(kept) and kept[-1].kind == "word" and kept[-1].text in lexicon.NUMBERED
        if not (numbered and item.kind == "formula" and len(item.tokens) == 1):
            kept.append(item)
    return kept


_COUNTED_FOR = frozenset("values solutions choices possibilities options candidates".split())


def _without_for(between: list[Item]) -> set[str]:
    """The words between a number and a name, without the `for` of `8 values for n`."""
    said = [item.text or "is" for item in between if item.kind in ("word", "copula")]
    if said[-1:] == ["for"] and not _COUNTED_FOR.isdisjoint(said[-2:-1]):
        said.pop()
    return set(said)


def _names_only(formula: tuple[Token, ...]) -> bool:
    """`n`, `(a, b)`: what a noun before it is called."""
    return len(formula) < 8 and all(
        t.kind == "symbol" or t.text in ("(", ")", ",") for t in formula
    )


def _join(stated: list[Statement], between: list[Item], formula: tuple[Token, ...]) -> None:
    words = {item.text for item in between if item.kind in ("word", "copula")}
    if any(item.kind == "copula" and not item.text for item in between):
        words.add("is")
    last = stated[-1]
    if [i.text for i in between] in ([], ["and"]) and (
        whole := compound(last.formulas[-1], formula)
    ):
        last.formulas[-1] = whole
    elif not words:
        if not between:
            raise Unreadable("two formulas side by side")
        last.formulas.append(formula)
    elif words <= lexicon.JOINING:
        last.formulas.append(formula)
        last.alternatives |= "or" in words or "either" in words
        last.conjoined |= "and" in words
    elif (
        words <= lexicon.APPROXIMATE | {"or", "is", "that", "which"} and words & lexicon.APPROXIMATE
    ):
        stated.append(Statement([_bare(formula)], approximate=True))
    elif (
        words <= lexicon.SUCH_THAT
        and len(last.formulas[-1]) == 1
        and any(t.kind == "rel" for t in formula)
    ):
        last.formulas[-1] = formula  # all x with x < 8
    elif not (
        _names_only(formula) and _without_for(between) <= lexicon.BEHIND - _STATING
    ):  # 8 possible values of n
        raise Unreadable(
            f"unclear: {' '.join(item.text for item in between).strip()!r} between formulas"
        )
