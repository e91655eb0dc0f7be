"""The error for every mistake in a configuration: it names file, field, value and what would be
accepted."""

import difflib
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from rpg.catalogue import AlgorithmError
from rpg.catalogue.schema import complaint, written
from rpg.errors import UserError


class ConfigError(UserError):
    """A mistake in a configuration. `str(error)` is the whole message, one line per mistake."""


def other_kind(path: Path, kind: str, expected: str) -> ConfigError:
    """A run, sweep or study file stands where a file of another kind is expected."""
    command = f"rpg {'train' if kind == 'run' else kind} {shlex.quote(str(path))}"
    field = {"sweep": "axes: ", "study": "tune: "}.get(kind, "")
    why = f"{path}: {field}this is a {kind} file, and a {expected} is expected here; try: {command}"
    return ConfigError(why)


def nearest(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean 'x'?` if a known word is similar, else a full stop."""
    close = difflib.get_close_matches(str(word), list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else "."


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


Places = Callable[[Sequence[str], object], "tuple[Path, int] | None"]


def _at(where: str, position: tuple[Path, int] | None) -> str:
    """`where` with the line in its file, or with the other file that sets the value."""
    if position is None:
        return where
    file, line = position
    if where.startswith(str(file)):
        return f"{file}:{line}{where.removeprefix(str(file))}"
    return f"{where}: {file}:{line}"


def explain(
    error: ValidationError, model: type[BaseModel], where: str, place: Places | None = None
) -> ConfigError:
    """Pydantic's report as a ConfigError: `where: field: what is wrong (got value); what would be
    accepted`.

    `place` (rpg.config.yaml_lines) finds the file and line of a field with a value; then `where` is
    `file:line`.
    """
    lines = []
    place = place or (lambda *_: None)
    for item in error.errors(include_url=False):
        cause = item.get("ctx", {}).get("error")
        path, siblings = written(model, item["loc"])
        if isinstance(cause, AlgorithmError):  # its message names the field
            entry = item.get("input")
            part = entry.get(cause.field) if isinstance(entry, dict) else None
            position = None
            if part is not None:
                position = place([*path, cause.field], part)
            if position is None:
                position = place(path, entry)
            field = "" if cause.field == "algorithm" else "algorithm."
            lines.append(f"{_at(where, position)}: {field}{cause}")
            continue
        position = place(path, item.get("input")) if path else None
        field = ".".join(path) or "(whole file)"
        value = item.get("input")
        kind = item["type"]
        context = item.get("ctx", {})
        shown = _cut(repr(value), 80)
        if kind == "extra_forbidden":
            known = sorted(siblings)
            problem = f"unknown field{nearest(path[-1], known)} Accepted: {', '.join(known)}"
        elif kind == "union_tag_invalid":
            tag = context.get("tag")
            accepted = context.get("expected_tags", "").replace("'", "")
            problem = (
                f"unknown type {tag!r}{nearest(str(tag), accepted.split(', '))} Accepted: "
                f"{accepted}"
            )
        elif kind == "missing":
            problem = "this field is required"
        elif kind == "string_pattern_mismatch":
            problem = f"{shown} is not accepted; expected the form {context['pattern']}"
        else:
            message = complaint(item)
            problem = (
                f"{message} (got {shown})" if not isinstance(value, dict | BaseModel) else message
            )
        # A key may be as long as a file.
        lines.append(f"{_at(where, position)}: {_cut(field, 200)}: {_cut(problem, 2000)}")
    return ConfigError("\n".join(lines))
