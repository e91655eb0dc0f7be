"""Quantities in words as formulas: `two and a half million`, `minus three`, `2 out of 3`, `x squared plus one`."""

from itertools import takewhile

from rpg.answers import lexicon
from rpg.answers.lexer import EDGE, Token, typeset

_BEGINNING = {"number", "symbol", "open", "command", "function"}
_BETWEEN = {"plus": "+", "minus": "-", "times": "*", "over": "/"}
_BEHIND = {"squared": "^2", "cubed": "^3", "factorial": "!"}
_BEHIND |= {word: f"*{scale}" for word, scale in lexicon.SCALES.items()}


def with_quantities(tokens: list[Token]) -> list[Token]:
    """An answer's tokens, with those of numbers and of signs of arithmetic in place of the words for them."""
    tokens = [part for token in tokens for part in _unhyphenated(token)]
    said: list[Token] = []
    i = 0
    while i < len(tokens):
        length, meant = _quantity(tokens, i)
        if not length:
            length, meant = _sign([t for t in said[-3:] if t != EDGE][-1:], tokens, i)
        said += typeset(meant) if length else [tokens[i]]
        i += length or 1
    return said


def _unhyphenated(token: Token) -> list[Token]:
    """`two-thirds` is two words, `non-zero` one."""
    parts = token.text.split("-") if token.kind == "word" else [""]
    return [token._replace(text=part) for part in parts] if {*parts} <= lexicon.NUMBER_WORDS else [token]


def _quantity(tokens: list[Token], i: int) -> tuple[int, str]:
    """How many tokens from `i` are a number, and that number; 0 where they are none, or digits alone."""
    digits = tokens[i].kind == "number"
    words = [t.text for t in takewhile(lambda t: t.kind == "word", tokens[i + digits : i + 20])]
    if words[:1] == ["half"] and not digits and "sep" not in [t.kind for t in tokens[max(i - 1, 0) : i]]:
        return (2 if words[1:2] in (["a"], ["an"]) else 1), "{1/2}"
    used, value = (0, tokens[i].text) if digits else _whole(words)
    decimals = "" if digits else lexicon.decimals_in_words(words[used:])
    if decimals:
        return used + 1 + len(decimals), f"{value}.{decimals}"
    if not digits and not used:
        return 0, ""
    length, parts = lexicon.parts_in_words(words[used:], one=value == "1")
    if length:
        return digits + used + length, f"{{{value}/{parts}}}"
    more, above = _whole(words[used + 1 :])
    length, parts = lexicon.parts_in_words(words[used + 1 + more :], one=above == "1")
    if words[used : used + 1] == ["and"] and more and length:
        return digits + used + 1 + more + length, f"{{{value}+{above}/{parts}}}"
    return used, value


def _whole(words: list[str]) -> tuple[int, str]:
    """As number_in_words; `a` and `one` are 1 before a scale or a part: `a hundred and five`, `one third`."""
    counts = words[1:2] and (words[1] in lexicon.SCALES or lexicon.parts_in_words(words[1:], one=True)[0])
    counts = counts or words[1:3] in (["out", "of"], ["and", "a"], ["and", "one"])
    one = counts and words[0] in ("a", "an", "one")
    used, value = lexicon.number_in_words(["one", *words[1:]] if one else words)
    return (1, "1") if one and not used else (used, str(value))


def _sign(before: list[Token], tokens: list[Token], i: int) -> tuple[int, str]:
    """The sign that a word is for behind, between or before values (`before`: the token before it); 0 for another word."""
    word = tokens[i].text if tokens[i].kind == "word" else ""
    ended = bool(before) and (before[0].kind in ("number", "symbol", "close") or before[0].text in ("!", "%"))
    if ended and word in _BEHIND:
        return 1, _BEHIND[word]
    if word in (_BETWEEN if ended else ("negative", "minus")) and _begins(tokens, i + 1):
        return 1, _BETWEEN.get(word, "-")
    length = 2 if [t.text for t in tokens[i : i + 2]] == ["out", "of"] else 1
    if ended and (word in ("in", "to") or length == 2) and before[0].text.isdigit() and tokens[i + length :]:
        whole = _quantity(tokens, i + length)[1] or tokens[i + length].text
        if whole.isdigit() and (word == "to" or int(before[0].text) <= int(whole)):
            return length, r"\ratio" if word == "to" else "/"
    return 0, ""


def _begins(tokens: list[Token], i: int) -> bool:
    """Whether a value begins there."""
    i += tokens[i : i + 1] == [EDGE]
    return i < len(tokens) and (tokens[i].kind in _BEGINNING or bool(_quantity(tokens, i)[0]))
