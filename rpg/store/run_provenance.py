"""What the runs of a table were computed with, and notes for the reader if that differs between
them.

A trainer writes `provenance-<n>.json` (rpg.system.provenance.record) before the metrics of its
attempt n, so a run that was resumed after an upgrade has two of these files.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object
from rpg.store.run_folder import RunFolder
from rpg.system import provenance

Record = Mapping[str, Any]
"""The result of rpg.system.provenance.record; empty for an attempt without a record."""

UNKNOWN = "unknown"
"""The code of runs that were trained before code was recorded."""
_NAMED = 3


def write(folder: RunFolder, attempt: int, packages: Sequence[str] = ()) -> None:
    """Record what this attempt computes with: the files this process has imported, or all files of
    `packages`."""
    sources = provenance.below(*packages) if packages else provenance.loaded()
    atomic_write_json(folder.provenance_path(attempt), provenance.record(sources))


def read(folder: RunFolder, attempt: int) -> dict[str, Any]:
    """The record of an attempt, {} if there is none. Raises StoreError: it cannot be read."""
    path = folder.provenance_path(attempt)
    record = read_json_object(path) if path.exists() else {}
    if record and not isinstance(record.get("sources"), dict):
        raise StoreError(f"cannot read {path}: sources must be an object of files and digests")
    return record


def records(folder: RunFolder) -> list[dict[str, Any]]:
    """The records of all attempts that have metrics, oldest first."""
    return [read(folder, attempt) for attempt in folder.attempts()]


def recorded(folders: Iterable[RunFolder]) -> dict[str, list[dict[str, Any]]]:
    """Run -> the same; empty records if one of them cannot be read. A run whose folder this user
    may not read is left out."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for folder in folders:
        with suppress(StoreError):
            runs[folder.name] = [{} for _ in folder.attempts()]
            runs[folder.name] = records(folder)
    return runs


def provenance_notes(folders: Iterable[RunFolder]) -> list[str]:
    """All notes about what some runs were computed with, from their files."""
    runs = recorded(folders)
    return [*differences(runs), *other_code_notes(runs)]


def of_other_code(runs: Mapping[str, Sequence[Record]]) -> tuple[list[str], list[str]]:
    """(runs that were trained by older code, files that have changed since)."""
    seen: dict[str, list[str]] = {}
    others = []
    files = set()
    for run, attempts in runs.items():
        changed = []
        for record in attempts:
            code = record.get("code", UNKNOWN)
            if code not in seen:
                seen[code] = provenance.changed(record["sources"]) if record else [UNKNOWN]
            changed += seen[code]
        if changed:
            others.append(run)
            files |= set(changed) - {UNKNOWN}
    return others, sorted(files)


def other_code_notes(runs: Mapping[str, Sequence[Record]]) -> list[str]:
    """A line about `of_other_code`; none if today's code trained them all, or the code is not
    recorded."""
    older, files = of_other_code(runs)
    if not files:
        return []
    return [
        f"trained by older code: {_some(older, 'runs')}; {_some(files)} "
        f"{'has' if len(files) == 1 else 'have'} changed since; to train a run again, remove it "
        "(rpg rm)"
    ]


def differences(runs: Mapping[str, Sequence[Record]]) -> list[str]:
    """What a reader should know about the runs of one table: a line each for code, revisions,
    packages and machines.

    `runs` maps names to the records of their attempts. Two runs are computed by the same code when
    the files that both import are the same; which ones a run imports depends on its settings.
    """
    recorded = {run: [record for record in attempts if record] for run, attempts in runs.items()}
    recorded = {run: attempts for run, attempts in recorded.items() if attempts}
    if not recorded:
        return []
    lines = []
    unrecorded = [run for run in runs if runs[run] and not all(runs[run])]
    if unrecorded:
        line = (
            f"no record of the code that trained {_some(unrecorded, 'runs')} (by an earlier "
            "version)"
        )
        lines.append(line)
    versions = {
        version
        for of_run in recorded.values()
        for record in of_run
        for version in record["sources"].items()
    }
    counts = Counter(name for name, _ in versions)
    files = sorted(name for name, count in counts.items() if count > 1)
    if files:
        groups = _groups(
            recorded,
            lambda record: tuple(record["sources"].get(name) for name in files),
            lambda record: f"{record['code']} ({_revision(record)})",
        )
        lines.append(
            f"trained by different code: {_listed(groups)}; {_some(files)} "
            f"{'differs' if len(files) == 1 else 'differ'}; to train a run again, remove it "
            "(rpg rm)"
        )
    else:
        groups = _groups(recorded, lambda record: record.get("git_revision"), _revision)
        if len(groups) > 1:
            lines.append(
                f"trained at different git revisions: {_listed(groups)}; the code that "
                "training imports is the same"
            )
    labels: dict[str, Callable[[Record], str | None]] = {
        f"with different versions of {name}": partial(_version, name) for name in provenance.PINS
    }
    labels["on different machines, whose numbers may differ in the last digits"] = _processor
    alike = {how: _groups(recorded, label, label) for how, label in labels.items()}
    return lines + [
        f"trained {how}: {_listed(groups)}" for how, groups in alike.items() if len(groups) > 1
    ]


def _groups(runs: Mapping[str, Sequence[Record]], key: Any, label: Any) -> dict[str, list[str]]:
    """Label -> runs with an attempt of that key; a run with two kinds of attempts is in both
    groups, one without in none."""
    labels: dict[Any, str] = {}
    groups: dict[str, list[str]] = {}
    for run, attempts in runs.items():
        for record in attempts:
            name = labels.setdefault(key(record), label(record))
            if name is not None and run not in groups.setdefault(name, []):
                groups[name].append(run)
    return groups


def _version(package: str, record: Record) -> str | None:
    version = record.get("versions", {}).get(package)
    return version and f"{package} {version}"


def _revision(record: Record) -> str:
    revision = str(record.get("git_revision") or "")
    if not revision:
        return "no git checkout"
    edited = "+" if revision.endswith("+") else ""
    return f"commit {revision[:10]}{edited}"


def _processor(record: Record) -> str:
    machine = record.get("machine", {})
    return str(machine.get("gpu") or machine.get("processor") or "?")


def _listed(groups: Mapping[str, Sequence[str]]) -> str:
    """`1a2b3c4d (commit ...): run, run and 3 more runs; 5e6f7a8b ...`, the group with most runs
    last."""
    ordered = sorted(groups.items(), key=lambda item: len(item[1]))
    return "; ".join(f"{name}: {_some(runs, 'runs')}" for name, runs in ordered)


def _some(names: Sequence[str], what: str = "files") -> str:
    unnamed = len(names) - _NAMED
    if unnamed <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {unnamed} more {what}"
