"""Safe and strict YAML, and the line and file of the field that an error is about."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

try:  # libyaml's is about ten times as fast
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML was built without it
    from yaml import SafeLoader  # type: ignore[assignment]

from rpg.config import shipped

__all__ = ["Place", "SafeLoader", "StrictLoader", "place"]

Place = tuple[Path, int]
MAX_FILES = 20  # longest chain of `base` files


class StrictLoader(SafeLoader):
    """safe_load that also refuses a key given twice and reads 1e-4 as a number (YAML 1.1 reads it
    as text)."""


def _no_duplicates(loader: StrictLoader, node: yaml.MappingNode) -> dict[str, Any]:
    seen = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if not isinstance(key, str) or key in seen:
            wrong = f"key {key!r} is {'given twice' if isinstance(key, str) else 'not text'}"
            raise yaml.constructor.ConstructorError(None, None, wrong, key_node.start_mark)
        seen.add(key)
    return {str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _no_duplicates)
# A date is the text it looks like; 010 is not 8, and 1:30 is not 90.
_NOT_GUESSED = [f"tag:yaml.org,2002:{kind}" for kind in ("float", "int", "timestamp")]
StrictLoader.yaml_implicit_resolvers = {
    key: [pair for pair in pairs if pair[0] not in _NOT_GUESSED]
    for key, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_DECIMAL = re.compile(r"^[-+]?(?:0|[1-9][\d_]*)$")
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:int", _DECIMAL, list("-+0123456789"))
StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:\d[\d_]*\.[\d_]*(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.\d+(?:[eE][-+]?\d+)?)$"
    ),
    list("-+0123456789."),
)


def place(file: Path, field: Sequence[str], value: object) -> Place | None:
    """(file, line from 1) where `file` or one of its bases sets `field` to `value`; None if the
    value comes from the command line or is a default. `field` is the path within a run, or within
    the file.
    """
    for _ in range(MAX_FILES):
        try:
            root = yaml.compose(file.read_text(encoding="utf-8"), Loader=StrictLoader)
        except (OSError, ValueError, yaml.YAMLError):
            return None
        if not isinstance(root, yaml.MappingNode):
            return None
        sections = {key.value: node for key, node in root.value}
        starts = [root]
        starts += [sections[name] for name in ("run", "set") if name in sections]
        entries = [entry for start in starts for entry in _under(start, list(field))]
        entries.extend(_axes(sections.get("axes"), list(field)))
        for line, node in entries:
            with contextlib.suppress(yaml.YAMLError):
                if StrictLoader("").construct_document(node) == value:
                    return file, line + 1
        base = sections.get("base")
        if not isinstance(base, yaml.ScalarNode):
            return None
        file = shipped.base(file, base.value)
    return None


def _under(
    node: yaml.Node, field: list[str], line: int | None = None
) -> Iterator[tuple[int, yaml.Node]]:
    """(line from 0, value) of everything at the path below `node`; a key may itself be a path
    (`a.b: 1`)."""
    if not field:
        yield node.start_mark.line if line is None else line, node
    elif isinstance(node, yaml.MappingNode):
        for key, inner in node.value:
            parts = str(key.value).split(".")
            if field[: len(parts)] == parts:
                yield from _under(inner, field[len(parts) :], key.start_mark.line)
    elif (
        isinstance(node, yaml.SequenceNode)
        and field[0].isdigit()
        and int(field[0]) < len(node.value)
    ):
        yield from _under(node.value[int(field[0])], field[1:])


def _axes(axes: yaml.Node | None, field: list[str]) -> Iterator[tuple[int, yaml.Node]]:
    """The same for the values of axes."""
    if isinstance(axes, yaml.MappingNode):
        for key, values in axes.value:
            parts = str(key.value).split(".")
            if field[: len(parts)] == parts and isinstance(values, yaml.SequenceNode):
                for choice in values.value:
                    yield from _under(choice, field[len(parts) :])
