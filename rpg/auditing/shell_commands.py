"""The commands of a shell script, read as text: nothing is executed.

Variables and arrays that the script sets itself are put in where their value is known: from the
last assignment that is certain to be reached, whole-number arithmetic included. What depends on a
branch, on the environment (but for HOME) or on another command is not known, and stays as it is
written.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LITERAL = "\x00"
"""Stands for a dollar sign or back tick that the shell takes as it is."""
_VARIABLE = re.compile(r"\$\{(\w+)(?::?[-=]((?:[^${}]|\$\{?\w+\}?)*))?\}|\$(\w+)")
_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_ARITHMETIC = re.compile(r"\$\(\((.*?)\)\)", re.DOTALL)
_OPENING = ("if", "for", "while", "until", "case", "select")
_CLOSING = ("fi", "done", "esac")
_LEADING = ("then", "else", "elif", "do", "{", "}", "!", "time", "export", "local", "declare")
_NESTED = 8
"""How often a variable may stand for other variables."""


@dataclass(frozen=True)
class Array:
    """`NAME=(words)` or `NAME+=(words)`."""

    name: str
    more: bool
    words: list[str]


@dataclass(frozen=True)
class Command:
    """A command with its words; `certain` if no branch decides whether it runs."""

    words: list[str]
    certain: bool


@dataclass(frozen=True)
class Document:
    """The text of a here document, `<<EOF ... EOF`."""

    text: str


Statement = list[str | Array | Document]


def commands(text: str) -> list[Command]:
    """All commands of a script, in order, with what is known of their words put in."""
    return list(_Reader().read(text))


def is_known(word: str) -> bool:
    """Whether nothing in a word is left to the shell."""
    return "$" not in word and "`" not in word


def plain(word: str) -> str:
    """A word as the program gets it."""
    return word.replace(LITERAL + "d", "$").replace(LITERAL + "t", "`")


@dataclass
class _Reader:
    variables: dict[str, str | None] = field(default_factory=lambda: {"HOME": _home()})
    """None: without one value that can be known."""
    candidates: dict[str, list[str]] = field(default_factory=dict)
    """The values of such a variable in the branches of the script."""
    arrays: dict[str, list[str]] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)
    """Of the branches around the present place."""

    def read(self, text: str) -> Iterator[Command]:
        for statement in statements(text):
            words = self._control(statement)
            words = self._assigned(words)
            self._read_document(words)
            if not words:
                continue
            expanded = [
                part for word in words if isinstance(word, str) for part in self._word(word)
            ]
            for position, word in enumerate(expanded):
                # A script within the script.
                if word == "-c" and position and expanded[position - 1].endswith("sh"):
                    yield from self.read(plain(" ".join(expanded[position + 1 :])))
                    break
            else:
                if expanded:
                    yield Command(expanded, not self.conditions)

    def _control(self, statement: Statement) -> Statement:
        """The statement without keywords; notes where branches begin and end."""
        words = list(statement)
        while words and isinstance(words[0], str):
            first = words[0]
            if first in _OPENING:
                shown = " ".join(word for word in words if isinstance(word, str))
                self.conditions.append(shown)
                if first in ("for", "select") and len(words) > 1:
                    self.variables[str(words[1])] = None
                return [] if first in ("for", "select", "case") else words[1:]
            if first in _CLOSING:
                if self.conditions:
                    self.conditions.pop()
                words = words[1:]
            elif first in _LEADING:
                words = words[1:]
            elif first in ("[", "[[", "test", "elif"):
                return []
            else:
                break
        return words

    def _assigned(self, statement: Statement) -> Statement:
        """What follows the assignments at the beginning of a statement."""
        words = list(statement)
        while words:
            first = words[0]
            if isinstance(first, Array):
                self._array(first)
            elif isinstance(first, str) and (match := _ASSIGNMENT.fullmatch(first)):
                self._variable(match[1], bool(match[2]), match[3])
            else:
                break
            words = words[1:]
        return words

    def _read_document(self, words: Statement) -> None:
        """`read NAME <<EOF` assigns the text of the document."""
        names = [word for word in words if isinstance(word, str)]
        documents = [word for word in words if isinstance(word, Document)]
        if names[:1] == ["read"] and len(names) > 1 and documents:
            self._variable(names[-1], False, documents[0].text.replace("\\\n", " "))

    def _array(self, array: Array) -> None:
        words = [part for word in array.words for part in self._word(word)]
        if self.conditions:
            # Which of them reach the command depends on a branch.
            words = [_uncertain(word) for word in words]
        before = self.arrays.get(array.name, [])
        if not array.more and self.conditions:
            before = [_uncertain(word) for word in before]
        self.arrays[array.name] = before + words if array.more or self.conditions else words

    def _variable(self, name: str, more: bool, text: str) -> None:
        text = self.substituted(text)
        value: str | None = text
        before = self.variables.get(name, "")
        if more:
            value = None if before is None else before + str(value)
        if self.conditions and not self._is_default(name):
            value = value if name in self.variables and before == value else None
        if value is None:
            self.candidates.setdefault(name, []).extend([before or "", text])
        else:
            self.candidates.pop(name, None)
        self.variables[name] = value

    def _is_default(self, name: str) -> bool:
        """Whether the branch is taken only where the variable is empty."""
        condition = self.conditions[-1]
        return "-z" in condition.split() and re.search(rf"\$\{{?{name}\b", condition) is not None

    def _word(self, word: str) -> list[str]:
        """A word with known values; a variable or array on its own may hold several words."""
        array = _ARRAY.fullmatch(word)
        if array:
            return list(self.arrays.get(array[1], [word]))
        value = self.substituted(word)
        variable = _VARIABLE.fullmatch(word)
        if variable and is_known(value):
            return value.split()
        if variable:
            return [value, *self._possible_settings(variable[1] or variable[3])]
        return [value]

    def _possible_settings(self, name: str) -> list[str]:
        """The keys that a variable may set, each once and without a value."""
        parts = [part for text in self.candidates.get(name, []) for part in text.split()]
        settings = [part for part in parts if "=" in part or part.startswith("--")]
        keys = [setting.partition("=")[0] for setting in settings]
        return [f"{key}=$" for key in dict.fromkeys(keys)]

    def substituted(self, text: str) -> str:
        for _ in range(_NESTED):
            replaced = _ARITHMETIC.sub(self._calculated, _VARIABLE.sub(self._value, text))
            if replaced == text:
                break
            text = replaced
        return text

    def _value(self, match: re.Match[str]) -> str:
        name = match[1] or match[3]
        # A default is for what the script never sets.
        known = self.variables.get(name, match[2])
        return match[0] if known is None else known

    def _calculated(self, match: re.Match[str]) -> str:
        """The value of `$((...))`; as it is written where a part of it is not known."""
        try:
            return str(self._number(ast.parse(match[1].strip(), mode="eval").body))
        except (SyntaxError, ValueError, ArithmeticError):
            return match[0]

    def _number(self, node: ast.expr) -> int:
        """Raises ValueError: not known, or no sum, difference, product, quotient or remainder of
        whole numbers."""
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return int(self.substituted(self.variables.get(name) or ""))
            case ast.BinOp(left=left, op=operator, right=right):
                a = self._number(left)
                b = self._number(right)
                match operator:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.Div() if a >= 0 and b > 0:
                        return a // b
                    case ast.Mod() if a >= 0 and b > 0:
                        return a % b
        raise ValueError("not known")


def _home() -> str | None:
    try:
        return str(Path.home())
    except RuntimeError:
        return None


def _uncertain(word: str) -> str:
    """A word that may not be there: its value is unknown."""
    key, equals, _ = word.partition("=")
    return f"{key}=$" if equals else word


def statements(text: str) -> Iterator[Statement]:
    """The words of each simple command, without quotes and comments."""
    scanner = _Scanner(text)
    while not scanner.at_end():
        statement = scanner.statement()
        if statement:
            yield statement


@dataclass
class _Scanner:
    text: str
    at: int = 0

    def at_end(self) -> bool:
        return self.at >= len(self.text)

    def statement(self) -> Statement:
        """Up to the next separator."""
        words: Statement = []
        while not self.at_end():
            char = self.text[self.at]
            if char in "\n;&|()":
                self.at += 1
                break
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char.isspace():
                self.at += 1
            elif char == "#":
                self._to_end_of_line()
            elif match := _HEREDOC.match(self.text, self.at):
                words.append(self._document(match))
            else:
                words.append(self._word())
        return words

    def _to_end_of_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _document(self, opening: re.Match[str]) -> Document:
        """The text up to the delimiter, and past it. What else is on the line of the opening is not
        read."""
        end = re.compile(rf"^\s*{opening[2]}\s*$", re.MULTILINE).search(self.text, opening.end())
        line = self.text.find("\n", self.at)
        if end is None or line < 0 or end.start() <= line:
            self.at = len(self.text)
            return Document("")
        self.at = end.end()
        text = self.text[line + 1 : end.start()]
        return Document(_as_it_is(text) if opening[1] else text)

    def _word(self) -> str | Array:
        word = ""
        while not self.at_end():
            char = self.text[self.at]
            if char == "(" and word.endswith("=") and re.fullmatch(r"\w+\+?=", word):
                return self._array(word)
            if self.text.startswith("\\\n", self.at) or char.isspace() or char in ";|()":
                break
            if char == "&" and not word.endswith((">", "<")):
                break
            word += self._part()
        return word

    def _part(self) -> str:
        """The next character or quotation."""
        char = self.text[self.at]
        if char == "\\":
            self.at += 2
            return _as_it_is(self.text[self.at - 1 : self.at])
        if char == "'":
            end = self._find("'", self.at + 1)
            quoted = self.text[self.at + 1 : end]
            self.at = end + 1
            return _as_it_is(quoted)
        if char == '"':
            return self._quoted()
        if char == "$" and self.text[self.at + 1 : self.at + 2] in ("(", "{"):
            return self._balanced()
        if char == "`":
            end = self._find("`", self.at + 1)
            command = self.text[self.at : end + 1]
            self.at = end + 1
            return command
        self.at += 1
        return char

    def _quoted(self) -> str:
        self.at += 1
        quoted = ""
        while not self.at_end() and self.text[self.at] != '"':
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at] == "'":
                quoted += "'"
                self.at += 1
            elif self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] not in '$`"\\':
                quoted += "\\"
                self.at += 1
            else:
                quoted += self._part()
        self.at += 1
        return quoted

    def _balanced(self) -> str:
        """`$(...)`, `$((...))` or `${...}` as it is written."""
        start = self.at
        opening = self.text[start + 1]
        closing = {"(": ")", "{": "}"}[opening]
        depth = 0
        for position in range(start + 1, len(self.text)):
            depth += (self.text[position] == opening) - (self.text[position] == closing)
            if depth == 0:
                self.at = position + 1
                return self.text[start : self.at]
        self.at = len(self.text)
        return self.text[start:]

    def _array(self, word: str) -> Array:
        self.at += 1
        words = list[str]()
        while not self.at_end() and self.text[self.at] != ")":
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at].isspace():
                self.at += 1
            elif self.text[self.at] == "#":
                self._to_end_of_line()
            else:
                part = self._word()
                if part == "":  # a separator, which has no meaning here
                    self.at += 1
                elif isinstance(part, str):
                    words.append(part)
        self.at += 1
        name = word.rstrip("=").rstrip("+")
        return Array(name, word.endswith("+="), words)

    def _find(self, mark: str, start: int) -> int:
        end = self.text.find(mark, start)
        return len(self.text) if end < 0 else end


def _as_it_is(text: str) -> str:
    return text.replace("$", LITERAL + "d").replace("`", LITERAL + "t")
