"""Run commands of the revision that is dumped, and clean what they print and write."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VOLATILE = {
    "begun",
    "built",
    "code",
    "created",
    "digest",
    "fingerprint",
    "finished",
    "git_revision",
    "heartbeat",
    "host",
    "log",
    "modified",
    "pid",
    "seconds",
    "source_digest",
    "sources",
    "time",
}
"""Fields that tell of a revision, a time or a path."""
_SECONDS = [
    (re.compile(r'("seconds(?:_\w+)?": )[\d.e+-]+'), r"\1SECONDS"),
    (re.compile(r"\b\d+(?:\.\d+)? s\b"), "SECONDS"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "REVISION"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?"), "DATE"),
]


def tree() -> Path:
    """The root of the revision."""
    spec = find_spec("rpg")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).resolve().parents[1]


def clean(text: str) -> str:
    """Without times, digests and the paths of the revision and of the dumper's folder."""
    for path, name in ((tree(), "TREE"), (Path.cwd(), "WORK")):
        text = text.replace(str(path), name)
    for pattern, replacement in _SECONDS:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def stable(value: Any) -> Any:
    """JSON without the fields that change with each run."""
    if isinstance(value, dict):
        return {
            name: stable(inner)
            for name, inner in value.items()
            if name not in VOLATILE
            and not name.startswith("seconds")
            and name != "tokens_per_second"
        }
    if isinstance(value, list):
        return [stable(inner) for inner in value]
    return value


class Commands:
    """Commands in processes forked from this one, which has imported what they need."""

    def __init__(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            for arguments in (["--help"], ["show", "quickstart"], ["show", "table3"]):
                _run(arguments)

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """What the command prints on both channels, and its exit code, cleaned."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            _in_child(list(arguments), write, cwd)
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            printed = stream.read().decode(errors="replace")
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return clean(f"$ rpg {' '.join(arguments)}\n{printed}\nexit code {code}\n")

    def write(self, path: Path, commands: Iterable[Iterable[str]]) -> None:
        """What several commands print, one after the other, in one file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.run(*arguments) for arguments in commands))


def started(*arguments: str) -> str:
    """Run a command as a process of its own: for those that start processes themselves."""
    done = subprocess.run(
        [sys.executable, "-m", "rpg", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"rpg {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return clean(done.stdout)


def write_json(path: Path, value: Any) -> None:
    """With one value a line, so that a difference is short."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(clean(json.dumps(stable(value), indent=1, ensure_ascii=False)))


def _in_child(arguments: list[str], write: int, cwd: Path | None) -> None:
    code = 99
    try:
        os.dup2(write, 1)
        os.dup2(write, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.stdout
        if cwd is not None:
            os.chdir(cwd)
        code = _run(arguments)
    except BaseException:  # noqa: BLE001 (whatever it is, is part of the dump)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _run(arguments: list[str]) -> int:
    sys.argv = ["rpg", *arguments]
    try:
        runpy.run_module("rpg", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            return end.code or 0
        print(end.code)
        return 1
    return 0
