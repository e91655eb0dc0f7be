"""Expression trees: what the parser makes of a formula, and what the comparison is about."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar


class Tree:
    """A node of an expression; one of the classes below."""

    __slots__ = ()
    kind: ClassVar[str]
    """What messages call it."""


@dataclass(frozen=True, slots=True)
class Written:
    """A number's digits in the base it was written in."""

    base: int
    digits: str


@dataclass(frozen=True, slots=True)
class Numeral(Tree):
    """`3.14`; `34_8` is 28 and remembers how it was written."""

    kind: ClassVar[str] = "number"
    value: Fraction
    text: str
    written: Written | None = None


@dataclass(frozen=True, slots=True)
class Symbol(Tree):
    kind: ClassVar[str] = "symbol"
    name: str


@dataclass(frozen=True, slots=True)
class Sum(Tree):
    kind: ClassVar[str] = "add"
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Product(Tree):
    kind: ClassVar[str] = "multiply"
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Quotient(Tree):
    kind: ClassVar[str] = "divide"
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Remainder(Tree):
    r"""`3 \pmod 7`."""

    kind: ClassVar[str] = "mod"
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Power(Tree):
    kind: ClassVar[str] = "power"
    base: Tree
    exponent: Tree


@dataclass(frozen=True, slots=True)
class PlusMinus(Tree):
    r"""`a \pm b`: two values."""

    kind: ClassVar[str] = "pm"
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Negative(Tree):
    kind: ClassVar[str] = "negative"
    operand: Tree


@dataclass(frozen=True, slots=True)
class Factorial(Tree):
    kind: ClassVar[str] = "factorial"
    operand: Tree


@dataclass(frozen=True, slots=True)
class Percent(Tree):
    kind: ClassVar[str] = "percent"
    operand: Tree


@dataclass(frozen=True, slots=True)
class Quantity(Tree):
    """`5 cm`."""

    kind: ClassVar[str] = "unit"
    amount: Tree
    unit: str


@dataclass(frozen=True, slots=True)
class Call(Tree):
    """A function's value; `extra` is the degree of a root, the base of a logarithm, the k of a
    binomial."""

    kind: ClassVar[str] = "call"
    function: str
    argument: Tree
    extra: Tree | None = None


@dataclass(frozen=True, slots=True)
class Bracketed(Tree):
    """A tuple, a point, an interval, `2:3` (brackets `:`) or `6:30` (brackets `time`)."""

    kind: ClassVar[str] = "tuple"
    brackets: str
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class FiniteSet(Tree):
    kind: ClassVar[str] = "set"
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Union(Tree):
    kind: ClassVar[str] = "union"
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Matrix(Tree):
    kind: ClassVar[str] = "matrix"
    rows: tuple[tuple[Tree, ...], ...]


@dataclass(frozen=True, slots=True)
class Chain(Tree):
    """Expressions with relations between them: `x = 2 + 3 = 5`."""

    kind: ClassVar[str] = "chain"
    items: tuple[Tree, ...]
    relations: tuple[str, ...]


COLLECTIONS = (Bracketed, FiniteSet, Union, Matrix)

EMPTY = FiniteSet(())
INFINITY = Symbol("infty")
REALS = Bracketed("()", (Negative(INFINITY), INFINITY))


def nodes(tree: Tree) -> Iterator[Tree]:
    """A tree and all trees within it."""
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Tree):
            yield node
            waiting.extend(getattr(node, name) for name in _fields(node))
        elif isinstance(node, tuple):
            waiting.extend(node)


def rebuilt(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The same node with every tree directly within it changed."""
    return type(tree)(*(_changed(getattr(tree, name), change) for name in _fields(tree)))


def _fields(node: Tree) -> tuple[str, ...]:
    names: tuple[str, ...] = node.__match_args__  # type: ignore[attr-defined]
    return names


def _changed(part: Any, change: Callable[[Tree], Tree]) -> Any:
    if isinstance(part, Tree):
        return change(part)
    if isinstance(part, tuple):
        return tuple(_changed(item, change) for item in part)
    return part
