"""The paths of results on disk.

    $RPG_HOME/runs/<sweep>/sweep.json, looks.jsonl
              runs/<sweep>/<run>/manifest.json, metrics-<attempt>.jsonl, lease.json, log.txt,
                                 checkpoints/step-000040/, evals/<benchmark>/step-000040.parquet,
                                 DONE.json | FAILED.json
              samples/<key>/   evaluations/<model>/<benchmark>.parquet   studies/<study>/
              analytics/   reports/<sweep>/   audits/   cache/

The folder of a run is the source of truth: its state, what it still needs and every number in the
database are derived from these files.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object
from rpg.store.run_folder import FORMAT, Inside, RunFolder, folder_name, folders, read_checked


def home(path: str | os.PathLike[str] | None = None) -> Path:
    """The data folder (absolute; not created): the argument, $RPG_HOME or ./rpg-data. StoreError:
    an unusable path."""
    advice = "choose another data folder with --home or RPG_HOME"
    folder = Path(path or os.environ.get("RPG_HOME") or "rpg-data")
    try:
        folder = folder.expanduser().absolute()
    except (RuntimeError, FileNotFoundError) as error:  # nobody's `~`, or no current folder
        raise StoreError(f"{folder}: {error}; {advice}") from None
    if "?" in str(folder):
        why = (
            f"{folder}: a path with '?' cannot be used (DuckDB would read the rest as options); "
            f"{advice}"
        )
        raise StoreError(why)
    existing = next(part for part in (folder, *folder.parents) if part.exists())
    if not existing.is_dir():
        raise StoreError(f"{folder}: {existing} is a file, not a folder; {advice}")
    return folder


def user_cache() -> Path:
    """The folder for what depends on installed packages alone, shared by all data folders (not
    created); in the data folder of a user without a home."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        return Path(cache) / "rpg-lab"
    try:
        return Path.home() / ".cache" / "rpg-lab"
    except RuntimeError:
        return home() / "cache" / "rpg-lab"


@dataclass(frozen=True)
class Layout:
    """The paths below one data folder."""

    home: Path

    runs = Inside("runs", "home")
    samples = Inside("samples", "home")
    evaluations = Inside("evaluations", "home")
    analytics = Inside("analytics", "home")
    audits = Inside("audits", "home")
    cache = Inside("cache", "home")

    @classmethod
    def at(cls, path: str | os.PathLike[str] | None = None) -> "Layout":
        return cls(home(path))

    def study_folder(self, study: str) -> Path:
        return self.home / "studies" / folder_name(study, "study")

    def reports(self, sweep: str) -> Path:
        return self.home / "reports" / folder_name(sweep, "sweep")

    def sweep_folder(self, sweep: str) -> Path:
        return self.runs / folder_name(sweep, "sweep")

    def run(self, sweep: str, run: str) -> "RunFolder":
        return RunFolder(self.sweep_folder(sweep) / folder_name(run, "run"))

    def sweeps(self) -> list[str]:
        """Names of the sweep folders on disk that this user may read, sorted."""
        return [
            name for name in folders(self.runs) if os.access(self.runs / name, os.R_OK | os.X_OK)
        ]

    def closed_sweeps(self) -> dict[str, str]:
        """Sweep folder that this user may not read -> a sentence about it."""
        closed = sorted(set(folders(self.runs)) - set(self.sweeps()))
        return {name: f"{self.runs / name} is left out: permission denied" for name in closed}

    def run_folders(self, sweep: str) -> list["RunFolder"]:
        """All run folders on disk, including superseded ones, and those that sweep.json plans
        (pending), sorted. rpg.store.current decides which of them are current."""
        names = set(folders(self.sweep_folder(sweep)))
        with contextlib.suppress(StoreError):
            names.update(folder_name(run, "run") for run in self.read_sweep(sweep)["runs"])
        return [self.run(sweep, name) for name in sorted(names)]

    def write_sweep(self, sweep: Mapping[str, Any]) -> None:
        """Write sweep.json ({name, source, baseline, created, runs, benchmarks}), unless it says
        the same already; `format` is added."""
        path = self.sweep_folder(str(sweep["name"])) / "sweep.json"
        value = {"format": FORMAT, **sweep}
        with contextlib.suppress(StoreError):
            if read_json_object(path) == value:
                return
        atomic_write_json(path, value)

    def write_flow_run(self, sweep: str, url: str | None, dashboard: str | None = None) -> None:
        """Store the URL of the flow run that works on a sweep, None if it has none; and that of
        the sweep's page in the dashboard that is served beside it."""
        value = {"url": url, "dashboard": dashboard}
        atomic_write_json(self.sweep_folder(sweep) / "flow-run.json", value)

    def flow_run_url(self, sweep: str) -> str | None:
        """The URL of the last flow run that worked on a sweep, if there is one."""
        return self._address(sweep, "url")

    def dashboard_url(self, sweep: str) -> str | None:
        """The sweep's page in the dashboard that was served beside that flow run."""
        return self._address(sweep, "dashboard")

    def _address(self, sweep: str, name: str) -> str | None:
        with contextlib.suppress(StoreError):
            url = read_json_object(self.sweep_folder(sweep) / "flow-run.json").get(name)
            return url if isinstance(url, str) and url.startswith(("http://", "https://")) else None
        return None

    def read_sweep(self, sweep: str) -> dict[str, Any]:
        path = self.sweep_folder(sweep) / "sweep.json"
        value = read_checked(path, ("name", "runs"))
        if not isinstance(value["runs"], list) or not all(
            isinstance(run, str) for run in value["runs"]
        ):
            raise StoreError(f"cannot read {path}: runs must be a list of folder names")
        return value

    def add_look(self, sweep: str, look: Mapping[str, Any]) -> None:
        """Append a look at the sweep's differences (rpg.stats.Look); nothing where the folder
        cannot be written."""
        path = self.sweep_folder(sweep) / "looks.jsonl"
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(look) + "\n")

    def read_looks(self, sweep: str) -> list[dict[str, Any]]:
        """The looks at the sweep's differences, oldest first."""
        path = self.sweep_folder(sweep) / "looks.jsonl"
        if not path.exists():
            return []
        looks = []
        for line in path.read_text("utf-8").split("\n"):
            with contextlib.suppress(ValueError):  # a line that was cut off
                looks.append(json.loads(line))
        return looks

    def write_data_notes(self, sweep: str, notes: list[str]) -> None:
        """Store notes for readers about the problems of a sweep (leaks, duplicates, other
        copies)."""
        atomic_write_json(self.sweep_folder(sweep) / "data.json", {"notes": notes})

    def read_data_notes(self, sweep: str) -> list[str]:
        """The notes; [] if there are none."""
        path = self.sweep_folder(sweep) / "data.json"
        notes = read_json_object(path).get("notes") if path.exists() else None
        return [str(note) for note in notes] if isinstance(notes, list) else []
