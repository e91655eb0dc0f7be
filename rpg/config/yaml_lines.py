"""The line and file of the field that an error is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

try:  # libyaml's is about ten times as fast
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML was built without it
    from yaml import SafeLoader  # type: ignore[assignment]

from rpg.config import shipped

__all__ = ["Place", "SafeLoader", "place"]

Place = tuple[Path, int]
MAX_FILES = 20
"""Longest chain of `base` files."""


def place(file: Path, field: Sequence[str], value: object) -> Place | None:
    """(file, line from 1) where `file` or one of its bases sets `field` to `value`; None if the value comes from the
    command line or is a default. `field` is the path within a run, or within the file.
    """
    for _ in range(MAX_FILES):
        try:
            root = yaml.compose(file.read_text(encoding="utf-8"), Loader=SafeLoader)
        except (OSError, ValueError, yaml.YAMLError):
            return None
        if not isinstance(root, yaml.MappingNode):
            return None
        sections = {key.value: node for key, node in root.value}
        starts = [root, *(sections[name] for name in ("run", "set") if name in sections)]
        for line, node in [
            *(found for start in starts for found in _under(start, list(field))),
            *_axes(sections.get("axes"), list(field)),
        ]:
            if _says(node, value):
                return file, line + 1
        base = sections.get("base")
        if not isinstance(base, yaml.ScalarNode):
            return None
        file = shipped.base(file, base.value)
    return None


def _under(node: yaml.Node, field: list[str], line: int | None = None) -> Iterator[tuple[int, yaml.Node]]:
    """(line from 0, value) of everything at the path below `node`; a key may itself be a path (`a.b: 1`)."""
    if not field:
        yield node.start_mark.line if line is None else line, node
    elif isinstance(node, yaml.MappingNode):
        for key, inner in node.value:
            parts = str(key.value).split(".")
            if field[: len(parts)] == parts:
                yield from _under(inner, field[len(parts) :], key.start_mark.line)
    elif isinstance(node, yaml.SequenceNode) and field[0].isdigit() and int(field[0]) < len(node.value):
        yield from _under(node.value[int(field[0])], field[1:])


def _axes(axes: yaml.Node | None, field: list[str]) -> Iterator[tuple[int, yaml.Node]]:
    """The same for the values of axes."""
    if isinstance(axes, yaml.MappingNode):
        for key, values in axes.value:
            parts = str(key.value).split(".")
            if field[: len(parts)] == parts and isinstance(values, yaml.SequenceNode):
                for choice in values.value:
                    yield from _under(choice, field[len(parts) :])


def _says(node: yaml.Node, value: object) -> bool:
    """Whether the node is the source of the value."""
    if isinstance(node, yaml.MappingNode):
        pairs = {str(key.value): inner for key, inner in node.value}
        return (
            isinstance(value, dict)
            and pairs.keys() == value.keys()
            and all(_says(pairs[key], value[key]) for key in pairs)
        )
    if isinstance(node, yaml.SequenceNode):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(node.value)
            and all(_says(one, other) for one, other in zip(node.value, value, strict=True))
        )
    if isinstance(value, dict | list | tuple) or not isinstance(node, yaml.ScalarNode):
        return False
    if isinstance(value, bool) or value is None:
        return bool(yaml.safe_load(node.value) is value) if node.value else value is None
    if isinstance(value, int | float):
        try:
            return float(node.value.replace("_", "")) == value
        except ValueError:
            return False
    return str(node.value) == str(value)
