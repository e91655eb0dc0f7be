"""Finished runs in an object storage, and back from there: of whatever fsspec reaches (s3://,
gs://, file://).

    URL/<sweep>/<run>.json        {"files": {name: {bytes, sha256}}}, written last
                <run>/<sha256>    the contents
        <sweep>/.sweep.json, .sweep/   the same for the files beside the runs, as the last push left
        them

Contents are stored under their digests. So what is there need not be sent again, and a push that is
killed, or that brings a newer state of a run, leaves whole what an earlier record names.
"""

import glob
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from rpg.errors import first_line, install_command
from rpg.store.atomic_files import StoreError, atomic_folder, atomic_write_bytes
from rpg.store.checkpoints import digest
from rpg.store.layout import Layout

Line = Callable[[str], Callable[..., None]]
"""Name of a run -> what is told how many of its bytes are copied (completed, total, visible: not
all yet)."""
_BESIDE = ".sweep"
_OF_PROCESSES_HERE = ("lease.json", "waiting.json", "flow-run.json")
_CHECKPOINT = re.compile(r"checkpoints/step-[^/]*/")


class Archive:
    """The archive at a URL; `line` makes a line of progress for copies. Raises StoreError: out of
    reach, or refused."""

    def __init__(self, url: str, line: Line = lambda _: lambda **_: None) -> None:
        from fsspec import url_to_fs

        self.url = url.rstrip("/")
        self._line = line
        options = {"auto_mkdir": True} if url.startswith("file:") else {}
        try:
            self._fs, root = url_to_fs(self.url, use_listings_cache=False, **options)
        except ImportError as error:  # it names the package
            install = (
                f"; install it with: {install_command('archive')}" if url.startswith("s3:") else ""
            )
            raise StoreError(f"{url}: {first_line(error)}{install}") from error
        except ValueError as error:
            raise StoreError(
                f"{url}: {first_line(error)}; expected e.g. s3://bucket/folder"
            ) from error
        self._root = root.rstrip("/")

    def push(self, folder: Path) -> int:
        """Copy a finished run, or the files of a sweep beside its runs; returns the number of bytes
        that were sent."""
        is_run = (folder / "manifest.json").exists()
        where = f"{folder.parent.name}/{folder.name}" if is_run else f"{folder.name}/{_BESIDE}"
        files = {
            path.relative_to(folder).as_posix(): digest(path) for path in _files(folder, is_run)
        }
        before = self._record(where, anew=True)
        inside = f"{self._root}/{where}"
        sent = 0
        with self._reached():
            entries = self._fs.find(inside, detail=True).values()
        there = {(entry["name"].rpartition("/")[2], entry["size"]) for entry in entries}
        new = {
            e["sha256"]: name for name, e in files.items() if (e["sha256"], e["bytes"]) not in there
        }
        progress = self._progress(where, sum(files[name]["bytes"] for name in new.values()))
        for sha256, name in new.items():
            with self._reached():
                self._fs.put_file(str(folder / name), f"{inside}/{sha256}", callback=progress)
            sent += files[name]["bytes"]
            progress.absolute_update(sent)
            if not is_run and digest(folder / name) != (entry := files[name]):  # a growing log
                files = {n: before.get(n, {}) if e == entry else e for n, e in files.items()}
        files = {name: entry for name, entry in files.items() if entry}
        if is_run and before.get("DONE.json") == files["DONE.json"]:
            files = {
                **before,
                **files,
            }  # what was removed here since, a checkpoint say, stays there
        if files != before:
            # A transaction of file:// copies what it wrote in /tmp.
            write: Any = atomic_write_bytes if "file" in self._fs.protocol else self._fs.pipe_file
            with self._reached(), self._fs.transaction:
                write(f"{inside}.json", json.dumps({"files": files}, indent=1).encode())
        return sent

    def runs(self) -> list[tuple[str, str]]:
        """(sweep, run) of everything there."""
        with self._reached():
            paths = [
                PurePosixPath(path) for path in self._fs.glob(f"{glob.escape(self._root)}/*/*.json")
            ]
        return sorted(
            (path.parent.name, path.stem) for path in paths if not path.name.startswith(".")
        )

    def fetch(self, layout: Layout, sweep: str, run: str, step: str = "") -> bool:
        """Copy a run without its checkpoints, or with `step` (step-000040) only that checkpoint, to
        the data folder: whole or not at all, and only if that folder is not here. Returns whether
        it was copied. Raises StoreError also if a file is damaged there, or cannot be written here.
        """
        folder = layout.run(sweep, run)
        where = f"{sweep}/{run}"
        if step:
            return self._bring(where, folder.checkpoints / step, f"checkpoints/{step}/")
        self._bring(f"{sweep}/{_BESIDE}", layout.sweep_folder(sweep))
        return self._bring(where, folder.path)

    def _bring(self, where: str, target: Path, part: str = "") -> bool:
        files = {} if target.exists() else self._record(where)
        files = {
            n: files[n] for n in files if (n.startswith(part) if part else not _CHECKPOINT.match(n))
        }
        if not files:
            return False
        progress = self._progress(where, sum(entry["bytes"] for entry in files.values()))
        done = 0
        try:
            with atomic_folder(target) as build:
                for name, entry in files.items():
                    path = build / name.removeprefix(part)
                    source = f"{self._root}/{where}/{entry['sha256']}"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with self._reached():
                        self._fs.get_file(source, str(path), callback=progress)
                    if digest(path) != entry:
                        raise StoreError(
                            f"{self.url}/{where}: {name} is damaged there (its digest differs)"
                        )
                    done += entry["bytes"]
                    progress.absolute_update(done)
        except StoreError:
            if not target.exists():  # else another process was faster
                raise
        return True

    def _progress(self, where: str, total: int) -> Any:
        from fsspec.callbacks import Callback

        tell = self._line(where)
        return Callback(
            hooks={"tell": lambda _, at: tell(completed=at, total=total, visible=at < total)}
        )

    def _record(self, where: str, anew: bool = False) -> dict[str, dict[str, Any]]:
        """The files of a run; {} if the archive does not have it, or has a damaged record that is
        written `anew`. Whoever may write there could have written this, so no name may lead out of
        the run's folder."""
        path = f"{self._root}/{where}.json"
        with self._reached():
            record = self._fs.cat_file(path) if self._fs.exists(path) else b'{"files": {}}'
        try:
            files: dict[str, dict[str, Any]] = json.loads(record)["files"]
            for name, entry in files.items():
                parts = PurePosixPath(name).parts
                inside = parts and parts[0] != "/" and ".." not in parts and "\0" not in name
                if (
                    not inside
                    or not re.fullmatch("[0-9a-f]{64}", entry["sha256"])
                    or entry["bytes"] < 0
                ):
                    raise ValueError(f"{name!r} is not a file of a run")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if anew:
                return {}
            raise StoreError(f"{self.url}/{where}.json: cannot be used ({error})") from error
        return files

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of classes that each package has for itself
            raise StoreError(f"{self.url}: {first_line(error)}") from error


def _files(folder: Path, is_run: bool) -> Iterator[Path]:
    for path in sorted(folder.rglob("*") if is_run else folder.glob("*")):
        hidden = any(
            part.startswith(".") or ".corrupt" in part for part in path.relative_to(folder).parts
        )
        if path.is_file() and not hidden and path.name not in _OF_PROCESSES_HERE:
            yield path
