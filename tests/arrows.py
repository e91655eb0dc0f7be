"""The modules that a source names, by an import or by a string, for tests/test_structure.py.

A string counts when it is a whole dotted name of ours (also `pkg://a.b`, `a.b:c` and a path to a
file), when it can be formatted or joined to one, and where it is given to what imports or runs a
module (`import_module`, `-m` ...).
"""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

OURS = ("rpg", "flows", "dashboard", "verl_cpu")
PUBLIC = {"rpg.__version__", "rpg.__file__"}  # of rpg/__init__.py, which loads nothing by itself
IMPORTERS = {"import_module", "__import__", "run_module", "resolve_name", "python_module", "reload"}
"""Functions whose first argument is a module's name, however short."""
_TOP = f"(?:{'|'.join(OURS)})"
_DOTTED = re.compile(rf"(?:pkg://)?({_TOP}(?:\.[\w{{}}]+)+\.?)(?::[\w.]+)?")
_PATH = re.compile(rf"({_TOP}(?:/[\w{{}}]+)+)\.py(?::\w+)?")
_INSIDE = re.compile(rf"(?:-m|\bfrom|\bimport) ({_TOP}(?:\.\w+)*)\b")


Known = Mapping[str, object]


class Arrows(NamedTuple):
    """Names of modules: imported, and named by a string."""

    imports: set[str]
    strings: set[str]


parsed = cache(ast.parse)


def arrows(name: str, source: str, known: Known, is_package: bool = False) -> Arrows:
    """What the module `name` names; `known` are the modules that exist."""
    tree = parsed(source)
    package = name if is_package else name.rpartition(".")[0]
    imports = {target for node in ast.walk(tree) for target in _imported(node, package, known)}
    strings = {target for text in _texts(tree) for target in _modules(text, known)}
    for text in {text for node in ast.walk(tree) for text in _given(node)}:
        if text.partition(".")[0] in OURS:
            strings.update(_resolved(text, known))
        else:
            imports.add(text)
    return Arrows(imports, strings)


def _imported(node: ast.AST, around: str, known: Known) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = node.module or ""
        if node.level:
            parents = around.split(".")
            package = ".".join(
                [*parents[: len(parents) - node.level + 1], *filter(None, [node.module])]
            )
        for alias in node.names:
            inner = f"{package}.{alias.name}"
            yield inner if inner in known or inner in PUBLIC else package


def _texts(tree: ast.AST) -> Iterator[str]:
    """Every string that is a value, with `{}` for what is put into it; docstrings are none."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        text = _text(node)
        if text is not None:
            yield text
        if not isinstance(node, ast.JoinedStr):
            pending += ast.iter_child_nodes(node)
        else:
            pending += (
                value.value for value in node.values if isinstance(value, ast.FormattedValue)
            )


def _text(node: ast.AST) -> str | None:
    """The string that an expression makes, or None."""
    if isinstance(node, ast.Constant):
        return re.sub(r"%[sr]|{\w*}", "{}", node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) or "{}" for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(node.left), _text(node.right)]
        return None if parts == [None, None] else "".join(part or "{}" for part in parts)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "join"
    ):
        separator = _text(node.func.value)
        rest = node.args[0] if node.args else None
        if separator is not None and isinstance(rest, ast.List | ast.Tuple):
            return separator.join(_text(part) or "{}" for part in rest.elts)
    return None


def _given(node: ast.AST) -> Iterator[str]:
    """Constants that are given to what imports or runs a module: there a short name is one, too."""
    if isinstance(node, ast.Call) and node.args:
        function = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        texts = [_text(argument) or "" for argument in node.args]
        if function == "import_module" and texts[0].startswith("."):
            yield texts[-1] + texts[0]
        elif function == "python_module":  # its arguments may be a module again
            yield from (text for text in texts if text.partition(".")[0] in OURS)
        elif function in IMPORTERS and texts[0]:
            yield texts[0].partition(":")[0]
    elif isinstance(node, ast.List | ast.Tuple):
        texts = [_text(part) for part in node.elts]
        yield from (after for flag, after in itertools.pairwise(texts) if flag == "-m" and after)


def _modules(text: str, known: Known) -> Iterator[str]:
    whole = _DOTTED.fullmatch(text)
    path = _PATH.fullmatch(text)
    if whole:
        yield from _resolved(whole[1], known)
    elif path:
        yield from _resolved(path[1].replace("/", "."), known)
    else:
        for found in _INSIDE.findall(text):
            yield from _resolved(found, known)


def _resolved(text: str, known: Known) -> Iterator[str]:
    """The modules that a dotted text means: itself, the module that the named thing is in, or all
    that fit a template."""
    if "{}" in text or text.endswith("."):
        end = r"\w+" if text.endswith(".") else ""
        pattern = re.escape(text).replace(re.escape("{}"), r"\w+(\.\w+)*") + end
        yield from (name for name in known if re.fullmatch(pattern, name))
        return
    parts = text.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in known and (length > 1 or length == len(parts)):
            yield name
            return
