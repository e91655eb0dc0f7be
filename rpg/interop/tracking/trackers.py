"""The trackers behind one interface (open a run, log records, close), and the records that they are
sent.

Their packages are imported when they are used.
"""

import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Protocol

from rpg.config.section import registered
from rpg.config.tracking import (
    TRACKERS,
    MlflowTracker,
    TrackerSection,
    WandbTracker,
)
from rpg.errors import UserError, install_command
from rpg.store.current import flat, scores_of
from rpg.store.run_folder import RunFolder
from rpg.store.samples import read_eval

_NOT_MEASURED = ("step", "attempt", "time")


@dataclass(frozen=True)
class Record:
    """Numbers of one step. `key` identifies the record, which is sent once."""

    key: str
    step: int
    time: float
    values: dict[str, float]


def records(folder: RunFolder, sent: set[str]) -> Iterator[Record]:
    """Steps and evaluations on disk whose keys are not in `sent`, without values that are not
    finite numbers. Raises StoreError: a file cannot be read.
    """
    last = 0.0
    for row in folder.read_metrics():
        last = row.get("time", last)
        key = f"step {row['step']}"
        if key not in sent:
            values = {
                name: x for name, x in row.items() if name not in _NOT_MEASURED and _finite(x)
            }
            yield Record(key, row["step"], last, values)
    for benchmark in folder.benchmarks():
        for step in folder.eval_steps(benchmark):
            key = f"{benchmark} {step}"
            if key not in sent:
                changed = folder.eval_path(benchmark, step).stat().st_mtime
                yield Record(key, step, changed, evaluated(folder, benchmark, step))
    for benchmark, scores in scores_of(folder).items():
        for step in sorted(set(map(int, scores)) - set(folder.eval_steps(benchmark))):
            key = f"{benchmark} {step}"
            if key not in sent:
                yield Record(key, step, last, {f"eval/{benchmark}/accuracy": scores[str(step)]})


def evaluated(folder: RunFolder, benchmark: str, step: int) -> dict[str, float]:
    """mean@k as in the database (the mean over problems of the share of right samples), and tokens
    per response."""
    table = read_eval(folder, benchmark, step)
    by_problem = table.group_by("problem_id").aggregate([("correct", "mean")])
    columns = {"accuracy": by_problem.column("correct_mean"), "tokens": table.column("tokens")}
    values = {name: column.to_pylist() for name, column in columns.items() if len(column)}
    return {
        f"eval/{benchmark}/{name}": sum(column) / len(column) for name, column in values.items()
    }


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_BATCH = 500
"""Numbers per call of MLflow, which accepts at most 1,000."""


class TrackerError(UserError):
    """A tracker that cannot be used. `str(error)` is one line."""


@contextmanager
def _needs(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise TrackerError(
            f"track: {name} needs the package {name}, which is not installed "
            f"({install_command('trackers')})"
        ) from error


class Sink(Protocol):
    """One run at one tracker."""

    def log(self, records: Sequence[Record]) -> None:
        """Send these; they have been handed over when this returns."""

    def close(self, finished: bool, /) -> None:
        """No records follow for now, or ever if `finished`."""


class TensorBoard:
    """Event files, as TensorBoard's own writer makes them."""

    def __init__(self, _tracker: TrackerSection, run: RunFolder, folder: Path):
        with _needs("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer = SummaryWriter(str(folder / "tensorboard" / run.sweep / run.name))

    def log(self, records: Sequence[Record]) -> None:
        for record in records:
            for name, value in record.values.items():
                self._writer.add_scalar(
                    name, value, record.step, walltime=record.time, new_style=True
                )
        self._writer.flush()

    def close(self, _finished: bool, /) -> None:
        self._writer.close()


class Wandb:
    """One run, with the same id for every attempt; numbers are plotted over their `step`, in
    whatever order they arrive."""

    def __init__(self, tracker: WandbTracker, run: RunFolder, folder: Path):
        manifest = run.read_manifest()
        os.environ.setdefault("WANDB_SILENT", "true")
        os.environ.setdefault("WANDB_CONSOLE", "off")
        with _needs("wandb"):
            import wandb
        (folder / "wandb").mkdir(parents=True, exist_ok=True)
        name = f"{run.sweep}-{manifest['run_id']}"[:128]
        # The new folder of an offline run will hold everything, so earlier ones are not needed.
        former = (folder / "wandb/wandb").glob(f"offline-run-*-{escape(name)}")
        self._former = list(former) if tracker.mode == "offline" else []
        self._run = wandb.init(
            project=tracker.project,
            entity=tracker.entity,
            name=run.name,
            id=name,
            group=f"{run.sweep}/{manifest['variant']}"[:128],
            config=manifest["spec"],
            dir=str(folder / "wandb"),
            mode=tracker.mode,
            resume="allow" if tracker.mode == "online" else None,
            reinit="create_new",
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, records: Sequence[Record]) -> None:
        for record in records:
            self._run.log({"step": record.step, **record.values})

    def close(self, _finished: bool, /) -> None:
        self._run.finish()
        for path in self._former:
            shutil.rmtree(path, ignore_errors=True)


class Mlflow:
    """A run of an experiment, identified by its tag."""

    def __init__(self, tracker: MlflowTracker, run: RunFolder, _folder: Path):
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        with _needs("mlflow"):
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
        self._client = MlflowClient(tracking_uri=tracker.uri)
        self._metric = Metric
        name = tracker.experiment or run.sweep
        existing = self._client.get_experiment_by_name(name)
        experiment = existing.experiment_id if existing else self._client.create_experiment(name)
        tag = f"{run.sweep}/{run.name}"
        same = self._client.search_runs([experiment], f"tags.`rpg.run` = '{tag}'", max_results=1)
        if same:
            self._id = same[0].info.run_id
        else:
            manifest = run.read_manifest()
            tags = {"rpg.run": tag, "rpg.variant": manifest["variant"]}
            self._id = self._client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
            settings = [
                Param(key, str(value)[:500]) for key, value in flat(manifest["spec"]).items() if key
            ]
            for start in range(0, len(settings), 100):
                self._client.log_batch(self._id, params=settings[start : start + 100])

    def log(self, records: Sequence[Record]) -> None:
        metrics = [
            self._metric(
                re.sub(r"[^/\w.\- :]", "_", name), value, int(record.time * 1000), record.step
            )
            for record in records
            for name, value in record.values.items()
        ]
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._id, metrics=metrics[start : start + _BATCH])

    def close(self, finished: bool, /) -> None:
        if finished:
            self._client.set_terminated(self._id)


_SINKS: dict[str, Any] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": Mlflow,
}
registered("tracker", TRACKERS, _SINKS, "rpg/interop/tracking/trackers.py")


def open_sink(tracker: TrackerSection, run: RunFolder, folder: Path) -> Sink:
    """Open a run at a tracker, with the tracker's files below `folder`. Raises TrackerError: its
    package is not installed; StoreError: the run's manifest cannot be read. The package may raise
    anything else.
    """
    sink: Sink = _SINKS[tracker.type](tracker, run, folder)
    return sink


def starts_over(tracker: TrackerSection) -> bool:
    """Whether every session sends a run from its beginning: wandb cannot continue an offline
    folder, and would upload a run of several folders in pieces.
    """
    return isinstance(tracker, WandbTracker) and tracker.mode == "offline"
