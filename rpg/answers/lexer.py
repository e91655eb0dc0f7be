r"""An answer's text as tokens: numbers, symbols, operators, relations, brackets, words, and where
formulas begin and end.

LaTeX and plain notation are one language here (`\frac{1}{2}`, `1/2`, `½`; `\times 10^{-3}`, `×
10⁻³`). What only typesets (sizes, spaces, colours, bold, boxes around a formula) leaves no token,
or only brackets.
"""

import itertools
import re
from fractions import Fraction
from typing import NamedTuple

from rpg.answers import lexicon
from rpg.answers.notation import in_latex
from rpg.answers.typesetting import braced


class Unreadable(ValueError):
    """The text is no answer that the grammar knows; the message says what stopped it, in a few
    words."""


class Token(NamedTuple):
    """`kind`: number, symbol, function, command, op, rel, open, close, sep, word, edge, stop,
    colon, dots."""

    kind: str
    text: str
    upright: bool = False
    r"""Within \text or \mathrm, where letters are units or words."""


EDGE = Token("edge", "$")
_LIMIT = 4_000
"""Tokens of an answer; more are not read."""

_UPRIGHT = set(
    "text mathrm mbox textrm textnormal operatorname operatorname* textsf texttt hbox "
    "mathring boxed fbox".split()
)
_ACCENTS = set("dot ddot hat bar vec tilde overline mathbb widehat overrightarrow".split())
_SYNONYMS = {"varepsilon": "epsilon", "varphi": "phi", "hslash": "hbar"}
_SIGNS = {
    "<=": ("rel", "<="),
    ">=": ("rel", ">="),
    "!=": ("rel", "!="),
    "==": ("rel", "="),
    ":": ("colon", ":"),
    "&": ("word", "and"),
    "?": ("word", "?"),
} | {
    sign: (kind, sign)
    for kind, signs in {
        "op": "+-*/^_!%'|",
        "rel": "=<>~",
        "open": "([{",
        "close": ")]}",
        "sep": ",;",
    }.items()
    for sign in signs
}
_GREEK = set(lexicon.GREEK) - {"mu", "nu", "xi"}
_FUNCTIONS_IN_ANY_CASE = set("sqrt sin cos tan log ln".split())
_BEFORE_UNITS = set("/ * sq square cubic per".split()) | lexicon.NUMBER_WORDS
_PRODUCTS = set("abc abcd xyz abcde wxyz xyzt axy bxy".split())
"""Letters with a vowel among them that are no word."""
_NUMBER = re.compile(
    r"(?P<grouped>\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d{1,3}(?: \d{3})+(?! ?\d)(?:\.\d+)?)"
    r"|(?P<plain>(?:\d+\.\d+|\d+\.(?=\s*/\s*\d)|\d+|\.\d+)(?:[eE][-+]?\d{1,4}(?![\d.]))?)"
)
_UNGROUPED = re.compile(r"(?P<plain>\d+(?:\.\d+)?)")
_LETTERS = re.compile(r"[A-Za-z]+")
_HYPHENATED = re.compile(r"[A-Za-z]{2,}(?:-[A-Za-z]{2,})+")
_CONTRACTED = re.compile(r"[A-Za-z]{2,}'[a-z]{1,2}(?![A-Za-z])")
_COMMAND = re.compile(r"\\([A-Za-z]+\*?|.)", re.DOTALL)
_REPEATING = re.compile(r"\s*\\(?:overline|bar|dot)\s*(?:\{\s*(\d{1,40})\s*\}|(\d))")


def tokens_of(text: str) -> list[Token]:
    """Tokens of an answer as it was written. Raises Unreadable: too long, or no known notation."""
    return _Lexer().lex(in_latex(text))


class _Lexer:
    def __init__(self, math: bool = False, upright: bool = False):
        self.math = math
        self.upright = upright
        self.tokens: list[Token] = []
        self.depth = 0
        self.rows = ""
        """The environment of formulas below each other that is open."""

    def add(self, kind: str, text: str) -> None:
        self.tokens.append(Token(kind, text, self.upright))
        if len(self.tokens) > _LIMIT:
            raise Unreadable("too long")
        if text not in ("{", "}"):
            self.depth += (kind == "open") - (kind == "close")

    def lex(self, text: str) -> list[Token]:
        i = 0
        while i < len(text):
            i = self._next(text, i)
        return self.tokens

    def _next(self, text: str, i: int) -> int:
        c = text[i]
        if c.isspace():
            return i + 1
        if c == "\\":
            return self._command(text, i)
        if c == "$":
            self.math = not self.math
            self.tokens.append(EDGE)
            return i + 1 + text.startswith("$$", i)
        if (c.isdigit() and c.isascii()) or (c == "." and text[i + 1 : i + 2].isdigit()):
            return self._number(text, i)
        if c.isalpha() and c.isascii():
            return self._letters(text, i)
        return self._sign(text, i)

    def _sign(self, text: str, i: int) -> int:
        if text.startswith("...", i):
            self.add("dots", "...")
            return i + 3
        behind_number = bool(self.tokens) and self.tokens[-1].kind == "number"
        if text[i] == ":" and behind_number and text[i + 1 :].lstrip()[:1].isdigit():
            self.add("op", ":")
            return i + 1
        if text[i] == "&" and self.rows:
            if self.rows == "cases" and not _RELATION.match(text, i + 1):
                self.add("sep", "&")  # of a piecewise function
            return i + 1
        for sign in (text[i : i + 2], text[i]):
            if sign in _SIGNS:
                self.add(*_SIGNS[sign])
                return i + len(sign)
        if text[i] == ".":
            self.tokens.append(Token("stop", "."))
        elif text[i] != '"':
            raise Unreadable(f"unknown sign {text[i]!r}")
        return i + 1

    def _number(self, text: str, i: int) -> int:
        match = _NUMBER.match(text, i)
        assert match is not None
        if match["grouped"] and self._separates(text, i):
            match = _UNGROUPED.match(text, i)
            assert match is not None
        end = match.end()
        if end - i > 1_000:
            raise Unreadable("too many digits")
        if match.lastgroup == "grouped":
            self.add("number", match["grouped"])  # its commas or spaces stay, as it might be a list
            return end
        digits = match["plain"]
        point = text[end : end + 1] == "."
        repeating = _REPEATING.match(text, end + point) if point or "." in digits else None
        if repeating:
            self.add("number", f"{digits.rstrip('.')}({repeating[1] or repeating[2]})")
            return repeating.end()
        if text.startswith("...", end) and "." in digits:
            cycle = re.search(r"(\d{1,3}?)\1{2,}$", digits.partition(".")[2])
            self.add("number", f"{digits}({cycle[1]})" if cycle else digits)
            return end + 3
        self.add("number", digits)
        return end

    def _separates(self, text: str, i: int) -> bool:
        """Whether the comma of `1,234` separates two numbers: within brackets, in an index, in a
        list."""
        before = self.tokens[-1] if self.tokens else None
        behind_number = before is not None and (
            before.kind == "number" or before.text in ("_", "^")
        )
        return bool(self.depth) or behind_number or "," in text[max(i - 1, 0) : i]

    def _letters(self, text: str, i: int) -> int:
        if not self.math:
            match = _HYPHENATED.match(text, i) or _CONTRACTED.match(text, i)
            if match and len(match[0].split("-")[0]) > 2:
                whole = match[0].lower()
                split = (
                    whole not in lexicon.NUMBER_WORDS
                    and set(whole.split("-")) <= lexicon.NUMBER_WORDS
                )
                for word in whole.split("-") if split else [whole]:
                    self.add("word", word)
                return match.end()
        match = _LETTERS.match(text, i)
        assert match is not None
        letters = match[0]
        end = match.end()
        spaced = text[end : end + 1] == " " and text[end + 1 : end + 3].isalpha()
        token = self._word(letters, spaced)
        if token is not None:
            self.add(*token)
            return end
        if letters not in _GREEK and not (letters.isupper() and len(letters) > 2):
            for c in letters[:-1]:
                self.add("symbol", c)
            letters = letters[-1]
        return self._symbol(text, end, letters)

    def _word(self, letters: str, spaced: bool) -> tuple[str, str] | None:
        """Kind and text of a word, unit or function; None for symbols. `spaced`: a space and a word
        follow."""
        low = letters.lower()
        if letters in lexicon.UNITS and not self.upright and self._after_number():
            return "word", letters
        if letters in lexicon.FUNCTIONS or low in _FUNCTIONS_IN_ANY_CASE:
            return "function", lexicon.FUNCTIONS.get(letters, low)
        if letters in _GREEK:
            return None
        if len(letters) == 1:
            return ("word", low) if letters in "aAI" and spaced and not self.math else None
        if low in ("mod", "percent", "pct"):
            return "op", "mod" if low == "mod" else "%"
        if low in lexicon.WORDS_IN_FORMULAS or self.upright:
            return "word", letters if letters in lexicon.UNITS else low
        return ("word", low) if self._is_word(letters) else None

    def _after_number(self) -> bool:
        before = [t for t in self.tokens[-3:] if t.kind != "edge"]
        return bool(before) and (
            before[-1].kind in ("number", "close") or before[-1].text in _BEFORE_UNITS
        )

    def _is_word(self, run: str) -> bool:
        low = run.lower()
        if run.isupper() and len(run) < 6 and low not in ("or", "not", "and"):
            return False
        if len(run) == 2:
            return not self.math and (low in lexicon.ENGLISH_PAIRS) and not run[1].isupper()
        if any(c.isupper() for c in run[1:]) and not run.isupper():
            return False
        if len(run) == 3 and self.math:
            return False
        return bool(re.search("[aeiouy]", low)) and low not in _PRODUCTS

    def _symbol(self, text: str, end: int, name: str) -> int:
        """A symbol with its index and primes; returns where it ends."""
        while match := _INDEX.match(text, end):
            inner = match[1] if match[1] is not None else match[2]
            name += "_" + _IN_INDEX.sub("", inner)
            end = match.end()
        while match := _PRIME.match(text, end):
            name += "'" * (match[0].count("prime") or match[0].count("'"))
            end = match.end()
        self.add("symbol", name)
        return end

    def _command(self, text: str, i: int) -> int:
        match = _COMMAND.match(text, i)
        if match is None:
            return i + 1
        name = match[1]
        end = match.end()
        if name in lexicon.COMMANDS:
            self._token(lexicon.COMMANDS[name], text, end)
        elif name in ("(", "[", ")", "]"):
            self.math = name in "(["
            self.tokens.append(EDGE)
        elif name in ("begin", "end"):
            return self._environment(text, i)
        elif name in _ACCENTS:
            return self._accent(text, end, name)
        elif name in _UPRIGHT:
            return (
                self._upright(text, end) if name not in ("boxed", "fbox") else self._box(text, end)
            )
        elif len(name) > 1:
            return self._symbol(text, end, _SYNONYMS.get(name, name))
        elif name not in "$_&# -/":
            raise Unreadable(f"unknown command \\{name}")
        return end

    def _token(self, token: tuple[str, ...], text: str, end: int) -> None:
        """The token of a command that ends there; a row that goes on with a relation, or the last
        one, has no end."""
        if token[1] == "\\" and self.rows:
            token = ("sep", ",")
            if _RELATION.match(text, end) or text[end:].lstrip().startswith("\\end"):
                return
        self.add(*token)

    def _box(self, text: str, end: int) -> int:
        start, close = braced(text, end)
        if start is None:
            return end
        inner = _Lexer(self.math or "$" not in text[start:close], self.upright)
        if [t for t in self.tokens if t.kind != "edge"][-1:] == [
            Token("close", "box", self.upright)
        ]:
            self.add("word", "or")
        self.add("open", "box")
        self.tokens.extend(inner.lex(text[start:close]))
        self.add("close", "box")
        return close + 1

    def _upright(self, text: str, end: int) -> int:
        start, close = braced(text, end)
        if start is None:
            return end
        inner = _Lexer(math=False, upright=True)
        inner.depth = self.depth
        inner.tokens = self.tokens[-1:]
        before = len(inner.tokens)
        self.tokens.extend(inner.lex(text[start:close])[before:])
        if len(self.tokens) > _LIMIT:
            raise Unreadable("too long")
        return close + 1

    def _accent(self, text: str, end: int, name: str) -> int:
        start, close = braced(text, end)
        if start is None:
            match = _ACCENTED.match(text, end)
            if not match:
                raise Unreadable(f"\\{name} of nothing")
            return self._symbol(text, match.end(), f"{name} {match[1].lstrip(chr(92))}")
        inner = re.sub(r"\s+", "", text[start:close]).lstrip("\\")
        if len(inner) > 20:
            raise Unreadable(f"a long \\{name}")
        return self._symbol(text, close + 1, f"{name} {inner}")

    def _environment(self, text: str, i: int) -> int:
        match = _ENVIRONMENT.match(text, i)
        if not match:
            raise Unreadable("an environment without a name")
        kind = "open" if match[1] == "begin" else "close"
        name = match[2].rstrip("*")
        if name in _MATRICES:
            self.add(kind, "matrix")
        elif name in _ROWS:
            self.math = kind == "open"
            self.rows = name if kind == "open" else ""
            self.tokens.append(EDGE)
        else:
            raise Unreadable(f"a {match[2]} environment")
        return match.end()


_MATRICES = set("matrix pmatrix bmatrix smallmatrix array".split())
_ROWS = set(
    "equation displaymath math center align aligned alignat gather gathered split eqnarray "
    "cases rcases multline".split()
)
_RELATION = re.compile(
    r"\s*&?\s*(?:[=<>]|\\(?:[lg]eq?|approx|equiv|neq?|implies|iff|sim|Rightarrow)(?![a-z]))"
)
_ACCENTED = re.compile(r"\s*(\\[A-Za-z]+|[A-Za-z])")
_ENVIRONMENT = re.compile(r"\\(begin|end)\s*\{(\w+\*?)\}(?:\s*\{[lcr|]{1,20}\})?")
_INDEX = re.compile(r"\s*_\s*(?:\{([^{}]{0,40}(?:\{[^{}]{0,30}\}[^{}]{0,20})?)\}|(\\[A-Za-z]+|\w))")
_IN_INDEX = re.compile(r"[\s{}]|\\(?:text|mathrm|rm|mbox|textrm|operatorname|left|right)(?![a-z])")
_PRIME = re.compile(r"\s*(?:\^\s*\{?\s*(?:\\prime\s*){1,3}\}?|'{1,3})")


def value_of(text: str) -> Fraction:
    """Of a number token: `12`, `1,234`, `0.50`, `2.5e-3`, `0.1(6)` (a repeating decimal)."""
    text = text.replace(",", "").replace(" ", "")
    if text.endswith(")"):
        digits, _, loop = text[:-1].partition("(")
        whole, _, fixed = digits.partition(".")
        scale = 10 ** len(fixed)
        nines = 10 ** len(loop) - 1
        return Fraction(int(whole + fixed or "0"), scale) + Fraction(int(loop), nines * scale)
    _, _, exponent = text.partition("e")
    if len(exponent) > 4:
        raise Unreadable("a huge exponent")
    return Fraction("0" + text if text.startswith(".") else text.rstrip("."))


def closing(tokens: list[Token], start: int) -> int:
    """Where the bracket ends that opens at `start`. Raises Unreadable: nowhere."""
    depth = 0
    for i in range(start, len(tokens)):
        depth += (tokens[i].kind == "open") - (tokens[i].kind == "close")
        if depth == 0:
            return i
    raise Unreadable("a bracket that does not close")


def with_number_words(tokens: list[Token]) -> list[Token]:
    """Runs of number words (`forty-two`, `one hundred and five`, `two and a half`) as numbers."""
    replaced: list[Token] = []
    i = 0
    while i < len(tokens):
        words = itertools.takewhile(lambda token: token.kind == "word", tokens[i : i + 20])
        length, value = lexicon.number_in_words([token.text for token in words])
        if not length:
            replaced.append(tokens[i])
            i += 1
            continue
        number = f"{{{value}}}" if value % 1 else str(value)
        replaced += _Lexer(upright=True).lex(number)
        i += length
    return replaced
