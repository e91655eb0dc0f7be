"""What the runs of a table were computed with, and what to say when it is not the same for all of them.

A trainer writes `provenance-<n>.json` (rpg.provenance.record) before the metrics of its attempt n, so a run that was
resumed after an upgrade has two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rpg import provenance
from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object
from rpg.store.run_folder import RunFolder

Record = Mapping[str, Any]
"""What rpg.provenance.record made; empty for an attempt of which nobody knows."""

UNKNOWN = "unknown"
"""Stands for the code of runs that were trained before it was recorded."""
_NAMED = 3


def write(folder: RunFolder, attempt: int, packages: Sequence[str] = ()) -> None:
    """Keep what attempt `attempt` computes with: the files this process has imported, or all of some `packages`."""
    sources = provenance.below(*packages) if packages else provenance.loaded()
    atomic_write_json(folder.provenance_path(attempt), provenance.record(sources))


def read(folder: RunFolder, attempt: int) -> dict[str, Any]:
    """The record of an attempt, {} where there is none.

    Raises:
        StoreError: it cannot be read.
    """
    path = folder.provenance_path(attempt)
    found = read_json_object(path) if path.exists() else {}
    if found and not isinstance(found.get("sources"), dict):
        raise StoreError(f"cannot read {path}: sources must be an object of files and digests")
    return found


def records(folder: RunFolder) -> list[dict[str, Any]]:
    """Those of all attempts that have metrics, oldest first."""
    return [read(folder, attempt) for attempt in folder.attempts()]


def readable_records(folder: RunFolder) -> list[dict[str, Any]]:
    """The same for who only looks: one that cannot be read is not known."""
    try:
        return records(folder)
    except StoreError:
        return [{} for _ in folder.attempts()]


def outdated(folder: RunFolder) -> dict[str, Any] | None:
    """{code, files}: by which other code than today's a run was trained, in part at least; None if by none.

    `files` are those that have changed since; none where it is not known what the run was trained by.
    """
    for one in records(folder):
        if not one:
            return {"code": UNKNOWN, "files": []}
        files = provenance.changed(one["sources"])
        if files:
            return {"code": one["code"], "files": files}
    return None


def of_other_code(folders: Iterable[RunFolder]) -> tuple[list[str], list[str]]:
    """(runs that other code than today's has trained, files that have changed since)."""
    return _other_code({folder.name: readable_records(folder) for folder in folders})


def said_of_other_code(folders: Iterable[RunFolder]) -> list[str]:
    """A line about `of_other_code`; none where today's code has trained them all, or where it is not recorded."""
    return _said_of_other_code({folder.name: readable_records(folder) for folder in folders})


def said(folders: Iterable[RunFolder]) -> list[str]:
    """All there is to say about what some runs were computed with, from their files."""
    found = {folder.name: readable_records(folder) for folder in folders}
    return [*differences(found), *_said_of_other_code(found)]


def _other_code(runs: Mapping[str, Sequence[Record]]) -> tuple[list[str], list[str]]:
    seen: dict[str, list[str]] = {}
    others, files = [], set()
    for run, records_of in runs.items():
        found = []
        for one in records_of:
            code = one.get("code", UNKNOWN)
            if code not in seen:
                seen[code] = provenance.changed(one["sources"]) if one else [UNKNOWN]
            found += seen[code]
        if found:
            others.append(run)
            files |= set(found) - {UNKNOWN}
    return others, sorted(files)


def _said_of_other_code(records_of: Mapping[str, Sequence[Record]]) -> list[str]:
    runs, files = _other_code(records_of)
    if not files:
        return []
    return [
        f"trained by other code than today's: {_some(runs, 'runs')}; {_some(files)} "
        f"{'has' if len(files) == 1 else 'have'} changed since; rpg sweep --fresh trains them again"
    ]


def reason(found: Mapping[str, Any]) -> str:
    """Why a run is superseded that `rpg sweep --fresh` has set aside: `code=1a2b3c4d, now other: rpg/losses/...`."""
    files = found.get("files") or []
    return f"code={found.get('code')}, now {f'other: {_some(files)}' if files else 'recorded'}"


def differences(runs: Mapping[str, Sequence[Record]]) -> list[str]:
    """What a reader should know of runs that stand in one table: a line each for code, revisions, pins and machines.

    `runs` maps names to the records of their attempts. Two runs are computed by the same code when the files that both
    import are the same; which ones a run imports depends on its settings.
    """
    known = {run: [one for one in found if one] for run, found in runs.items()}
    known = {run: found for run, found in known.items() if found}
    if not known:
        return []
    lines = []
    nothing = [run for run in runs if runs[run] and not all(runs[run])]
    if nothing:
        lines.append(
            f"it is not recorded by which code {_some(nothing, 'runs')} {_was(nothing)} trained (by an earlier version)"
        )
    files = _differing([one["sources"] for found in known.values() for one in found])
    if files:
        groups = _groups(known, lambda one: tuple(one["sources"].get(name) for name in files), _version)
        lines.append(
            f"trained by different code: {_listed(groups)}; {_some(files)} "
            f"{'differs' if len(files) == 1 else 'differ'}; rpg sweep --fresh trains again what older code has trained"
        )
    else:
        groups = _groups(known, lambda one: one.get("git_revision"), _revision)
        if len(groups) > 1:
            lines.append(
                f"trained at different git revisions: {_listed(groups)}; the code that a training imports is the same"
            )
    for name in provenance.PINS:
        groups = {f"{name} {version}": found for version, found in _versions(known, name).items()}
        if len(groups) > 1:
            lines.append(f"trained with different versions of {name}: {_listed(groups)}")
    groups = _groups(known, _processor, _processor)
    if len(groups) > 1:
        lines.append(
            f"trained on different machines, whose numbers may differ in the last digits: {_listed(groups)}"
        )
    return lines


def _differing(found: Iterable[Mapping[str, str]]) -> list[str]:
    """Files of which there are several versions."""
    seen: dict[str, set[str]] = {}
    for sources in found:
        for name, digest in sources.items():
            seen.setdefault(name, set()).add(digest)
    return sorted(name for name, digests in seen.items() if len(digests) > 1)


def _groups(runs: Mapping[str, Sequence[Record]], key: Any, label: Any) -> dict[str, list[str]]:
    """Label -> runs with an attempt of that key; an attempt at a time, so a run of two codes is in both."""
    labels: dict[Any, str] = {}
    groups: dict[str, list[str]] = {}
    for run, found in runs.items():
        for one in found:
            name = labels.setdefault(key(one), label(one))
            if run not in groups.setdefault(name, []):
                groups[name].append(run)
    return groups


def _versions(runs: Mapping[str, Sequence[Record]], package: str) -> dict[str, list[str]]:
    have = {run: [one for one in found if package in one.get("versions", {})] for run, found in runs.items()}
    return _groups(have, lambda one: one["versions"][package], lambda one: one["versions"][package])


def _version(one: Record) -> str:
    return f"{one['code']} ({_revision(one)})"


def _revision(one: Record) -> str:
    revision = str(one.get("git_revision") or "")
    return f"commit {revision[:10]}{'+' * revision.endswith('+')}" if revision else "no git checkout"


def _processor(one: Record) -> str:
    machine = one.get("machine", {})
    return str(machine.get("gpu") or machine.get("processor") or "?")


def _listed(groups: Mapping[str, Sequence[str]]) -> str:
    """`1a2b3c4d (commit ...): run, run and 3 more runs; 5e6f7a8b ...`, the group with most runs last."""
    ordered = sorted(groups.items(), key=lambda item: len(item[1]))
    return "; ".join(f"{name}: {_some(runs, 'runs')}" for name, runs in ordered)


def _some(names: Sequence[str], what: str = "files") -> str:
    rest = len(names) - _NAMED
    if rest <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {rest} more {what}"


def _was(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"
