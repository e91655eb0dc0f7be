"""Whether the functions that docs/field.md cites are the same at another commit of their trainers.

    # a line per function, and the diff of each that differs, from the pin to the newest commit
    python -m benchmarks.field_pins --checkout slime=FOLDER --checkout openrlhf=FOLDER
    # move the pin of a trainer whose functions are all the same, else add rows to the page
    python -m benchmarks.field_pins --checkout slime=FOLDER --write
    # between two commits or days
    python -m benchmarks.field_pins --checkout slime=FOLDER --from slime=2026-01-01 --to slime=HEAD

FOLDER is a git folder with the trainer's history; nothing is fetched. Compared is the syntax of
each function that rpg/auditing/pinned.toml names by path and line, without comments and docstrings,
and of each default the statement; what these call is not followed. What a change does to a gradient
is not derived: a person writes the sentence of each new row of docs/field-changes.md, and `--write`
then moves the pin, too.
Ends with 1 where something changed or cannot be found.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PINNED = ROOT / "rpg" / "auditing" / "pinned.toml"
PAGE = ROOT / "docs" / "field-changes.md"
CITING = (ROOT / "docs" / "field.md", ROOT / "docs" / "losses" / "sampler.md")
TO_WRITE = "(to be written)"
_PLACE = re.compile(r"(?P<path>[\w./-]*):(?P<line>\d+)(?=$|[:;])")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Place:
    """What pinned.toml cites: a line, and whether it stands for its function or for itself."""

    path: str
    line: int
    is_default: bool


@dataclass(frozen=True)
class Unit:
    """A function or statement in one version of a file."""

    path: str
    name: str
    text: str
    syntax: str
    first_line: int
    lines: tuple[int, ...]
    """The lines of its syntax nodes, in an order that equal syntax shares."""


@dataclass(frozen=True)
class Change:
    """A cited unit before and after; None: it is not found there."""

    place: Place
    before: Unit | None
    after: Unit | None

    @property
    def name(self) -> str:
        unit = self.after or self.before
        return f"{unit.path}::{unit.name}" if unit else f"{self.place.path}:{self.place.line}"

    @property
    def is_same(self) -> bool:
        return bool(self.before and self.after and self.before.syntax == self.after.syntax)

    def diff(self) -> str:
        before, after = (unit.text if unit else "" for unit in (self.before, self.after))
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), "before", "after", lineterm=""
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class Checkout:
    """The history of a trainer in a git folder."""

    folder: Path

    def _git(self, *words: str) -> str | None:
        done = subprocess.run(
            ["git", "-C", str(self.folder), *words], capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else None

    def commit(self, revision: str) -> str:
        """The full hash of a commit, tag or day (the last commit before it). Raises SystemExit."""
        if re.fullmatch(r"\d{4}-\d\d-\d\d", revision):
            found = self._git("rev-list", "-1", "--first-parent", f"--before={revision}", "HEAD")
        else:
            found = self._git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if not found or not found.strip():
            raise SystemExit(f"{self.folder}: no commit {revision}")
        return found.strip()

    def day(self, commit: str) -> str:
        return (self._git("log", "-1", "--format=%cs", commit) or "").strip()

    def read(self, commit: str, path: str) -> str | None:
        return self._git("show", f"{commit}:{path}")

    def files_with(self, commit: str, function: str) -> list[str]:
        """The Python files that define a function of this name."""
        found = self._git("grep", "-l", "-E", f"def {function}\\(", commit, "--", "*.py")
        return [line.partition(":")[2] for line in (found or "").splitlines()]

    def touching(self, before: str, after: str, path: str) -> list[str]:
        """The commits after `before` that touch a file, the oldest first."""
        words = ("log", "--reverse", "--first-parent", "--format=%h", f"{before}..{after}")
        return (self._git(*words, "--", path) or "").split()


class Source:
    """A file in one version."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self.text)

    def at(self, place: Place) -> Unit:
        """The innermost function around a line, or of a default its statement."""
        if not self.path.endswith(".py"):
            return self._plain(place.line)
        containing = [
            (name, node)
            for name, node in _named(self._tree, "")
            if node.lineno <= place.line <= (node.end_lineno or node.lineno)
        ]
        if not place.is_default:
            containing = [(name, node) for name, node in containing if isinstance(node, Function)]
        if not containing:  # in the text of a docstring, or between functions
            return self._plain(place.line)
        name, node = containing[-1]
        return self._unit(name, node)

    def like(self, unit: Unit) -> Unit | None:
        """What is called as `unit` here; of several, what is most like it."""
        if not self.path.endswith(".py"):
            lines = self.text.splitlines()
            matches = [n for n, line in enumerate(lines, 1) if line.strip() == unit.syntax]
            return self._plain(matches[0]) if matches else None
        nodes = [node for name, node in _named(self._tree, "") if name == unit.name]
        units = [self._unit(unit.name, node) for node in nodes]
        same = [found for found in units if found.syntax == unit.syntax]
        if same or not units:
            return same[0] if same else None
        return max(units, key=lambda found: _likeness(found.text, unit.text))

    def _plain(self, line: int) -> Unit:
        text = self.text.splitlines()[line - 1]
        return Unit(self.path, "line", text, text.strip(), line, (line,))

    def _unit(self, name: str, node: ast.stmt) -> Unit:
        text = "\n".join(self.text.splitlines()[node.lineno - 1 : node.end_lineno])
        bare = _without_docstrings(node)
        lines = tuple(getattr(part, "lineno", 0) for part in ast.walk(bare))
        return Unit(self.path, name, text, ast.dump(bare), node.lineno, lines)


def _named(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.stmt]]:
    """(qualified name, statement) of the functions and the simple statements, outer ones first.
    A statement is called after what it assigns, or the first text in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            inside = f"{scope}.{child.name}" if scope else child.name
            if isinstance(child, Function):
                yield inside, child
            yield from _named(child, inside)
        elif isinstance(child, ast.stmt) and not hasattr(child, "body"):
            label = _label(child)
            yield (f"{scope}.{label}" if scope else label), child
        else:
            yield from _named(child, scope)


def _label(statement: ast.stmt) -> str:
    match statement:
        case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
            return ast.unparse(target)
    for part in ast.walk(statement):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            return part.value.splitlines()[0] if part.value else "text"
    return type(statement).__name__


def _without_docstrings(node: ast.stmt) -> ast.stmt:
    bare = copy.deepcopy(node)
    for part in ast.walk(bare):
        if isinstance(part, Function | ast.ClassDef) and ast.get_docstring(part) is not None:
            part.body = part.body[1:]
    return bare


def _likeness(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()


def places(table: Mapping[str, Any]) -> list[Place]:
    """What a trainer's part of pinned.toml cites."""
    found = dict[Place, None]()
    for entry in [*table.get("losses", {}).values(), *table.get("corrections", {}).values()]:
        for key in ("at", "default"):
            path = ""
            for match in _PLACE.finditer(entry.get(key, "")):
                path = match["path"] or path
                if path:
                    found[Place(path, int(match["line"]), key == "default")] = None
    return list(found)


def compare(checkout: Checkout, place: Place, pin: str, before: str, after: str) -> Change:
    """A cited place, located at the pin, in two other versions."""
    text = checkout.read(pin, place.path)
    if text is None:
        return Change(place, None, None)
    unit = Source(place.path, text).at(place)
    return Change(place, _find(checkout, before, unit), _find(checkout, after, unit))


def _find(checkout: Checkout, commit: str, unit: Unit) -> Unit | None:
    """A unit in another version: in its file, else in the only file that defines its function."""
    text = checkout.read(commit, unit.path)
    found = Source(unit.path, text).like(unit) if text is not None else None
    if found or not unit.path.endswith(".py"):
        return found
    elsewhere = checkout.files_with(commit, unit.name.rpartition(".")[2])
    if len(elsewhere) != 1:
        return None
    return Source(elsewhere[0], checkout.read(commit, elsewhere[0]) or "").like(unit)


def commits_of(checkout: Checkout, change: Change, before: str, after: str) -> list[str]:
    """The commits that changed what a change is about."""
    unit = change.after or change.before
    if unit is None:
        return []
    syntax = change.before.syntax if change.before else None
    commits = []
    for commit in checkout.touching(before, after, unit.path):
        text = checkout.read(commit, unit.path)
        found = Source(unit.path, text).like(unit) if text is not None else None
        now = found.syntax if found else None
        if now != syntax:
            commits.append(commit)
        syntax = now
    return commits


def new_line(change: Change) -> int:
    """Where a cited line is afterwards: at the same node of equal syntax, else the first line."""
    before = change.before
    after = change.after
    assert before and after
    if not change.is_same:
        return after.first_line
    line = change.place.line
    shifts = {
        old: new for old, new in zip(before.lines, after.lines, strict=False) if 0 < old <= line
    }
    nearest = max(shifts, default=before.first_line)
    return shifts.get(nearest, after.first_line) + line - nearest


def row(name: str, day: str, change: Change, commits: list[str], sentence: str = TO_WRITE) -> str:
    told = ", ".join(f"`{commit[:8]}`" for commit in commits) or "not found"
    return f"| {day} | {name} | `{change.name}` | {told} | {sentence} |"


def written(page: str, name: str, change: Change, commits: list[str]) -> bool:
    """Whether the page has this change with its sentence."""
    start, _, _ = row(name, "", change, commits).partition(TO_WRITE)
    cells = start.removeprefix("|  |")
    return any(cells in line and TO_WRITE not in line for line in page.splitlines())


def moved(text: str, name: str, commit: str, changes: list[Change]) -> str:
    """pinned.toml with another pin and the lines of the places there."""
    begin = re.search(rf"^\[{re.escape(name)}\]$", text, re.M)
    if begin is None:
        raise SystemExit(f"{PINNED}: no [{name}]")
    start = begin.start()
    others = re.compile(rf"^\[(?!{re.escape(name)}[.\]])", re.M)
    end = match.start() if (match := others.search(text, begin.end())) else len(text)
    section = re.sub(r'^commit = ".*"$', f'commit = "{commit}"', text[start:end], flags=re.M)
    lines = {(change.place.path, change.place.line): change for change in changes}
    path = ""

    def place(match: re.Match[str]) -> str:
        nonlocal path
        path = match["path"] or path
        change = lines.get((path, int(match["line"])))
        if change is None or change.after is None:
            return match[0]
        return f"{change.after.path if match['path'] else ''}:{new_line(change)}"

    section = re.sub(r"(?P<path>[\w./-]*):(?P<line>\d+)(?=[\"':;])", place, section)
    return text[:start] + section + text[end:]


def cited(text: str, old: str, new: str, changes: list[Change]) -> str:
    """A page whose citations `path:line @commit` are those of the new pin."""
    for change in changes:
        here = f"{change.place.path}:{change.place.line} @{old[:8]}"
        if change.after and not change.place.is_default:
            text = text.replace(here, f"{change.after.path}:{new_line(change)} @{new[:8]}")
    return text


@dataclass(frozen=True)
class Comparison:
    """What one trainer's places came to."""

    name: str
    pin: str
    before: str
    after: str
    changes: list[Change]
    rows: list[str]
    """Of the page, one for each function that changed."""


def examine(checkout: Checkout, name: str, before: str | None, after: str) -> Comparison:
    """Compare all places of a trainer, and print what is found."""
    table = tomllib.loads(PINNED.read_text("utf-8"))[name]
    pin = checkout.commit(table["commit"])
    start = checkout.commit(before) if before else pin
    end = checkout.commit(after)
    print(f"{name}: {start[:8]} ({checkout.day(start)}) to {end[:8]} ({checkout.day(end)})")
    changes = []
    rows = dict[str, None]()
    page = PAGE.read_text("utf-8")
    for place in places(table):
        change = compare(checkout, place, pin, start, end)
        changes.append(change)
        if change.is_same:
            print(f"  same     {change.name}")
            continue
        commits = commits_of(checkout, change, start, end)
        if written(page, name, change, commits):
            print(f"  written  {change.name}")
            continue
        line = row(name, checkout.day(commits[-1] if commits else end), change, commits)
        if line not in rows:
            print(f"  changed  {change.name} in {', '.join(commits) or 'no commit found'}")
            print(change.diff())
        rows[line] = None
    return Comparison(name, pin, start, end, changes, list(rows))


def write(found: Comparison) -> None:
    """Move the pin, or add the rows that say why it stays."""
    missing = [change.name for change in found.changes if not (change.before and change.after)]
    if found.rows:
        page = PAGE.read_text("utf-8").rstrip("\n")
        new = [line for line in found.rows if line not in page]
        PAGE.write_text("\n".join([page, *new]) + "\n", "utf-8")
        print(
            f"{found.name}: {len(new)} rows in {PAGE.name}; write what changed, and run this again"
        )
    elif missing:
        print(f"{found.name}: the pin stays; not found: {', '.join(missing)}")
    elif found.before == found.pin:
        text = PINNED.read_text("utf-8")
        PINNED.write_text(moved(text, found.name, found.after, found.changes), "utf-8")
        for page_file in CITING:
            text = page_file.read_text("utf-8")
            page_file.write_text(cited(text, found.pin, found.after, found.changes), "utf-8")
        print(f"{found.name}: the pin is {found.after[:8]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkout", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--from", action="append", default=[], dest="start", metavar="NAME=COMMIT")
    parser.add_argument("--to", action="append", default=[], dest="end", metavar="NAME=COMMIT")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    starts, ends = (
        dict(pair.split("=", 1) for pair in pairs) for pairs in (given.start, given.end)
    )
    changed = False
    for pair in given.checkout:
        name, _, folder = pair.partition("=")
        found = examine(Checkout(Path(folder)), name, starts.get(name), ends.get(name, "HEAD"))
        changed |= bool(found.rows)
        if given.write:
            write(found)
    sys.exit(int(changed))


if __name__ == "__main__":
    main()
