"""Settings of other trainers' runs, read as data from the files people train with; nothing in them is executed."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rpg.errors import UserError

_OVERRIDE = re.compile(r"[+]{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^${}]*))?\}|\$(\w+)")


@dataclass
class ForeignSettings:
    """`values` (dotted key -> value) of a run of `trainer`, "verl" or "trl"; `unresolved` (key -> why) has no value."""

    trainer: str
    values: dict[str, Any] = field(default_factory=dict)
    unresolved: dict[str, str] = field(default_factory=dict)

    def set(self, key: str, value: Any) -> None:
        """A second, different value for a key (in branches of a script) leaves it without one."""
        if key in self.values and self.values[key] != value:
            self.unresolved[key] = f"set to both {self.values[key]!r} and {value!r}"
        self.values[key] = value


def read_settings(file: Path) -> ForeignSettings:
    """Read a verl script (.sh) or Hydra file, or a TRL GRPOConfig (.yaml, .yml, .json, .py).

    Raises UserError where the file cannot be read or names no setting of either trainer.
    """
    readers = {".sh": _shell, ".py": _script, ".json": _document, ".yaml": _document, ".yml": _document}
    if file.suffix not in readers:
        raise UserError(f"{file}: expected a file that ends in {', '.join(readers)}")
    try:
        found = readers[file.suffix](file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{file} could not be read: {error}") from None
    if not found.values and not found.unresolved:
        raise UserError(f"{file}: no overrides of verl (a.b=value) and no arguments of GRPOConfig were found")
    return found


def _document(text: str) -> ForeignSettings:
    content = yaml.safe_load(text)  # reads JSON, too
    if not isinstance(content, dict):
        raise ValueError("expected keys and values")
    flat = dict(leaves(content))
    is_verl = any(key in content for key in ("actor_rollout_ref", "algorithm"))
    return ForeignSettings("verl" if is_verl else "trl", flat if is_verl else content)


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in a nested mapping that is no mapping."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _script(text: str) -> ForeignSettings:
    found = ForeignSettings("trl")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "GRPOConfig":
            for argument in node.keywords:
                name = argument.arg or "**"
                try:
                    found.set(name, ast.literal_eval(argument.value))
                except ValueError:
                    found.unresolved[name] = f"not a literal: {ast.unparse(argument)}"
    return found


def _shell(text: str) -> ForeignSettings:
    """Overrides anywhere in a script; its own variables are substituted, commands and arithmetic are not evaluated."""
    found, variables = ForeignSettings("verl"), ForeignSettings("shell")
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quotation that spans lines
            words = line.split()
        for word in words:
            if override := _OVERRIDE.fullmatch(word):
                key, value = override[1], _substituted(override[2], variables)
                if value is None:
                    found.unresolved[key] = f"not a plain value: {override[2]}"
                else:
                    found.set(key, yaml.safe_load(value))
            elif assignment := _ASSIGNMENT.fullmatch(word):
                value = _substituted(assignment[2], variables)
                if value is None:
                    variables.unresolved[assignment[1]] = assignment[2]
                else:
                    variables.set(assignment[1], value)
    return found


def _substituted(text: str, variables: ForeignSettings) -> str | None:
    """None where the text has a command, arithmetic or a variable without one known value."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1] or match[3], match[2]
        known = name in variables.values and name not in variables.unresolved
        return str(variables.values[name]) if known else "$" if default is None else default

    result = _VARIABLE.sub(value, text)
    return None if "$" in result or "`" in result else result
