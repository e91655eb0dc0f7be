"""Any trainer's run, written into our own run folders while it trains: what `rpg.record` returns.

The folder is the one that an import writes (rpg.interop.importing.imported_runs), with what a live
run has besides: a lease, an attempt for each start, provenance, FAILED.json. Killed at any moment,
it has every step that was logged; started again, it goes on in the same folder, and a step that is
logged again replaces what an earlier attempt logged.
"""

import contextlib
import hashlib
import json
import math
import os
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rpg.interop.importing.imported_runs import benchmark_name, register, run_of, write_scores
from rpg.interop.importing.trainer_logs import (
    COUNTED,
    TRL,
    VERL,
    LogError,
    columns_of,
    is_number,
    rollouts,
)
from rpg.store import run_provenance, run_writer
from rpg.store.current import RECORDED, current_runs, scores_of
from rpg.store.layout import Layout
from rpg.store.locks import BEAT_SECONDS
from rpg.store.run_folder import RunFolder, is_step
from rpg.store.samples import CLUSTER, EVAL_COLUMNS, read_eval, write_eval

_DEFAULTS = {"answer": "", "extracted": None, "reason": "", "tokens": 0, "truncated": False}
_NAMES = {**{f"train/{name}": ours for name, ours in TRL.items()}, **VERL, **TRL}
"""Names of TRL and verl -> ours; TRL's tracker puts `train/` before its own."""
_OWN = COUNTED - {"optimizer_step"}
"""What is counted here, whatever a trainer counts."""


class Recording:
    """A run of any trainer, recorded live in the sweep of this name, which may be new, or have runs
    of ours.

        with rpg.record("my-sweep", variant="my loop", seed=0) as run:
            for step in range(run.last_step + 1, 101):
                run.log(step, reward=..., loss=...)

    An exception that leaves the block makes the run `failed`, Ctrl-C or a kill `interrupted`, the
    end of the block `done`.

    algorithm: its name in the catalogue. axes: {field: value}, in a sweep with axes. spec:
    settings, kept as given. steps: how many are planned. updates: the trainer's steps per rollout,
    which become one step here. names: {the trainer's name of a metric: ours}. baseline: the variant
    that others are compared with, in a sweep without one. home: the data folder.

    Raises LogError: a name or number cannot be used, or a run that came in another way has this
    variant and seed.
    """

    def __init__(
        self,
        sweep: str,
        *,
        variant: str,
        seed: int = 0,
        algorithm: str | None = None,
        axes: Mapping[str, Any] | None = None,
        spec: Mapping[str, Any] | None = None,
        steps: int | None = None,
        updates: int = 1,
        names: Mapping[str, str] | None = None,
        baseline: str | None = None,
        home: str | Path | None = None,
    ):
        if not variant.strip() or not is_step(seed):
            why = (
                f"rpg.record: variant {variant!r}, seed {seed!r}; expected a name and a whole "
                "number from 0"
            )
            raise LogError(why)
        if not is_step(updates) or updates < 1:
            raise LogError(f"rpg.record: updates {updates!r}; expected a whole number from 1")
        self._layout = Layout.at(home)
        self.folder: RunFolder = run_of(self._layout, RECORDED, sweep, variant, seed)
        self.updates, self._names, self._baseline = updates, dict(names or {}), baseline
        source = str(Path(sys.argv[0] or ".").resolve())
        self._manifest: dict[str, Any] = {
            "variant": variant,
            "seed": seed,
            "algorithm": algorithm or variant,
            "axes": dict(axes or {}),
            "spec": _plain(spec or {}),
            "steps": steps or 0,
            "imported": {"from": RECORDED, "file": source, "updates": updates},
        }
        self._planned = steps or 0
        self._rows: dict[int, dict[str, Any]] = {}
        self._told: set[str] = set()
        self._over = threading.Event()
        self._attempt = self.last_step = 0
        self.idle = (os.environ.get("RANK") or "0") != "0"
        """In all but the first process of a distributed training nothing is written."""

    def __enter__(self) -> Self:
        """Raises StoreError: another live process records this run. LogError: it was trained here,
        or imported."""
        if not self.idle:
            run_writer.claim_run(self.folder)
        earlier = self.folder.read_metrics()
        self.last_step = earlier[-1]["step"] if earlier else 0
        if self.idle:
            return self
        self._attempt = self.folder.next_attempt()
        if self.folder.manifest_path.exists():
            was = self.folder.read_manifest()
            self._manifest |= {"created": was["created"], "benchmarks": was.get("benchmarks", [])}
        self._manifest["steps"] = max(self._planned, self.last_step)
        register(self._layout, self.folder, self._manifest, baseline=self._baseline)
        self.folder.done_path.unlink(missing_ok=True)
        run_provenance.write(self.folder, self._attempt)
        self._started = time.time()
        threading.Thread(
            target=self._beat, daemon=True, name=f"heartbeat of {self.folder.name}"
        ).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._over.set()
        if self.idle:
            return
        if error is None:
            rows = self.folder.read_metrics()
            self._write(steps=rows[-1]["step"] if rows else 0)
            attempts = self.folder.attempts()
            if self._rows and rows and rows[-1]["step"] > (last := self._last()):
                later = f"steps {last + 1} to {rows[-1]['step']}"
                self._say(f"{later} are of an earlier attempt, which went further")
            seconds = sum(row["seconds_step"] for row in rows if is_number(row.get("seconds_step")))
            seconds = seconds or time.time() - self._started
            run_writer.write_done(self.folder, seconds=seconds, attempts=len(attempts))
        elif isinstance(error, Exception):
            step = self._last() if self._rows else None
            run_writer.write_failed(self.folder, f"{type(error).__name__}: {error}", step=step)
        else:
            run_writer.release_run(self.folder)

    # --- what a trainer calls

    def log(self, step: int, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Append one step's metrics. Names of ours, of TRL and of verl get their meaning here
        (docs/other-trainers.md); any other number keeps its name. More values for the step last
        logged are added to it.

        step: the trainer's own, from 0; with `updates`, that number of them is one step here. None
        stands for NaN, which is what TRL makes of it. What is no number is left out, with a
        warning. Raises LogError: the step is no whole number. StoreError: the file cannot be
        written.
        """
        _check("log", step)
        if self.idle:
            return
        if not self._attempt or self._over.is_set():
            why = (
                "run.log: nothing is being recorded; call it within `with rpg.record(...) as run:`"
            )
            raise LogError(why)
        rollout = math.ceil(step / self.updates)
        self._rows = {
            old: row for old, row in self._rows.items() if math.ceil(old / self.updates) == rollout
        }
        self._rows.setdefault(step, {"step": step}).update(self._ours({**(values or {}), **more}))
        merged = [*self._rows.values()]
        row = merged[-1] if self.updates == 1 else rollouts(merged, self.updates)[-1]
        run_writer.append_metrics(self.folder, self._attempt, row)

    def evaluate(self, benchmark: str, step: int, samples: Iterable[Mapping[str, Any]]) -> Path:
        """Store the graded samples of a checkpoint: rows with `problem`, `response` and `correct`,
        and what there is of the other columns of `samples` (docs/database.md), `cluster` among
        them. Without `problem_id`, a problem has the id of the same text in the sweep's other runs,
        with which it is paired. Returns the file.

        Raises LogError: a row lacks one of the three, or has a column that is none of these; or as
        `log`.
        """
        _check("evaluate", step)
        ids = self._ids(benchmark_name(benchmark))
        counts = Counter[str]()
        rows = []
        samples = list(samples)
        accepted = [*EVAL_COLUMNS, CLUSTER]
        defaults = dict(_DEFAULTS)
        if any(CLUSTER in sample for sample in samples):
            defaults[CLUSTER] = None
        for number, sample in enumerate(samples):
            missing = sorted({"problem", "response", "correct"} - sample.keys())
            if missing or (unknown := sorted(sample.keys() - set(accepted))):
                what = (
                    f"lacks {', '.join(missing)}"
                    if missing
                    else f"has unknown {', '.join(unknown)}"
                )
                why = (
                    f"run.evaluate: {benchmark}: row {number} {what}; accepted: "
                    f"{', '.join(accepted)}"
                )
                raise LogError(why)
            text = str(sample["problem"])
            name = ids.setdefault(text, hashlib.sha256(text.encode()).hexdigest()[:12])
            name = str(sample.get("problem_id", name))
            row = {**defaults, "sample": counts[name], **sample, "problem_id": name}
            rows.append({**row, "correct": bool(sample["correct"])})
            counts[name] += 1
        if len(set(counts.values())) != 1:
            sizes = " or ".join(map(str, sorted(set(counts.values())))) or "no"
            why = (
                f"run.evaluate: {benchmark}: {sizes} samples per problem; expected as many of each"
            )
            raise LogError(why)
        if not self.idle:
            write_eval(self.folder, benchmark, step, rows)
            self._evaluated(benchmark)
        return self.folder.eval_path(benchmark, step)

    def score(self, benchmark: str, step: int, accuracy: float) -> None:
        """Store an accuracy (0 to 1) on a benchmark whose samples are not at hand. Raises LogError:
        as `evaluate`."""
        if not is_number(accuracy) or not 0 <= accuracy <= 1:
            raise LogError(
                f"run.score: {benchmark}: {accuracy!r}; expected an accuracy from 0 to 1"
            )
        _check("score", step)
        benchmark_name(benchmark)
        if self.idle:
            return
        scores = scores_of(self.folder)
        scores.setdefault(benchmark, {})[str(step)] = float(accuracy)
        write_scores(self.folder, scores)
        self._evaluated(benchmark)

    def describe(self, spec: Mapping[str, Any], steps: int | None = None) -> None:
        """Put the trainer's settings, as they were given, and the number of steps into the
        manifest."""
        self._planned = steps or self._planned
        self._write(spec=_plain(spec), steps=max(self._planned, self.last_step))

    # --- inside

    def _last(self) -> int:
        return math.ceil(max(self._rows) / self.updates)

    def _ours(self, values: Mapping[str, Any]) -> dict[str, float]:
        """The values under our names; metrics whose name is already used are prefixed with
        `their_`."""
        numbers: dict[str, float] = {}
        for name, value in values.items():
            number = self._number(name, value)
            if number is not None:
                numbers[name] = number
        columns = columns_of(_NAMES, numbers)
        ours = {theirs: name for name, theirs in columns.items()} | self._names
        # Names that we know come first: they take theirs before another column does.
        known = [name for name in numbers if name in ours]
        others = [name for name in numbers if name not in ours]
        row: dict[str, float] = {}
        for name in [*known, *others]:
            target = ours.get(name, name)
            if target in _OWN or target.lower() in {taken.lower() for taken in row}:
                target = f"their_{target}"
            row[target] = numbers[name]
        return row

    def _number(self, name: str, value: Any) -> float | None:
        if value is None:
            return math.nan
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            if not isinstance(value, str | bytes):
                number = value.item() if hasattr(value, "item") else value
                plain = isinstance(number, int | float) and not isinstance(number, bool)
                return number if plain else float(number)
        if name not in self._told:
            self._told.add(name)
            self._say(f"not recorded: {name}, which is not a number ({type(value).__name__})")
        return None

    def _say(self, line: str) -> None:
        with self.folder.log_path.open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        warnings.warn(f"{self.folder.sweep}/{self.folder.name}: {line}", stacklevel=4)

    def _ids(self, benchmark: str) -> dict[str, str]:
        """Problem -> id, of the samples that the sweep's other runs have."""
        for folder in current_runs(self._layout, self.folder.sweep):
            for step in folder.eval_steps(benchmark)[:1]:
                columns = (
                    read_eval(folder, benchmark, step).select(["problem", "problem_id"]).to_pydict()
                )
                return dict(zip(columns["problem"], columns["problem_id"], strict=True))
        return {}

    def _evaluated(self, benchmark: str) -> None:
        self._write(benchmarks=sorted({*self._manifest.get("benchmarks", []), benchmark}))
        register(self._layout, self.folder, self._manifest, baseline=self._baseline)

    def _write(self, **changed: Any) -> None:
        if self.idle:
            return
        self._manifest |= {**self.folder.read_manifest(), **changed}
        run_writer.write_manifest(self.folder, self._manifest)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with contextlib.suppress(Exception):  # a full disk: what is logged says so
                run_writer.renew_lease(self.folder)


record = Recording


def _check(call: str, step: object) -> None:
    if not is_step(step):
        raise LogError(f"run.{call}: step {step!r}; expected a whole number from 0")


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON; what JSON lacks becomes text."""
    return dict(json.loads(json.dumps(dict(spec), default=str)))
