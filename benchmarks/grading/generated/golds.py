"""Gold answers and what kind of answer each is, by rules of the generator's own."""

import hashlib
import random
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from rpg.tasks.benchmarks import benchmark, load_benchmark
from tests.data_sets import DATA

BENCHMARKS = ("aime24", "aime25", "amc23", "minerva_math", "olympiadbench")


@dataclass(frozen=True)
class Gold:
    """A gold answer as its benchmark writes it."""

    benchmark: str
    answer: str

    def rng(self, salt: str) -> random.Random:
        seed = hashlib.sha256(f"{self.answer}\0{salt}".encode()).hexdigest()
        return random.Random(seed)

    @cached_property
    def text(self) -> str:
        """Without dollars, sizes and a final full stop."""
        text = re.sub(
            r"\\left(?![a-z])|\\right(?![a-z])|\\quad|\\?\$|\\!\s?", "", self.answer
        ).strip()
        if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", text):
            text = text.replace(",", "")
        return text.rstrip(".").strip()

    @cached_property
    def plain(self) -> str:
        """Without a degree sign."""
        return re.sub(r"\^\{?\\circ\}?", "", self.text).strip()

    @cached_property
    def kind(self) -> str:
        """number, percent, list, tuple, interval, union, function, named, relation, words or
        expression."""
        text = self.plain
        if "where" in text:
            return "words"
        if text.endswith("%"):
            return "percent"
        if self.value is not None:
            return "number"
        if r"\cup" in text:
            return "union"
        if len(parts(text)) > 1:
            return "list"
        inner = _inside(text)
        if inner and len(parts(inner)) > 1:
            return "interval" if "infty" in text or text[0] == "[" or text[-1] == "]" else "tuple"
        left, sign, _right = text.partition("=")
        if sign and re.fullmatch(r"\s*[a-zA-Z]\s*\([a-z]\)\s*", left) and "'" not in left:
            return "function"
        if sign and re.fullmatch(r"\s*(?:[a-zA-Z]|[A-Za-z]_\{\s*\\?\w+\s*\})\s*", left):
            return "named"
        if sign or re.search(r"\\ge|\\le|<|>", re.sub(r"\\(left|leq)", "", text)):
            return "relation"
        return "expression"

    @cached_property
    def value(self) -> Any:
        """A Fraction, of an integer, a decimal, `1e5`, `a/b` or `\\frac{a}{b}`; None of anything
        else."""
        text = self.plain.replace(" ", "").removeprefix("+")
        if re.fullmatch(r"-?\d+(\.\d*)?(e-?\d+)?", text):
            return Fraction(text)
        match = re.fullmatch(r"(-?)\\frac\{(-?\d+)\}\{(\d+)\}|(-?)(\d+)\.?/(\d+)", text)
        if match:
            value = Fraction(int(match[2] or match[5]), int(match[3] or match[6]))
            return -value if match[1] or match[4] else value
        return None

    @property
    def integer(self) -> bool:
        return self.kind == "number" and bool(re.fullmatch(r"-?\d+", self.text))

    @property
    def decimal(self) -> bool:
        return self.kind == "number" and bool(
            re.fullmatch(r"\+?-?\d+(\.\d+)?(e-?\d+)?", self.plain)
        )

    @property
    def fraction(self) -> bool:
        return self.kind == "number" and not self.decimal and self.value.denominator != 1

    @cached_property
    def elements(self) -> list[str]:
        """Of a list, tuple or interval."""
        return parts(_inside(self.plain) or self.plain)

    @property
    def single(self) -> bool:
        """One value: a number or an expression, not a list or relation."""
        return self.kind in ("number", "expression")

    @cached_property
    def right_side(self) -> str:
        return (
            self.plain.partition("=")[2].strip()
            if self.kind in ("function", "named")
            else self.plain
        )


def parts(text: str) -> list[str]:
    """Between commas outside of all brackets."""
    found, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    return [*found, text[start:].strip()]


def _inside(text: str) -> str | None:
    if len(text) > 2 and text[0] in "([" and text[-1] in ")]":
        depth = 0
        for i, c in enumerate(text):
            depth += (c in "([") - (c in ")]")
            if depth == 0 and i < len(text) - 1:
                return None
        return text[1:-1]
    return None


def real_golds() -> list[Gold]:
    """The distinct gold answers of the five benchmarks; [] where their files are not in
    $RPG_DATA."""
    if not (DATA / "aime-2024.parquet").is_file():
        return []
    found: dict[str, Gold] = {}
    for name in BENCHMARKS:
        for problem in load_benchmark(benchmark(name), folder=DATA).problems:
            found.setdefault(problem.answer, Gold(name, problem.answer))
    return list(found.values())


def sample_golds() -> list[Gold]:
    """Of our own, of every kind that the benchmarks have."""
    return [Gold("ours", answer) for answer in SAMPLE]


SAMPLE = r"""
7
38
415
-6
0
12600
25^\circ
3.7
0.048
-0.65
6.1e-12
2.9e14
1e-7
$\frac{5}{8}$
$-\frac{11}{6}$
1/7
$\frac{340}{19}$
35%
$\sqrt{11}$
$4 \sqrt{6}-1$
$\frac{3 \pi}{8}$
$5+2 \sqrt{3} i$
$\ln 5 + i\pi / 4$
$3^{700}$
$\binom{3n}{n}$
$3 n+2$
$n^{2}-4 n+1$
$\lfloor\frac{3 n+1}{4}\rfloor$
$\frac{n(n-1)}{6}$
\frac{A k^{2}}{2 m}
e^{-3 t} \sin (2 t)
\frac{1}{s^{2}+4}
q
k_{0} Z
\sqrt{8 \pi G \rho_{0}}
$(4,7)$
$(1,-3,12)$
$(\frac{1}{4}, \sqrt{5})$
(-\infty,8)
$[\frac{1}{3}, 6]$
(2,9]
$(-\infty, 1) \cup\{4\}$
$(-3,-1)\cup (2,\sqrt{7})$
4,9
2,6,21
-5,0,5
$\frac{3}{4}$,$\frac{1}{9}$
$1+\sqrt{5}, 1-\sqrt{5}$
$(0,3),(3,0)$
$k=4$
$N=3^{n}-2$
$f(x)=3 x-5$
$f(x)=x$,$f(x)=5-x$
$n \geqslant 6$
y^{\prime}+3 y=0
AB=BC+CD
""".strip().split("\n")
