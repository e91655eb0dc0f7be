"""Revisions of the repository: checked out, and dumped by this copy of the dumper."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DUMPER = (
    "benchmarks/golden",
    "benchmarks/grading/data",
    "benchmarks/grading/generated",
    "benchmarks/kill_resume.py",
    "benchmarks/digest.py",
    "benchmarks/synthetic.py",
    "tests/catalogue/mistakes.yaml",
    "tests/config/mistakes.yaml",
    "tests/study/mistakes.yaml",
)
"""What the dumper is made of. This copy of it runs on both revisions."""


@dataclass(frozen=True)
class Revision:
    label: str
    commit: str
    tree: str
    """git's digest of all its files: equal files need one dump."""


class Repository:
    """The repository that this file belongs to."""

    def __init__(self) -> None:
        common = Path(_git("rev-parse", "--git-common-dir"))
        digest = hashlib.sha256()
        for path in _dumper_files():
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
        self._dumps = (ROOT / common / "golden" / digest.hexdigest()[:12]).resolve()

    def resolve(self, name: str) -> Revision:
        """The revision of that name. `.` is the working tree, without what git ignores."""
        commit = (
            _commit_of_working_tree() if name == "." else _git("rev-parse", f"{name}^{{commit}}")
        )
        label = "the working tree" if name == "." else f"{name} ({commit[:8]})"
        return Revision(label, commit, _git("rev-parse", f"{commit}^{{tree}}"))

    def dumped(self, revision: Revision, part: str) -> Path:
        """The folder with the dump of a part of a revision; made if it is not there yet."""
        folder = self._dumps / revision.tree / part
        if folder.is_dir():
            return folder
        with _checked_out(revision) as scratch:
            _dump(scratch, part)
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(scratch / "dump" / part, folder.with_name(f"{part}-{os.getpid()}"))
            try:
                folder.with_name(f"{part}-{os.getpid()}").rename(folder)
            except OSError:  # another process has dumped it meanwhile
                shutil.rmtree(folder.with_name(f"{part}-{os.getpid()}"))
        return folder


@contextmanager
def _checked_out(revision: Revision) -> Iterator[Path]:
    """A scratch folder with the revision in `tree` and the dumper in `dumper`."""
    scratch = Path(tempfile.mkdtemp(prefix="golden-"))
    try:
        _git(
            "worktree",
            "add",
            "--quiet",
            "--force",
            "--detach",
            str(scratch / "tree"),
            revision.commit,
        )
        for path in _dumper_files():
            copy = scratch / "dumper" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        yield scratch
    finally:
        _git("worktree", "remove", "--force", str(scratch / "tree"))
        shutil.rmtree(scratch, ignore_errors=True)


def _dump(scratch: Path, part: str) -> None:
    """Run the dumper on the revision, with the packages of this Python."""
    work = scratch / "work"
    work.mkdir()
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RPG_", "PYTEST", "COVERAGE"))
    }
    environment |= {
        # `benchmarks` is a namespace: the dumper's modules come first, and `rpg` is the revision's.
        "PYTHONPATH": os.pathsep.join([str(scratch / "dumper"), str(scratch / "tree")]),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "150",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    log = scratch / "log.txt"
    with log.open("wb") as stream:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.golden",
                "dump",
                str(scratch / "dump"),
                "--only",
                part,
            ],
            cwd=work,
            env=environment,
            stdout=stream,
            stderr=stream,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"the dump of {part} failed:\n{log.read_text(errors='replace')[-4000:]}")


def _dumper_files() -> list[Path]:
    files = []
    for name in DUMPER:
        path = ROOT / name
        files += [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sorted(file for file in files if "__pycache__" not in file.parts)


def _commit_of_working_tree() -> str:
    """A commit of the files as they are, which no branch knows and whose index is a copy."""
    with tempfile.TemporaryDirectory() as scratch:
        index = Path(scratch) / "index"
        shutil.copyfile(_git("rev-parse", "--path-format=absolute", "--git-path", "index"), index)
        environment = os.environ | {"GIT_INDEX_FILE": str(index)}
        _git("add", "--all", environment=environment)
        tree = _git("write-tree", environment=environment)
    identity = {
        f"GIT_{who}_{what}": "golden"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    return _git(
        "commit-tree", tree, "-p", "HEAD", "-m", "working tree", environment=os.environ | identity
    )


def _git(*arguments: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
