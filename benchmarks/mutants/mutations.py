"""Small faults of one expression or statement, made from the syntax tree and written into the
source text."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
SWAPPED_CALLS = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "exp": "expm1",
    "log": "log1p",
    "sum": "mean",
    "mean": "sum",
    "sorted": "list",
}
DROPPED_CALLS = {
    "detach",
    "abs",
    "clamp",
    "clamp_min",
    "clamp_max",
    "sqrt",
    "exp",
    "log",
    "square",
    "unsqueeze",
}


@dataclass(frozen=True)
class Mutant:
    """One fault: `original` at this place of the file becomes `replacement`. Lines count from 1,
    columns are UTF-8 bytes."""

    file: str
    function: str
    operator: str
    line: int
    column: int
    end_line: int
    end_column: int
    original: str
    replacement: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names the fault independently of the lines above it."""
        return self.file, self.function, self.original, self.replacement

    def apply(self, source: str) -> str:
        """The source text with the fault in it."""
        lines = [line.encode() for line in source.splitlines(keepends=True)]
        first, last = lines[self.line - 1], lines[self.end_line - 1]
        mutated = first[: self.column] + self.replacement.encode() + last[self.end_column :]
        return b"".join([*lines[: self.line - 1], mutated, *lines[self.end_line :]]).decode()


@cache
def mutants(file: str, source: str) -> tuple[Mutant, ...]:
    """Every mutant of a file, in the order of its lines; what would be the same text or not compile
    is left out. Each is parsed, which takes a minute for all rooms: a file is done once."""
    visitor = _Visitor(file, source)
    visitor.visit(ast.parse(source))
    return tuple(
        sorted(visitor.mutants, key=lambda mutant: (mutant.line, mutant.column, mutant.replacement))
    )


class _Visitor(ast.NodeVisitor):
    def __init__(self, file: str, source: str) -> None:
        self.file, self.source, self.mutants = file, source, list[Mutant]()
        self._scope: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scope.append(node.name)
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        """A constant is named with its argument: `allow_nan=False`."""
        if isinstance(node.value, ast.Constant):
            for operator, replacement in _replacements(node.value):
                self._add(node, operator, f"{node.arg}={replacement}")
        else:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """That an error is raised matters; its text is for people."""
        self._add(node, "no error", "pass")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people."""

    def generic_visit(self, node: ast.AST) -> None:
        if self._scope and isinstance(node, ast.expr | ast.stmt):
            for operator, replacement in _replacements(node):
                self._add(node, operator, replacement)
        super().generic_visit(node)

    def _add(
        self, node: ast.expr | ast.stmt | ast.keyword, operator: str, replacement: str
    ) -> None:
        original = ast.get_source_segment(self.source, node)
        if not self._scope or original is None or ast.unparse(node) == replacement:
            return
        assert node.end_lineno is not None and node.end_col_offset is not None
        mutant = Mutant(
            self.file,
            ".".join(self._scope),
            operator,
            node.lineno,
            node.col_offset,
            node.end_lineno,
            node.end_col_offset,
            " ".join(original.split()),
            replacement,
        )
        try:
            ast.parse(mutant.apply(self.source))
        except SyntaxError:
            return
        self.mutants.append(mutant)


Replacements = Iterator[tuple[str, str]]
"""(operator, what stands in place of a node), for each mutant of it."""


def _replacements(node: ast.expr | ast.stmt) -> Replacements:
    for of_kind in (_of_operators, _of_choices, _of_constants, _of_calls, _of_statements):
        yield from of_kind(node)


def _of_operators(node: ast.expr | ast.stmt) -> Replacements:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            yield "comparison", _with(node, ops=[COMPARISONS[type(operator)]()])
        case ast.BinOp(left=left, op=operator) if type(operator) in ARITHMETIC:
            if isinstance(left, ast.Constant | ast.JoinedStr) and isinstance(
                getattr(left, "value", ""), str
            ):
                return
            yield "arithmetic", f"({_with(node, op=ARITHMETIC[type(operator)]())})"
            if not isinstance(operator, ast.BitAnd | ast.BitOr):
                yield "left operand alone", f"({ast.unparse(left)})"
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return  # of -1, mostly an axis, becomes -2: 1 is the same axis of a matrix
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign or negation", f"({ast.unparse(operand)})"


def _of_choices(node: ast.expr | ast.stmt) -> Replacements:
    match node:
        case ast.BoolOp(op=operator, values=[first, *_]):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and/or", f"({_with(node, op=other)})"
            yield "first condition alone", f"({ast.unparse(first)})"
        case ast.IfExp(body=body, orelse=orelse):
            yield "always", f"({ast.unparse(body)})"
            yield "never", f"({ast.unparse(orelse)})"


def _of_constants(node: ast.expr | ast.stmt) -> Replacements:
    match node:
        case ast.Constant(value=bool(value)):
            yield "constant", str(not value)
        case ast.Constant(value=int(value)):
            yield "constant", str(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", repr(value * 2 if value else 1.0)


def _of_calls(node: ast.expr | ast.stmt) -> Replacements:
    match node:
        case ast.Call(func=ast.Attribute(value=receiver, attr=name), args=[]) if (
            name in DROPPED_CALLS
        ):
            yield "call left out", f"({ast.unparse(receiver)})"
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED_CALLS:
            yield "another function", _with(node, func=ast.Name(id=SWAPPED_CALLS[name]))
        case ast.Call(func=ast.Attribute(value=receiver, attr=name)) if name in SWAPPED_CALLS:
            other = ast.Attribute(value=receiver, attr=SWAPPED_CALLS[name])
            yield "another function", _with(node, func=other)


def _of_statements(node: ast.expr | ast.stmt) -> Replacements:
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete():
            yield "statement left out", "pass"
        case ast.Continue() | ast.Break():
            yield "loop", "break" if isinstance(node, ast.Continue) else "continue"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "no result", "return None"


def _with(node: ast.expr, **changes: object) -> str:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return ast.unparse(ast.fix_missing_locations(changed))
