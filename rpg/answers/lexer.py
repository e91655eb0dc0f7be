r"""An answer's text as tokens: numbers, symbols, operators, relations, brackets, words, and where formulas begin and end.

LaTeX and plain notation are one language here (`\frac{1}{2}`, `1/2`, `½`; `\times 10^{-3}`, `× 10⁻³`). What only
typesets (sizes, spaces, colours, bold, boxes around a formula) leaves no token, or only brackets.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

from rpg.answers.lexicon import ENGLISH_PAIRS, FUNCTIONS, GREEK, UNITS, WORDS_IN_FORMULAS, number_in_words
from rpg.answers.notation import plain


class Unreadable(ValueError):
    """The text is no answer that the grammar knows; the message says what stopped it, in a few words."""


class Token(NamedTuple):
    """`kind`: number, symbol, function, command, op, rel, open, close, sep, word, edge, stop, colon, dots."""

    kind: str
    text: str
    upright: bool = False
    r"""Within \text or \mathrm, where letters are units or words."""


EDGE = Token("edge", "$")
_LIMIT = 4_000
"""Tokens of an answer; more are not read."""

_TEXT = (
    "text",
    "mathrm",
    "mbox",
    "textrm",
    "textnormal",
    "operatorname",
    "textsf",
    "texttt",
    "hbox",
    "mathring",
    "operatorname*",
)
_RELATIONS = {
    "=": "=", "<": "<", ">": ">", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=",
    "geqslant": ">=", "ne": "!=", "neq": "!=", "lt": "<", "gt": ">", "approx": "~", "simeq": "~", "sim": "~",
    "cong": "~", "doteq": "~", "in": "in", "equiv": "=", "notin": "!=", "coloneqq": "=", "leqq": "<=", "geqq": ">=",
}  # fmt: skip
_OPERATORS = {
    "times": "*",
    "cdot": "*",
    "ast": "*",
    "div": "/",
    "pm": "pm",
    "cup": "cup",
    "bmod": "mod",
    "mod": "mod",
}
_OPENING = {
    "lfloor": "floor",
    "lceil": "ceil",
    "lbrace": "set",
    "lbrack": "[",
    "langle": "(",
    "lvert": "|(",
    "lparen": "(",
}
_CLOSING = {
    "rfloor": "floor",
    "rceil": "ceil",
    "rbrace": "set",
    "rbrack": "]",
    "rangle": ")",
    "rvert": ")|",
    "rparen": ")",
}
_NUMBER = re.compile(
    r"(?P<grouped>\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d{1,3}(?: \d{3})+(?! ?\d)(?:\.\d+)?)"
    r"|(?P<plain>(?:\d+\.\d+|\d+\.(?=\s*/\s*\d)|\d+|\.\d+)(?:[eE][-+]?\d{1,4}(?![\d.]))?)"
)
_RUN = re.compile(r"[A-Za-z]+")
_HYPHENATED = re.compile(r"[A-Za-z]{2,}(?:-[A-Za-z]{2,})+")
_CONTRACTED = re.compile(r"[A-Za-z]{2,}'[a-z]{1,2}(?![A-Za-z])")
_COMMAND = re.compile(r"\\([A-Za-z]+\*?|.)", re.DOTALL)
_REPEATING = re.compile(r"\s*\\(?:overline|bar|dot)\s*(?:\{\s*(\d{1,40})\s*\}|(\d))")


def tokens_of(text: str) -> list[Token]:
    """Tokens of an answer as it was written.

    Raises:
        Unreadable: too long, or no known notation.
    """
    return _Lexer().lex(plain(text))


class _Lexer:
    def __init__(self, math: bool = False, upright: bool = False):
        self.math, self.upright = math, upright
        self.found: list[Token] = []
        self.depth = 0

    def add(self, kind: str, text: str) -> None:
        self.found.append(Token(kind, text, self.upright))
        if len(self.found) > _LIMIT:
            raise Unreadable("too long")
        self.depth += (kind == "open") - (kind == "close")

    def lex(self, text: str) -> list[Token]:
        i = 0
        while i < len(text):
            i = self._one(text, i)
        return self.found

    def _one(self, text: str, i: int) -> int:
        c = text[i]
        if c.isspace():
            return i + 1
        if c == "\\":
            return self._command(text, i)
        if c == "$":
            double = text.startswith("$$", i)
            self.math = not self.math
            self.found.append(EDGE)
            return i + 1 + double
        if (c.isdigit() and c.isascii()) or (c == "." and text[i + 1 : i + 2].isdigit()):
            return self._number(text, i)
        if c.isalpha() and c.isascii():
            return self._letters(text, i)
        if text.startswith("...", i):
            self.add("dots", "...")
            return i + 3
        for long, sign in (("<=", "<="), (">=", ">="), ("!=", "!="), ("==", "=")):
            if text.startswith(long, i):
                self.add("rel", sign)
                return i + 2
        if c in "+-*/^_!%'":
            self.add("op", c)
        elif c in "=<>":
            self.add("rel", c)
        elif c in "([{":
            self.add("open", c)
        elif c in ")]}":
            self.add("close", c)
        elif c in ",;":
            self.add("sep", c)
        elif c == "~":
            self.add("rel", "~")
        elif c == ".":
            self.found.append(Token("stop", "."))
        elif c == ":":
            self.add("colon", ":")
        elif c == "|":
            self.add("op", "|")
        elif c == "&":
            self.add("word", "and")
        elif c == "?":
            self.add("word", "?")
        elif c not in '"' and unicodedata.category(c) != "So":  # tick marks and the like say nothing
            raise Unreadable(f"unknown sign {c!r}")
        return i + 1

    # ------------------------------------------------------------------------------------------ numbers, letters

    def _number(self, text: str, i: int) -> int:
        match = _NUMBER.match(text, i)
        written = match["grouped"]
        before = self.found[-1] if self.found else None
        if written and (
            self.depth
            or (before and (before.kind == "number" or before.text in ("_", "^")))
            or "," in text[max(i - 1, 0) : i]
        ):
            match = re.compile(r"(?P<plain>\d+(?:\.\d+)?)").match(
                text, i
            )  # within brackets a comma separates
            written = None
        if match.end() - i > 1_000:
            raise Unreadable("too many digits")
        if written:
            self.add("number", written)  # its commas or spaces stay, as it might be a list
            return match.end()
        digits, end = match["plain"], match.end()
        loop = _REPEATING.match(text, end) if "." in digits or text[end : end + 1] == "." else None
        if loop is None and text[end : end + 1] == ".":
            loop = _REPEATING.match(text, end + 1)
        if loop:
            self.add("number", f"{digits.rstrip('.')}({loop[1] or loop[2]})")
            return loop.end()
        if text.startswith("...", end) and "." in digits:
            loop = re.search(r"(\d{1,3}?)\1{2,}$", digits.partition(".")[2])
            self.add("number", f"{digits}({loop[1]})" if loop else digits)
            return end + 3
        self.add("number", digits)
        return end

    def _letters(self, text: str, i: int) -> int:
        if not self.math:
            match = _HYPHENATED.match(text, i) or _CONTRACTED.match(text, i)
            if match and len(match[0].split("-")[0]) > 2:
                self.add("word", match[0].lower())
                return match.end()
        run = _RUN.match(text, i)[0]
        end, low = i + len(run), run.lower()
        follows = text[end : end + 1]
        if run in UNITS and len(run) > 1 and not self.upright and self._after_number():
            self.add("word", run)
        elif run in FUNCTIONS or (low in ("sqrt", "sin", "cos", "tan", "log", "ln") and len(run) > 1):
            self.add("function", FUNCTIONS.get(run, low))
        elif run in GREEK and (len(run) > 2 or run == "pi"):
            return self._symbol(text, end, run)
        elif len(run) == 1:
            spaced = follows == " " and text[end + 1 : end + 3].isalpha() and not self.math
            if spaced and run in "aAI":
                self.add("word", low)
            else:
                return self._symbol(text, end, run)
        elif low == "mod":
            self.add("op", "mod")
        elif low == "percent":
            self.add("op", "%")
        elif low in WORDS_IN_FORMULAS or self.upright:
            self.add("word", run if run in UNITS else low)
        elif self._is_word(run):
            self.add("word", low)
        elif run.isupper() and len(run) > 2:
            return self._symbol(text, end, run)
        else:
            for c in run[:-1]:
                self.add("symbol", c)
            return self._symbol(text, end, run[-1])
        return end

    def _after_number(self) -> bool:
        before = [t for t in self.found[-3:] if t.kind != "edge"]
        return bool(before) and (before[-1].kind in ("number", "close") or before[-1].text in ("/", "*"))

    def _is_word(self, run: str) -> bool:
        low = run.lower()
        if run.isupper() and len(run) < 6 and low not in ("or", "not", "and"):
            return False
        if len(run) == 2:
            return not self.math and (low in ENGLISH_PAIRS) and not run[1].isupper()
        if any(c.isupper() for c in run[1:]) and not run.isupper():
            return False
        if len(run) == 3 and self.math:
            return False
        return bool(re.search("[aeiouy]", low)) and low not in (
            "abc",
            "abcd",
            "xyz",
            "abcde",
            "wxyz",
            "xyzt",
            "axy",
            "bxy",
        )

    def _symbol(self, text: str, end: int, name: str) -> int:
        """A symbol with its index and primes; returns where it ends."""
        while match := _INDEX.match(text, end):
            inner = match[1] if match[1] is not None else match[2]
            name += "_" + re.sub(
                r"[\s{}]|\\(?:text|mathrm|rm|mbox|textrm|operatorname|left|right)(?![a-z])", "", inner
            )
            end = match.end()
        while match := _PRIME.match(text, end):
            name += "'" * (match[0].count("prime") or match[0].count("'"))
            end = match.end()
        self.add("symbol", name)
        return end

    # ---------------------------------------------------------------------------------------------------- commands

    def _command(self, text: str, i: int) -> int:
        match = _COMMAND.match(text, i)
        if match is None:
            return i + 1
        name, end = match[1], match.end()
        if name in ("(", "[", ")", "]"):
            self.math = name in "(["
            self.found.append(EDGE)
        elif name in ("{", "}"):
            self.add("open" if name == "{" else "close", "set")
        elif name == "%":
            self.add("op", "%")
        elif name == "\\":
            self.add("sep", "\\")
        elif name in ("$", "_", "&", "#", " ", "-", "/"):
            pass
        elif name == "|":
            self.add("op", "|")
        elif name in ("boxed", "fbox"):
            return self._group(text, end, "box")
        elif name in _TEXT:
            return self._text(text, end)
        elif name in ("begin", "end"):
            return self._environment(text, i)
        elif name == "not":
            self.add("word", "not")
        elif name in _RELATIONS:
            self.add("rel", _RELATIONS[name])
        elif name in _OPERATORS:
            self.add("op", _OPERATORS[name])
        elif name in ("pmod", "pod"):
            self.add("op", "mod")
        elif name in ("lor", "vee"):
            self.add("word", "or")
        elif name in ("land", "wedge"):
            self.add("word", "and")
        elif name in ("implies", "Rightarrow", "Longrightarrow", "therefore", "iff", "Leftrightarrow"):
            self.add("word", "therefore")
        elif name in ("ldots", "dots", "cdots", "dotsc", "dotsb"):
            self.add("dots", "...")
        elif name in _OPENING:
            self.add("open", _OPENING[name])
        elif name in _CLOSING:
            self.add("close", _CLOSING[name])
        elif name in ("degree", "circ"):
            self.add("command", "circ")
        elif name in FUNCTIONS:
            self.add("function", FUNCTIONS[name])
        elif name in ("frac", "binom", "over", "choose", "mathcal", "exists", "forall", "mid", "colon"):
            self.add("command", name)
        elif name in (
            "dot",
            "ddot",
            "hat",
            "bar",
            "vec",
            "tilde",
            "overline",
            "mathbb",
            "widehat",
            "overrightarrow",
        ):
            return self._accent(text, end, name)
        elif name in (
            "int",
            "sum",
            "prod",
            "lim",
            "partial",
            "cap",
            "setminus",
            "mp",
            "to",
            "iint",
            "oint",
            "star",
            "circledast",
        ):
            self.add("command", name)  # read by no rule of the grammar: compared as text, or by math-verify
        elif len(name) > 1:
            return self._symbol(
                text, end, {"varepsilon": "epsilon", "varphi": "phi", "hslash": "hbar"}.get(name, name)
            )
        else:
            raise Unreadable(f"unknown command \\{name}")
        return end

    def _group(self, text: str, end: int, kind: str) -> int:
        start, close = _braced(text, end)
        if start is None:
            return end
        inner = _Lexer(self.math or "$" not in text[start:close], self.upright)
        self.add("open", kind)
        inner.depth = 0
        for token in inner.lex(text[start:close]):
            self.found.append(token)
        self.add("close", kind)
        return close + 1

    def _text(self, text: str, end: int) -> int:
        start, close = _braced(text, end)
        if start is None:
            return end
        inner = _Lexer(False, True)
        inner.depth = self.depth
        inner.found = [self.found[-1]] if self.found else []
        skip = len(inner.found)
        found = inner.lex(text[start:close])[skip:]
        self.found.extend(found)
        if len(self.found) > _LIMIT:
            raise Unreadable("too long")
        return close + 1

    def _accent(self, text: str, end: int, name: str) -> int:
        start, close = _braced(text, end)
        if start is None:
            match = re.compile(r"\s*(\\[A-Za-z]+|[A-Za-z])").match(text, end)
            if not match:
                raise Unreadable(f"\\{name} of nothing")
            return self._symbol(text, match.end(), f"{name} {match[1].lstrip(chr(92))}")
        inner = re.sub(r"\s+", "", text[start:close]).lstrip("\\")
        if len(inner) > 20:
            raise Unreadable(f"a long \\{name}")
        return self._symbol(text, close + 1, f"{name} {inner}")

    def _environment(self, text: str, i: int) -> int:
        match = re.compile(r"\\(begin|end)\s*\{(\w+\*?)\}(?:\s*\{[lcr|]{1,20}\})?").match(text, i)
        if not match:
            raise Unreadable("an environment without a name")
        kind = "open" if match[1] == "begin" else "close"
        if "matrix" in match[2] or match[2] == "array":
            self.add(kind, "matrix")
        elif match[2].rstrip("*") in ("equation", "displaymath", "math", "center"):
            self.math = kind == "open"
            self.found.append(EDGE)
        else:
            raise Unreadable(f"a {match[2]} environment")
        return match.end()


_INDEX = re.compile(r"\s*_\s*(?:\{([^{}]{0,40}(?:\{[^{}]{0,30}\}[^{}]{0,20})?)\}|(\\[A-Za-z]+|\w))")
_PRIME = re.compile(r"\s*(?:\^\s*\{?\s*(?:\\prime\s*){1,3}\}?|'{1,3})")


def _braced(text: str, i: int) -> tuple[int | None, int]:
    """Where the content of the brace that opens at or after i begins and ends; (None, i) without one."""
    while i < len(text) and text[i].isspace():
        i += 1
    if i >= len(text) or text[i] != "{":
        return None, i
    depth, start = 0, i + 1
    while i < len(text):
        if text[i] == "\\":
            i += 2
            continue
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return start, i
        i += 1
    return start, len(text)


def value_of(text: str) -> Fraction:
    """Of a number token: `12`, `1,234`, `0.50`, `2.5e-3`, `0.1(6)` (a repeating decimal)."""
    text = text.replace(",", "").replace(" ", "")
    if text.endswith(")"):
        digits, _, loop = text[:-1].partition("(")
        whole, _, fixed = digits.partition(".")
        exact = Fraction(int(whole + fixed or "0"), 10 ** len(fixed))
        return exact + Fraction(int(loop), (10 ** len(loop) - 1) * 10 ** len(fixed))
    if len(text.partition("e")[2]) > 4:
        raise Unreadable("a huge exponent")
    return Fraction(text.rstrip(".") if not text.startswith(".") else "0" + text)


def with_number_words(tokens: list[Token]) -> list[Token]:
    """Runs of number words (`forty-two`, `one hundred and five`) as numbers."""
    found: list[Token] = []
    i = 0
    while i < len(tokens):
        end = i
        while end < len(tokens) and tokens[end].kind == "word":
            end += 1
        length, value = number_in_words([t.text for t in tokens[i:end]])
        if length:
            found.append(Token("number", str(value), True))
            i += length
        else:
            found.append(tokens[i])
            i += 1
    return found
