"""Where results lie on disk.

    $RPG_HOME/runs/<sweep>/sweep.json
              runs/<sweep>/<run>/manifest.json, metrics-<attempt>.jsonl, lease.json, log.txt,
                                 checkpoints/step-000040/, evals/<benchmark>/step-000040.parquet,
                                 DONE.json | FAILED.json
              analytics/   reports/<sweep>/   audits/   cache/

The folder of a run is the truth about it: its state, what it still needs and every number in the database are
derived from these files.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpg.store.atomic_files import StoreError, atomic_write_json, read_json_object
from rpg.store.run_folder import FORMAT, Metrics, RunFolder, folder_name, folders, read_checked

__all__ = ["Layout", "Metrics", "RunFolder", "StoreError", "home", "user_cache"]


def home(path: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: the argument, else $RPG_HOME, else ./rpg-data (absolute; not created).

    Raises:
        StoreError: nothing could ever lie there.
    """
    found = Path(path or os.environ.get("RPG_HOME") or "rpg-data").expanduser().absolute()
    advice = "choose another data folder with --home or RPG_HOME"
    if "?" in str(found):
        raise StoreError(
            f"{found}: a path with '?' cannot be used (DuckDB takes the rest for options); {advice}"
        )
    there = next(part for part in (found, *found.parents) if part.exists())
    if not there.is_dir():
        raise StoreError(f"{found}: {there} is a file, not a folder; {advice}")
    return found


def user_cache() -> Path:
    """What every data folder would otherwise make for itself and follows from installed packages alone (not created)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rpg-lab"


@dataclass(frozen=True)
class Layout:
    """The paths below one data folder."""

    home: Path

    @classmethod
    def at(cls, path: str | os.PathLike[str] | None = None) -> "Layout":
        return cls(home(path))

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    @property
    def analytics(self) -> Path:
        return self.home / "analytics"

    @property
    def audits(self) -> Path:
        return self.home / "audits"

    @property
    def cache(self) -> Path:
        return self.home / "cache"

    def reports(self, sweep: str) -> Path:
        return self.home / "reports" / folder_name(sweep, "sweep")

    def sweep_folder(self, sweep: str) -> Path:
        return self.runs / folder_name(sweep, "sweep")

    def run(self, sweep: str, run: str) -> "RunFolder":
        return RunFolder(self.sweep_folder(sweep) / folder_name(run, "run"))

    def sweeps(self) -> list[str]:
        """Names of the sweep folders on disk, sorted."""
        return folders(self.runs)

    def run_folders(self, sweep: str) -> list["RunFolder"]:
        """All run folders on disk, superseded ones too, and those that sweep.json promises (pending), sorted.

        Which of them a sweep consists of says rpg.store.current.
        """
        names = set(folders(self.sweep_folder(sweep)))
        with contextlib.suppress(StoreError):
            names.update(folder_name(run, "run") for run in self.read_sweep(sweep)["runs"])
        return [self.run(sweep, name) for name in sorted(names)]

    def write_sweep(self, sweep: Mapping[str, Any]) -> None:
        """Write sweep.json ({name, source, baseline, created, runs, benchmarks}); `format` is added."""
        path = self.sweep_folder(str(sweep["name"])) / "sweep.json"
        atomic_write_json(path, {"format": FORMAT, **sweep})

    def write_flow_run(self, sweep: str, url: str | None) -> None:
        """Remember the page of the flow run that works on a sweep; None where it has no page."""
        atomic_write_json(self.sweep_folder(sweep) / "flow-run.json", {"url": url})

    def flow_run_url(self, sweep: str) -> str | None:
        """The page of the flow run that worked on a sweep last, where there is one."""
        try:
            url = read_json_object(self.sweep_folder(sweep) / "flow-run.json").get("url")
        except StoreError:
            return None
        return url if isinstance(url, str) and url.startswith(("http://", "https://")) else None

    def read_sweep(self, sweep: str) -> dict[str, Any]:
        path = self.sweep_folder(sweep) / "sweep.json"
        value = read_checked(path, ("name", "runs"))
        if not isinstance(value["runs"], list) or not all(isinstance(run, str) for run in value["runs"]):
            raise StoreError(f"cannot read {path}: runs must be a list of folder names")
        return value

    def write_data_notes(self, sweep: str, notes: list[str]) -> None:
        """What readers of a sweep's results should know about its problems (leaks, duplicates, other copies)."""
        atomic_write_json(self.sweep_folder(sweep) / "data.json", {"notes": notes})

    def read_data_notes(self, sweep: str) -> list[str]:
        """The notes, [] where there are none."""
        path = self.sweep_folder(sweep) / "data.json"
        notes = read_json_object(path).get("notes") if path.exists() else None
        return [str(note) for note in notes] if isinstance(notes, list) else []
