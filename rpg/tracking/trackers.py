"""The trackers behind one interface: open a run, log records, close. Their packages are imported when used."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import Any, Protocol

from rpg.config.section import registered
from rpg.config.tracking import TRACKERS, MlflowTracker, TensorBoardTracker, TrackerSection, WandbTracker
from rpg.errors import UserError
from rpg.store.current import flat
from rpg.tracking.records import Record, RunInfo

_BATCH = 500
"""Numbers per call of MLflow, which accepts at most 1,000."""


class TrackerError(UserError):
    """A tracker that cannot be used. `str(error)` is one line."""


class Sink(Protocol):
    """One run at one tracker."""

    def log(self, records: Sequence[Record]) -> None:
        """Send these; they have been handed over when this returns."""

    def close(self, finished: bool, /) -> None:
        """No records follow for now, or ever if `finished`."""


class TensorBoard:
    """Event files, as TensorBoard's own writer makes them."""

    def __init__(self, _tracker: TensorBoardTracker, run: RunInfo, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise missing("tensorboard", "tensorboard") from error
        self._writer = SummaryWriter(str(folder / "tensorboard" / run.sweep / run.run))

    def log(self, records: Sequence[Record]) -> None:
        for record in records:
            for name, value in record.values.items():
                self._writer.add_scalar(name, value, record.step, walltime=record.time, new_style=True)
        self._writer.flush()

    def close(self, _finished: bool, /) -> None:
        self._writer.close()


class Wandb:
    """One run, with the same id for every attempt; numbers are plotted over their `step`, in whatever order they arrive."""

    def __init__(self, tracker: WandbTracker, run: RunInfo, folder: Path):
        os.environ.setdefault("WANDB_SILENT", "true")
        os.environ.setdefault("WANDB_CONSOLE", "off")
        try:
            import wandb
        except ImportError as error:
            raise missing("wandb", "wandb") from error
        (folder / "wandb").mkdir(parents=True, exist_ok=True)
        name = f"{run.sweep}-{run.run_id}"[:128]
        self._former: list[Path] = []
        if tracker.mode == "offline":  # the new folder will hold everything, so earlier ones are not needed
            self._former = list((folder / "wandb/wandb").glob(f"offline-run-*-{escape(name)}"))
        self._run = wandb.init(
            project=tracker.project,
            entity=tracker.entity,
            name=run.run,
            id=name,
            group=f"{run.sweep}/{run.variant}"[:128],
            config=run.settings,
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

    def __init__(self, tracker: MlflowTracker, run: RunInfo, _folder: Path):
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
        except ImportError as error:
            raise missing("mlflow", "mlflow") from error
        self._client, self._metric = MlflowClient(tracking_uri=tracker.uri), Metric
        name = tracker.experiment or run.sweep
        existing = self._client.get_experiment_by_name(name)
        experiment = existing.experiment_id if existing else self._client.create_experiment(name)
        tag = f"{run.sweep}/{run.run}"
        same = self._client.search_runs([experiment], f"tags.`rpg.run` = '{tag}'", max_results=1)
        if same:
            self._id = same[0].info.run_id
        else:
            tags = {"rpg.run": tag, "rpg.variant": run.variant}
            self._id = self._client.create_run(experiment, run_name=run.run, tags=tags).info.run_id
            settings = [Param(key, str(value)[:500]) for key, value in flat(run.settings).items() if key]
            for start in range(0, len(settings), 100):
                self._client.log_batch(self._id, params=settings[start : start + 100])

    def log(self, records: Sequence[Record]) -> None:
        metrics = [
            self._metric(name, value, int(record.time * 1000), record.step)
            for record in records
            for name, value in record.values.items()
        ]
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._id, metrics=metrics[start : start + _BATCH])

    def close(self, finished: bool, /) -> None:
        if finished:
            self._client.set_terminated(self._id)


_SINKS: dict[type[TrackerSection], Any] = {
    TensorBoardTracker: TensorBoard,
    WandbTracker: Wandb,
    MlflowTracker: Mlflow,
}
registered("tracker", TRACKERS.values(), _SINKS, "rpg/tracking/trackers.py")


def open_sink(tracker: TrackerSection, run: RunInfo, folder: Path) -> Sink:
    """Open a run at a tracker, with its files below `folder`.

    Raises:
        TrackerError: its package is not installed. The package may raise anything else.
    """
    sink: Sink = _SINKS[type(tracker)](tracker, run, folder)
    return sink


def starts_over(tracker: TrackerSection) -> bool:
    """Whether every session sends a run from its beginning: wandb cannot continue an offline folder, and would upload a run
    of several folders in pieces.
    """
    return isinstance(tracker, WandbTracker) and tracker.mode == "offline"


def missing(name: str, package: str) -> TrackerError:
    return TrackerError(
        f"track: {name} needs the package {package}, which is not installed (pip install 'rpg-lab[trackers]')"
    )
