"""The folder of one run: the paths of its files and their contents (run_writer writes them).
Schemas: docs/database.md."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rpg.store import lease as leases
from rpg.store.atomic_files import StoreError, read_json_object, readable
from rpg.store.file_records import (
    CHANGED,
    DIGEST,
    FileRecord,
    Records,
    changed,
    is_as_written,
    is_cut_off,
    read_records,
)
from rpg.store.live_status import EVALUATION, TRAINING, progress_line, read_progress
from rpg.store.locks import whereabouts
from rpg.system.processes import is_here

FORMAT = 1
State = Literal["pending", "running", "done", "failed", "interrupted"]

UNREADABLE = "unreadable"
"""In the database and in tables: this user may not read the folder."""

MANIFEST_FIELDS = "format sweep run run_id variant algorithm seed spec created steps".split()
IMPORTED = "imported.json"
"""In the folder of a run that was trained elsewhere: {"scores": {benchmark: {step: accuracy}}}."""
_STEP = re.compile(r"step-(\d+)")
_METRICS = re.compile(r"metrics-(\d+)\.jsonl")


def folder_name(value: str, what: str) -> str:
    """The name, checked to be a single path component, so that it cannot lead out of the data
    folder."""
    if not value or value.startswith(".") or "/" in value or "\0" in value:
        why = f"{what} name {value!r}: expected a folder name without '/' and without a leading '.'"
        raise StoreError(why)
    return value


def by_clock(metric: str) -> bool:
    """Whether a metric is measured with a clock, or counts attempts, so that it is never equal in
    two runs."""
    return metric in ("time", "attempt", "tokens_per_second") or metric.startswith("seconds")


def step_name(step: int) -> str:
    return f"step-{step:06d}"


def eval_name(benchmark: str, step: int) -> str:
    """The file of an evaluation within the run's folder."""
    return f"evals/{benchmark}/{step_name(step)}.parquet"


@dataclass(frozen=True)
class Judged:
    """A JSON object, None where there is none or it cannot be read; and why it cannot be used, in a
    few words."""

    value: dict[str, Any] | None
    why: str | None


def read_judged(path: Path) -> Judged:
    """A JSON object, with what is wrong with it."""
    if not path.exists():
        return Judged(None, None)
    try:
        value = read_json_object(path)
    except StoreError as error:
        return Judged(None, str(error).removeprefix(f"cannot read {path}: "))
    return Judged(value, None if is_as_written(value) else CHANGED)


class Inside:
    """An attribute: the file or folder of this name in the folder that another attribute (`of`)
    names."""

    def __init__(self, name: str, of: str = "path"):
        self.name = name
        self.of = of

    def __get__(self, owner: object, _kind: type) -> Path:
        return Path(getattr(owner, self.of), self.name)


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of a run on disk, each file looked at once."""

    steps: dict[str, list[int]]
    """Benchmark -> steps with an evaluation that is not damaged, ascending."""
    damaged: dict[str, dict[int, str]]
    """Benchmark -> step whose evaluation is damaged -> what is wrong with it."""


@dataclass(frozen=True)
class Inspection:
    """The results of a run on disk."""

    evaluations: Evaluations
    damage: dict[str, str]
    """File -> what is wrong with it."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. Methods raise StoreError, which names the file and the problem."""

    path: Path

    manifest_path = Inside("manifest.json")
    lease_path = Inside("lease.json")
    done_path = Inside("DONE.json")
    failed_path = Inside("FAILED.json")
    log_path = Inside("log.txt")
    checkpoints = Inside("checkpoints")
    reopened_path = Inside("reopened.json")
    """What DONE.json said of files that are not renewed, while a finished run is added to."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def sweep(self) -> str:
        return self.path.parent.name

    def metrics_path(self, attempt: int) -> Path:
        return self.path / f"metrics-{attempt}.jsonl"

    def provenance_path(self, attempt: int) -> Path:
        return self.path / f"provenance-{attempt}.json"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / step_name(step)

    def checkpoint_steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        return _steps(self.checkpoints, "")

    def removed_steps(self) -> set[int]:
        """Steps whose checkpoints were removed to save space; their evaluations are not pending."""
        path = self.checkpoints / "removed.json"
        steps = read_json_object(path).get("steps") if path.exists() else None
        return {step for step in steps if is_step(step)} if isinstance(steps, list) else set()

    def read_manifest(self) -> dict[str, Any]:
        """The manifest without its digest. A manifest that was changed since it was written is
        damaged, as a torn one is."""
        manifest = read_checked(self.manifest_path, MANIFEST_FIELDS)
        if not is_as_written(manifest):
            raise StoreError(f"cannot read {self.manifest_path}: {CHANGED}")
        manifest.pop(DIGEST, None)
        return manifest

    def is_closed(self) -> bool:
        """Whether the folder is there, and this user may not read it."""
        return self.path.exists() and not os.access(self.path, os.R_OK | os.X_OK)

    def attempts(self) -> list[int]:
        """Attempt numbers that have a metrics file, ascending."""
        with readable("list", self.path):
            names = os.listdir(self.path) if self.path.is_dir() else []
        return sorted(int(match[1]) for name in names if (match := _METRICS.fullmatch(name)))

    def next_attempt(self) -> int:
        return (self.attempts() or [0])[-1] + 1

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every step once, ascending: from the highest attempt that wrote it, and within a file
        from its last line.

        An attempt that resumed from a checkpoint rewrites the steps after it; steps of the older
        attempt that it has not rewritten (yet) stay valid. Lines without a step are left out; the
        database counts them.
        """
        steps: dict[int, dict[str, Any]] = {}
        for attempt in self.attempts():
            path = self.metrics_path(attempt)
            with readable("read", path):
                lines = path.read_bytes().split(b"\n")
            for line in lines:
                record = parse_row(line)
                if record is not None:
                    steps[record["step"]] = {**record, "attempt": attempt}
        return [steps[step] for step in sorted(steps)]

    def last_metrics(self) -> list[dict[str, Any]]:
        """The last readable steps of the newest attempt that has any, from its last bytes, oldest
        first."""
        most = 16_384
        for attempt in reversed(self.attempts()):
            path = self.metrics_path(attempt)
            with readable("read", path), open(path, "rb") as handle:
                size = handle.seek(0, os.SEEK_END)
                handle.seek(max(0, size - most))
                lines = handle.read().split(b"\n")[size > most :]
            rows = [row for line in lines if (row := parse_row(line)) is not None]
            if rows:
                return [{"time": 0.0, **row, "attempt": attempt} for row in rows]
        return []

    def eval_path(self, benchmark: str, step: int) -> Path:
        return (
            self.path / "evals" / folder_name(benchmark, "benchmark") / f"{step_name(step)}.parquet"
        )

    def fewer_path(self, benchmark: str, step: int) -> Path:
        """Samples of an evaluation to which the evaluator is to add more."""
        return self.eval_path(benchmark, step).with_suffix(".fewer.parquet")

    def benchmarks(self) -> list[str]:
        """Benchmarks with a folder under evals/, sorted."""
        return folders(self.path / "evals")

    def eval_steps(self, benchmark: str) -> list[int]:
        """Steps whose evaluation is on disk and not damaged, ascending."""
        recorded = self.recorded()
        return [
            step
            for step in self._steps_with_a_file(benchmark)
            if self._damage_of(eval_name(benchmark, step), recorded, seen={}) is None
        ]

    def _steps_with_a_file(self, benchmark: str) -> list[int]:
        return _steps(self.path / "evals" / folder_name(benchmark, "benchmark"), ".parquet")

    def result_files(self) -> list[str]:
        """The files of the run's results: metrics, what they were computed with, evaluations."""
        names = self._files_of_attempts()
        for benchmark in self.benchmarks():
            for step in self._steps_with_a_file(benchmark):
                names.append(eval_name(benchmark, step))
        return names

    def _files_of_attempts(self) -> list[str]:
        names = []
        for attempt in self.attempts():
            names.append(self.metrics_path(attempt).name)
            names.append(self.provenance_path(attempt).name)
        return names

    def recorded(self) -> Records:
        """Files of a run as they were when it ended; {} for a run of an older version. Files that
        came later have no record. A run that was opened again keeps those that it does not renew.
        """
        done = read_judged(self.done_path)
        return self._recorded_by(done)

    def _recorded_by(self, done: Judged) -> Records:
        value = done.value
        if value is None:
            value = read_judged(self.reopened_path).value or {}
        return read_records(value.get("files"))

    def damage(self) -> dict[str, str]:
        """File of this run -> what is wrong with it. A file is damaged if it is not what it was
        when the run ended, or cannot be read at all."""
        return self.inspect().damage

    def inspect(
        self, manifest_is_sound: bool = False, seen: Mapping[str, FileRecord] = {}
    ) -> Inspection:
        """What is there of the run's results, and what of it is damaged. `manifest_is_sound`: the
        caller has just read the manifest; `seen`: files that it has just looked at."""
        damage = {}
        if not manifest_is_sound:
            manifest = read_judged(self.manifest_path)
            if manifest.why:
                damage[self.manifest_path.name] = manifest.why
        done = read_judged(self.done_path)
        if done.why:
            damage[self.done_path.name] = done.why

        recorded = self._recorded_by(done)
        evaluations = self.evaluations(recorded, seen)
        for benchmark, damaged in evaluations.damaged.items():
            damage |= {eval_name(benchmark, step): why for step, why in damaged.items()}
        present = {
            eval_name(name, step) for name in evaluations.steps for step in evaluations.steps[name]
        }
        for name in {*recorded, *self._files_of_attempts()} - present - set(damage):
            why = self._damage_of(name, recorded, seen)
            if why:
                damage[name] = why
        return Inspection(evaluations, dict(sorted(damage.items())))

    def evaluations(
        self, recorded: Records | None = None, seen: Mapping[str, FileRecord] = {}
    ) -> Evaluations:
        """All evaluations on disk. `recorded`: the caller has just read it; `seen`: files that it
        has just looked at."""
        if recorded is None:
            recorded = self.recorded()
        steps: dict[str, list[int]] = {}
        damaged: dict[str, dict[int, str]] = {}
        for benchmark in self.benchmarks():
            steps[benchmark] = []
            damaged[benchmark] = {}
            for step in self._steps_with_a_file(benchmark):
                why = self._damage_of(eval_name(benchmark, step), recorded, seen)
                if why:
                    damaged[benchmark][step] = why
                else:
                    steps[benchmark].append(step)
        return Evaluations(steps, damaged)

    def _damage_of(self, name: str, recorded: Records, seen: Records) -> str | None:
        record = recorded.get(name)
        if record is not None:
            if name in seen and seen[name].sha256 == record.sha256:
                return None
            return changed(record, self.path / name)
        return "is cut off" if name.endswith(".parquet") and is_cut_off(self.path / name) else None

    def lease(self) -> dict[str, Any] | None:
        return leases.read_lease(self.lease_path)

    def holder(self) -> dict[str, Any] | None:
        """The lease of the process that works on this run, by the clock of the storage; for a
        process about to start it."""
        return leases.holder(self.lease_path)

    def elsewhere(self) -> str | None:
        """`running on gpu-node-7 since 2026-03-01 14:03`, if another host or container works on the
        run."""
        lease = self.lease()
        if lease is None or is_here(lease) or not leases.lease_alive(lease):
            return None
        return f"running {whereabouts(lease)}"

    def waiting(self) -> str | None:
        """What this run waits for, according to a live process."""
        note = leases.read_lease(self.path / "waiting.json")
        return str(note.get("why")) if note and leases.lease_alive(note) else None

    def now(self) -> str | None:
        """How far the run is within a long step or the evaluation of a checkpoint; None if there is
        no record."""
        records = (read_progress(self.path / name) for name in (TRAINING, EVALUATION))
        return "; ".join(progress_line(record) for record in records if record) or None

    def read_done(self) -> dict[str, Any] | None:
        return read_json_object(self.done_path) if self.done_path.exists() else None

    def read_failed(self) -> dict[str, Any] | None:
        return read_json_object(self.failed_path) if self.failed_path.exists() else None

    def state(self) -> State:
        """The state by the files: DONE, else a live lease, else FAILED, else whether anything was
        begun. Raises StoreError: this user may not read the folder."""
        with readable("read", self.path):
            if self.done_path.exists():
                return "done"
            lease = self.lease()
            if lease and leases.lease_alive(lease):
                return "running"
            if self.failed_path.exists():
                return "failed"
        return "interrupted" if lease or self.attempts() else "pending"


def is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def parse_row(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and is_step(record.get("step")) else None


def read_checked(path: Path, fields: Iterable[str]) -> dict[str, Any]:
    value = read_json_object(path)
    if value.get("format", FORMAT) != FORMAT:
        why = f"cannot read {path}: format {value['format']!r}, this version reads format {FORMAT}"
        raise StoreError(why)
    missing = [field for field in fields if field not in value]
    if missing:
        raise StoreError(f"cannot read {path}: missing {', '.join(missing)}")
    return value


def unreadable(path: Path) -> str | None:
    """Why a JSON object cannot be used, in a few words; None if it can."""
    return read_judged(path).why


def folders(path: Path) -> list[str]:
    if not path.is_dir():
        return []
    with readable("list", path), os.scandir(path) as entries:
        return sorted(
            entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
        )


def _steps(folder: Path, suffix: str) -> list[int]:
    if not folder.is_dir():
        return []
    with readable("list", folder):
        names = os.listdir(folder)
    matches = (
        _STEP.fullmatch(name.removesuffix(suffix)) for name in names if name.endswith(suffix)
    )
    return sorted(int(match[1]) for match in matches if match)


def pending_evaluations(folder: RunFolder) -> list[tuple[str, int]]:
    """(benchmark, step) pairs of the manifest without samples, steps ascending; damaged samples do
    not count. Checkpoints that were removed on purpose, after they were evaluated, have no pending
    evaluations, unless one is damaged and the training can be repeated to the bit. Raises
    StoreError: no readable manifest."""
    manifest = folder.read_manifest()
    benchmarks = manifest["benchmarks"]
    evaluations = folder.evaluations()
    present = {name: set(evaluations.steps.get(name, [])) for name in benchmarks}
    removed = folder.removed_steps() - set(folder.checkpoint_steps())
    if removed and _is_repeatable(manifest):
        for name in benchmarks:
            removed -= set(evaluations.damaged.get(name, {}))
    steps = [step for step in manifest["eval_steps"] if step not in removed]
    return [(b, step) for step in steps for b in benchmarks if step not in present[b]]


def _is_repeatable(manifest: Mapping[str, Any]) -> bool:
    """Whether training again gives the same bits."""
    backend = manifest["spec"].get("backend", {})
    return (backend.get("type", "local"), backend.get("device", "cpu")) == ("local", "cpu")
