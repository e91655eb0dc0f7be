"""Nights of other commits, each in a folder of its own, to find the one that changed the bits."""

import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rpg.errors import UserError
from rpg.report.run_digests import causes, ledger, named_as
from rpg.store.atomic_files import read_json_object
from rpg.system.processes import owner_mark, python_module

Record = dict[str, Any]
NightOf = Callable[[Path, Sequence[str]], Record]
"""The record of a night with the code of a folder, of the sweeps of these labels."""


class NoNight(UserError):
    """The code of a folder has run no whole night."""


def night_of(
    tree: Path,
    labels: Sequence[str],
    module: str,
    folder: Path,
    cache: Path,
    overrides: Mapping[str, Any],
) -> Record:
    """Run `python -m module nightly` with the code in `tree`; its data folder shares only the
    cache. Raises NoNight."""
    root = Path(__file__).resolve().parents[1]
    if folder.resolve().is_relative_to(root):
        folder = tree / folder.resolve().relative_to(root)
    theirs = ("PREFECT_", "RPG_FLOW_RUN")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rpg-night-") as home:
        (Path(home) / "cache").symlink_to(cache)
        options = [f"--only={label}" for label in labels]
        options += [f"--set={name}={json.dumps(value)}" for name, value in overrides.items()]
        done = subprocess.run(
            python_module(module, "nightly", folder, "--home", home, *options),
            env={**ours, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **owner_mark()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        record = next(iter((Path(home) / "nightly").rglob("*.json")), None)
        if record is None:
            raise NoNight((done.stderr.splitlines() or ["?"])[-1])
        night = read_json_object(record)
    failed = night["failed"]
    if failed:
        raise NoNight(f"{len(failed)} runs failed, {' '.join(next(iter(failed.items()))).strip()}")
    return night


def blame(
    tonight: Record, before: Mapping[str, Any], root: Path, night: NightOf | None
) -> tuple[str, bool]:
    """(what changed the numbers since the night `before`, whether that excuses them: today's
    environment, which is another one, gives them with that night's commit, too). Runs that commit
    and those after it; where there is none to run, the cause stays unknown. Of a set outside the
    checkout every commit runs tonight's files.
    """
    before = named_as(tonight, before)
    commit = str(before.get("revision") or "")
    if _same(tonight, before):
        return "everything that both nights have is equal", False
    if night is None or not (root / ".git").exists():
        return f"cause unknown: {root} is not a git checkout, so earlier code cannot be run", False
    if not commit or commit.endswith("+"):
        return (
            f"cause unknown: the code of night {before['night']} was not committed, so it cannot "
            "be run again",
            False,
        )
    try:
        with _worktree(root, commit) as tree:
            settled = night(tree, _changed(tonight, before))
            if _same(tonight, settled):
                what = (
                    "configuration"
                    if "the configuration" in causes(tonight, before)
                    else "environment"
                )
                other = (
                    tonight["environment"] != before["environment"]
                    and not ledger(tonight, before).gone
                )
                why = f"gives tonight's numbers, too: the {what} changed them, not the code"
                return f"commit {commit[:10]} {why}", other and what == "environment"
            too = "" if _same(settled, before) else "; the environment changes numbers, too"
            return _commit(tonight, settled, commit, tree, night) + too, False
    except subprocess.CalledProcessError as error:
        why = [*str(error.stderr or error.stdout).strip().splitlines(), str(error)][0]
        return f"cause unknown: git: {why}", False
    except (NoNight, OSError) as error:
        return f"cause unknown: commit {commit[:10]} does not run here: {error}", False


def _commit(tonight: Record, settled: Record, commit: str, tree: Path, night: NightOf) -> str:
    """Which commit since `commit`, whose night is `settled`, made the numbers of tonight."""
    head = str(tonight.get("revision") or "")
    labels = _changed(tonight, settled)[:1]
    if head == commit:
        return f"commit {commit[:10]} gives other numbers when it is run again: not deterministic"

    def is_good() -> bool:
        return _same(night(tree, labels), settled)

    if head.endswith("+"):
        _git(tree, "checkout", "-q", head.rstrip("+"))
        if is_good():
            return "uncommitted changes are the cause"
    output = _git(tree, "bisect", "start", head.rstrip("+"), commit)
    while "is the first bad commit" not in output:
        try:
            verdict = "good" if is_good() else "bad"
        except NoNight:
            verdict = "skip"
        output = _git(tree, "bisect", verdict)
    first = _git(tree, "show", "-s", "--format=%h (%an: %s)", output.split()[0]).strip()
    return f"commit {first} is the cause, found by running sweep {labels[0]} at commits in between"


def _same(record: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    diff = ledger(record, other)
    return not diff.change and not diff.reported


def _changed(tonight: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """The sweeps that differ between two nights, the quickest first; the quickest of all if it is
    none of them."""
    seconds = _seconds(tonight)
    quickest_first = sorted(seconds, key=lambda label: (seconds[label], label))
    changed = set(map(_sweep_of, ledger(tonight, before).reported))
    for run, digests in tonight["digests"].items():
        if digests != before["digests"].get(run, digests):
            changed.add(_sweep_of(run))
    return [label for label in quickest_first if label in changed] or quickest_first[:1]


def _seconds(night: Mapping[str, Any]) -> Counter[str]:
    """What the steps of each sweep took, all runs together."""
    seconds: Counter[str] = Counter()
    for run, digests in night["digests"].items():
        variant = run.rpartition(" / ")[0]
        of_step = night["values"].get(f"{variant} / seconds_step", 1.0)
        seconds[_sweep_of(run)] += len(digests["steps"]) * of_step
    return seconds


def _sweep_of(name: str) -> str:
    """`losses` of `losses / grpo / seed 0`."""
    return name.partition(" / ")[0]


@contextmanager
def _worktree(root: Path, commit: str) -> Iterator[Path]:
    """The files of a commit in a folder of their own, which git forgets afterwards."""
    with tempfile.TemporaryDirectory(prefix="rpg-commit-") as folder:
        tree = Path(folder) / "tree"
        _git(root, "worktree", "prune")
        _git(root, "worktree", "add", "-q", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout
