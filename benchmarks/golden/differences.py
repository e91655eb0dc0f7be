"""How two dumps differ, in words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

_WIDTH = 240


def describe(before: Path, after: Path, most_lines: int) -> list[str]:
    """In which files two folders differ, and in which lines; [] if they are equal."""
    old = _files(before)
    new = _files(after)
    described = [f"  {name}: is gone" for name in sorted(old.keys() - new.keys())]
    described += [f"  {name}: is new" for name in sorted(new.keys() - old.keys())]
    for name in sorted(old.keys() & new.keys()):
        first = old[name].read_text(errors="replace").splitlines()
        second = new[name].read_text(errors="replace").splitlines()
        if first != second:
            described.append(f"  {name}:")
            described += [f"    {line}" for line in _lines(first, second, most_lines)]
    return described


def _lines(before: list[str], after: list[str], most: int) -> list[str]:
    """The lines that only one of them has, in order; fast also where nearly all differ."""
    gone = _without(before, after)
    come = _without(after, before)
    if not gone and not come:
        return ["the same lines in another order"]
    marked = [f"- {line[:_WIDTH]}" for line in gone[:most]]
    marked += [f"+ {line[:_WIDTH]}" for line in come[:most]]
    left_out = max(0, len(gone) - most) + max(0, len(come) - most)
    if left_out:
        marked.append(f"... and {left_out} more lines")
    return marked


def _without(lines: list[str], others: list[str]) -> list[str]:
    left = Counter(others)
    kept = []
    for line in lines:
        if left[line]:
            left[line] -= 1
        else:
            kept.append(line)
    return kept


def _files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
