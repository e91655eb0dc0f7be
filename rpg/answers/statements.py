"""What an answer line states: the formulas that make the statement, how they are joined, and what is only said about
them. A line that leaves open what is stated, or takes it back, is Unreadable, with the reason.

    line       := sentence*                      every sentence that has a formula has to say the same
    sentence   := [subject copula] statement (restating statement)*
    statement  := formula ((',' | 'and' | 'or') formula)*
    formula    := tokens without words at their top level, perhaps with a unit
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rpg.answers.lexer import Token, Unreadable, tokens_of, with_number_words
from rpg.answers.lexicon import (
    APPROXIMATE,
    CHANGING,
    CONCLUDING,
    COPULAS,
    JOINING,
    LEADING,
    LOCATING,
    NUMBERED,
    POINTING,
    REFERRING,
    RESTATING,
    SPOILING,
    SPOILING_IN_SUBJECT,
    SUBORDINATE,
    SUCH_THAT,
)
from rpg.answers.units import cut_units, letters_length, unit_length

_BINARY = {"+", "-", "*", "/", "^", "!", "%", "pm", "mod", "cup", "_"}


@dataclass
class Statement:
    """Formulas joined by commas, `and` or `or` (`alternatives`)."""

    formulas: list[tuple[Token, ...]]
    alternatives: bool = False
    approximate: bool = False
    concluded: bool = False
    """Introduced by `so` or `hence`: what stands before it is how it was found."""


@dataclass
class Item:
    """A piece of a sentence: formula, word, sep, copula or remark (words in parentheses)."""

    kind: str
    text: str = ""
    tokens: tuple[Token, ...] = ()
    inner: list[Item] = field(default_factory=list)


def read_line(text: str) -> list[Statement]:
    """The statements of an answer line; at least one.

    Raises:
        Unreadable: nothing is stated, it is not clear what, or it is taken back.
    """
    found: list[Statement] = []
    for sentence in _sentences(_flat(_without_choice(with_number_words(tokens_of(text))))):
        found += _statements(sentence)
    if not found:
        raise Unreadable("no value")
    return found


_SHOWN = 120


def reading(statements: list[Statement]) -> str:
    """What was read, in one line: formulas between bars, statements between semicolons."""
    text = "; ".join(
        ("about " if s.approximate else "") + " | ".join(_shown(f) for f in s.formulas) for s in statements
    )
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _shown(formula: tuple[Token, ...]) -> str:
    pieces = []
    for token in formula:
        if token.text == "box":
            continue
        named = token.kind in ("command", "function") or (
            token.kind == "symbol" and len(token.text) > 1 and token.text.isalpha()
        )
        pieces.append(f"\\{token.text} " if named else token.text)
    return "".join(pieces).strip()


# ------------------------------------------------------------------------------------------- tokens to items


def _without_choice(tokens: list[Token]) -> list[Token]:
    """Without the letter of a multiple choice: `(C) 42`."""
    some = [t for t in tokens[:6] if t.kind != "edge" and t.text not in ("box", "{")]
    shape = [(t.kind, t.text) for t in some[:3]]
    if len(shape) == 3 and shape[0] == ("open", "(") and shape[2] == ("close", ")"):
        if shape[1] in [("symbol", c) for c in "ABCDE"]:
            after = tokens.index(some[2]) + 1
            rest = [t for t in tokens[after:] if t.kind != "edge"]
            if (rest and rest[0].kind in ("number", "command", "function", "open")) or (
                rest and rest[0].text == "-"
            ):
                kept = [t for t in tokens[:after] if t not in some[:3]]
                return [*kept, *tokens[after:]]
    return tokens


def _closing(tokens: list[Token], start: int) -> int:
    depth = 0
    for i in range(start, len(tokens)):
        depth += (tokens[i].kind == "open") - (tokens[i].kind == "close")
        if depth == 0:
            return i
    raise Unreadable("a bracket that does not close")


def _flat(tokens: list[Token]) -> list[Token]:
    """Boxes and groups that hold more than a formula (words, lists, relations) are opened; others stay brackets."""
    found: list[Token] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token.kind == "open" and token.text in ("box", "{"):
            end = _closing(tokens, i)
            inside = tokens[i + 1 : end]
            before = found[-1] if found else None
            index = before is not None and (
                before.kind in ("command", "function") or before.text in ("^", "_")
            )
            if not index and _holds_more(inside):
                after = next((t for t in tokens[end + 1 :] if t.kind != "edge"), None)
                if (before and before.kind == "op") or (
                    after and after.kind == "op" and after.text in _BINARY
                ):
                    raise Unreadable("a sign beside a box of words or several values")
                found += [Token("edge", "$"), *_flat(inside), Token("edge", "$")]
            else:
                found += tokens[i : end + 1]
            i = end + 1
        elif token.kind == "open":
            end = _closing(tokens, i)
            found += tokens[i : end + 1]
            i = end + 1
        else:
            found.append(token)
            i += 1
    return found


def _holds_more(inside: list[Token]) -> bool:
    depth = 0
    for token in inside:
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0 and (
            token.kind in ("word", "rel", "colon", "dots", "sep", "stop", "edge")
            or (token.kind == "symbol" and token.upright)
        ):
            return True
        if token.kind == "open" and token.text == "box":
            return True
    return False


def _sentences(tokens: list[Token]) -> list[list[Item]]:
    sentences: list[list[Item]] = [[]]
    formula: list[Token] = []
    edge = False
    i = 0

    def close_formula() -> None:
        nonlocal formula
        if formula:
            sentences[-1].append(Item("formula", tokens=tuple(cut_units(formula))))
        formula = []

    while i < len(tokens):
        token = tokens[i]
        kind = token.kind
        if kind == "edge":
            edge = bool(formula)
            i += 1
            continue
        if kind == "open" and token.text in ("(", "["):
            end = _closing(tokens, i)
            inside = tokens[i + 1 : end]
            first = next((t for t in inside if t.kind != "edge"), None)
            divisor = bool(formula) and formula[-1].kind == "op" and formula[-1].text in ("/", "*")
            said = not divisor and any(t.kind == "word" or _spelled(t) for t in inside)
            if (
                said
                or (first is not None and first.text in ("~", "="))
                or (formula and _spelled(formula[-1]))
            ):
                close_formula()
                parts = _sentences(_flat(inside))
                sentences[-1].append(Item("remark", inner=[item for part in parts for item in part]))
                i, edge = end + 1, False
                continue
        if kind in ("word", "sep", "stop", "colon"):
            length = unit_length(tokens, i) if kind == "word" and formula else 0
            if length:
                i += length
                edge = True
                continue
            if kind == "colon":
                if formula or not sentences[-1] or sentences[-1][-1].kind == "formula":
                    raise Unreadable("a ratio or label")
                sentences[-1].append(Item("copula"))
            else:
                close_formula()
                if kind == "stop":
                    sentences.append([])
                elif kind == "word" and token.text in COPULAS:
                    sentences[-1].append(Item("copula", token.text))
                else:
                    sentences[-1].append(Item(kind, token.text))
            i, edge = i + 1, False
            continue
        if kind == "dots":
            raise Unreadable("an answer that goes on")
        if edge and formula:
            dangling = formula[-1].kind == "rel" or (
                formula[-1].kind == "op" and formula[-1].text in _BINARY - {"!", "%"}
            )
            going_on = kind == "rel" or (kind == "op" and token.text in _BINARY) or token.text == "circ"
            if not dangling and not going_on:
                length = letters_length(tokens, i)
                close_formula()
                if length:
                    i += length
                    continue
        edge = False
        end = _closing(tokens, i) if kind == "open" else i
        formula += tokens[i : end + 1]
        i = end + 1
    close_formula()
    return [sentence for sentence in sentences if sentence]


def _spelled(token: Token) -> bool:
    return token.kind == "number" and token.upright


# ------------------------------------------------------------------------------------------- items to statements


def _words(items: list[Item]) -> list[str]:
    return [
        w for item in items for w in ([item.text] if item.kind in ("word", "copula") else _words(item.inner))
    ]


def _statements(items: list[Item], remark: bool = False) -> list[Statement]:
    start = _predicate(items)
    subject, rest = items[:start], items[start:]
    for word in _words(subject):
        if word in SPOILING_IN_SUBJECT:
            raise Unreadable(f"unclear: {word!r}")
    rest = _without_references(rest)
    words = _words(rest)
    reason = next((k for k, word in enumerate(words) if word in ("since", "because")), len(words))
    for k, word in enumerate(words):
        if word in (SPOILING if k < reason else SPOILING_IN_SUBJECT) and not (
            word in LOCATING and k and words[k - 1] in POINTING
        ):
            raise Unreadable(f"unclear: {word!r}")
    for article, possible, noun in zip(words, words[1:], words[2:], strict=False):
        if article in ("a", "one") and possible == "possible" and not noun.endswith("s"):
            raise Unreadable("unclear: one of several")
    formulas = [i for i, item in enumerate(rest) if item.kind == "formula"]
    if not formulas:
        return [s for item in rest if item.kind == "remark" for s in _statements(item.inner, True)]
    approximate = False
    for item in rest[: formulas[0]]:
        if item.kind == "word":
            approximate |= item.text in APPROXIMATE
            allowed = item.text in LEADING or item.text in APPROXIMATE or item.text in RESTATING
            if remark and (item.text in REFERRING or item.text in SUBORDINATE):
                return []
            if not allowed and not (remark and item.text in JOINING):
                if rest[formulas[0]].tokens[0].text == "=" and item.text not in CHANGING:
                    continue  # Area = 5
                raise Unreadable(f"unclear: {item.text!r} before the value")
    first = rest[formulas[0]].tokens
    found = [Statement([_bare(first)], approximate=approximate or first[0].text == "~")]
    extra: list[Statement] = []
    between: list[Item] = []
    for item in rest[formulas[0] + 1 :]:
        if item.kind == "remark":
            extra += _statements(item.inner, True)
        elif item.kind != "formula":
            between.append(item)
            if item.kind == "word" and item.text in SUBORDINATE and _subordinate(item, rest):
                return found + extra
        else:
            _join(found, between, item.tokens)
            between = []
    if any(item.text == "or" for item in between):
        raise Unreadable("unclear: 'or' behind the value")
    if subject and all(item.kind == "formula" for item in subject[:-1]) and len(subject) == 2:
        # `x is 5` and `6 is 5`: read as equations
        found[0].formulas[0] = (*subject[0].tokens, Token("rel", "="), *found[0].formulas[0])
    return found + extra


def _predicate(items: list[Item]) -> int:
    """Where the statement begins: behind the last copula that a formula follows; 0 without one."""
    formulas = [i for i, item in enumerate(items) if item.kind == "formula"]
    copulas = [i for i, item in enumerate(items) if item.kind == "copula"]
    leading = [i for i in copulas if formulas and i < formulas[-1]]
    for k, i in enumerate(leading):
        between = items[leading[k - 1] : i] if k else []
        for item in between:
            if (item.kind == "formula" and len(item.tokens) > 1) or (
                item.kind == "formula" and item.tokens[0].kind != "symbol"
            ):
                if any(
                    w in (RESTATING - COPULAS) or w == "which" for w in _words(items[leading[k - 1] : i + 1])
                ):
                    return leading[k - 1] + 1  # `is 5, which is ...`: a restatement, not another statement
                if any(other.kind == "sep" or other.text in JOINING for other in between):
                    raise Unreadable("unclear: several statements")
    return leading[-1] + 1 if leading else 0


def _subordinate(item: Item, rest: list[Item]) -> bool:
    """`for all x`, `where C is a constant`: what follows only explains. `5 for n = 1` does not."""
    after = rest[[id(r) for r in rest].index(id(item)) + 1 :]
    if item.text == "for":
        return bool(after) and after[0].text in (
            "all",
            "every",
            "any",
            "each",
            "some",
            "real",
            "integer",
            "positive",
        )
    return True


def _bare(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """Without the sign of a relation whose left side is in words, and without an arrow."""
    return (
        tokens[1:]
        if len(tokens) > 1 and tokens[0].text in ("=", "to") and tokens[0].kind in ("rel", "command")
        else tokens
    )


def _without_references(items: list[Item]) -> list[Item]:
    """`from step 3` is words alone."""
    found: list[Item] = []
    for item in items:
        named = bool(found) and found[-1].kind == "word" and found[-1].text in NUMBERED
        if not (named and item.kind == "formula" and len(item.tokens) == 1):
            found.append(item)
    return found


def _names_only(formula: tuple[Token, ...]) -> bool:
    """`n`, `(a, b)`: what a noun before it is called."""
    return len(formula) < 8 and all(t.kind == "symbol" or t.text in ("(", ")", ",") for t in formula)


def _join(found: list[Statement], between: list[Item], formula: tuple[Token, ...]) -> None:
    words = {item.text for item in between if item.kind in ("word", "copula")}
    if any(item.kind == "copula" and not item.text for item in between):
        words.add("is")
    last = found[-1]
    if not words:
        if not between:
            raise Unreadable("two formulas side by side")
        last.formulas.append(formula)
    elif words <= JOINING:
        last.formulas.append(formula)
        last.alternatives |= "or" in words or "either" in words
    elif words <= APPROXIMATE | {"or", "is", "that", "which"} and words & APPROXIMATE:
        found.append(Statement([_bare(formula)], approximate=True))
    elif words <= SUCH_THAT and len(last.formulas[-1]) == 1 and any(t.kind == "rel" for t in formula):
        last.formulas[-1] = formula  # all x with x < 8
    elif words & RESTATING and words <= RESTATING | COPULAS | LEADING | APPROXIMATE | {"or"}:
        concluded = bool(words & CONCLUDING)
        found.append(Statement([_bare(formula)], approximate=bool(words & APPROXIMATE), concluded=concluded))
    elif _names_only(formula) and not words & (JOINING | COPULAS | RESTATING):
        return  # 8 possible values of n
    else:
        raise Unreadable(f"unclear: {' '.join(item.text for item in between).strip()!r} between formulas")
