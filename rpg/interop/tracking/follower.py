"""Follows the runs of a sweep and sends new numbers to their trackers."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.config.load import spec_of
from rpg.config.tracking import TrackerSection
from rpg.errors import UserError
from rpg.interop.tracking.trackers import Record, Sink, open_sink, records, starts_over
from rpg.store.atomic_files import atomic_write_json, read_json_object
from rpg.store.current import current_runs, is_imported
from rpg.store.layout import Layout
from rpg.store.run_folder import RunFolder

POLL_SECONDS = 2.0
RETRY_SECONDS = 30.0
"""The time after which a tracker that failed is tried again."""


def tracking_folder(layout: Layout) -> Path:
    """The folder of the trackers' files and of the records of what they have received."""
    return layout.home / "tracking"


@dataclass
class Follower:
    """Sends the new steps and evaluations of a sweep's runs; never raises because of a tracker."""

    layout: Layout
    sweep: str
    say: Callable[[str], None] = print
    trackers: tuple[TrackerSection, ...] | None = None
    """Used instead of the trackers that the runs configure."""
    imported: bool = False
    """Whether to include runs that were trained elsewhere."""
    _open: dict[tuple[str, str], Sink] = field(default_factory=dict)
    _failed: dict[tuple[str, str], float] = field(default_factory=dict)
    _sent: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Tracker -> its last error, until it works again."""

    def pass_over(self) -> int:
        """Send everything that has not been sent yet; returns the number of records."""
        count = 0
        for folder in current_runs(self.layout, self.sweep):
            if not folder.manifest_path.exists() or (is_imported(folder) and not self.imported):
                continue
            count += sum(self._follow(folder, tracker) for tracker in self._trackers(folder))
        return count

    def until(self, over: Callable[[], bool]) -> None:
        """Follow until `over()`, then send the rest."""
        while not over():
            self.pass_over()
            time.sleep(POLL_SECONDS)
        self._failed.clear()
        self.pass_over()
        self.close()

    def close(self) -> None:
        for (run, name), sink in self._open.items():
            try:
                sink.close(self.layout.run(self.sweep, run).done_path.exists())
            except Exception as error:  # noqa: BLE001 (a tracker's package may raise anything)
                self._warn(run, name, error)
        self._open.clear()

    def _trackers(self, folder: RunFolder) -> Sequence[TrackerSection]:
        if self.trackers is not None:
            return self.trackers
        try:
            return spec_of(folder).track
        except UserError:
            return ()

    def _follow(self, folder: RunFolder, tracker: TrackerSection) -> int:
        settings = tracker.model_dump(mode="json", exclude={"type"}, exclude_none=True)
        name = (
            f"{tracker.type} {json.dumps(settings, sort_keys=True)}" if settings else tracker.type
        )
        key = folder.name, name
        if time.monotonic() - self._failed.get(key, -RETRY_SECONDS) < RETRY_SECONDS:
            return 0
        try:
            keys = self._state(folder)[1].get(name)
            sent = self._sent.setdefault(key, set(keys) if isinstance(keys, list) else set())
            new: list[Record] = list(records(folder, sent))
            if not new:
                return 0
            if key not in self._open:
                if starts_over(tracker):
                    new = list(records(folder, set()))
                self._open[key] = open_sink(tracker, folder, tracking_folder(self.layout))
            self._open[key].log(new)
        except Exception as error:  # noqa: BLE001 (a tracker's package may raise anything)
            self._failed[key] = time.monotonic()
            self._open.pop(key, None)
            self._warn(folder.name, name, error)
            return 0
        sent |= {record.key for record in new}
        path, state = self._state(folder)
        atomic_write_json(path, {**state, name: sorted(sent)})
        self.failures.pop(name, None)
        return len(new)

    def _warn(self, run: str, name: str, error: Exception) -> None:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if self.failures.get(name) != first:
            self.failures[name] = first
            self.say(
                f"warning: {run}: {name}: {first}; will retry, and the training does not "
                "wait for it"
            )

    def _state(self, folder: RunFolder) -> tuple[Path, dict[str, Any]]:
        """The file of what each tracker has received of a run, and its contents."""
        path = tracking_folder(self.layout) / "state" / self.sweep / f"{folder.name}.json"
        return path, read_json_object(path) if path.exists() else {}
