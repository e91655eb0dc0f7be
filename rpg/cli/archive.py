"""`rpg push` to an object storage, and what other commands fetch from $RPG_ARCHIVE where it is not here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rpg.cli.app import complain, console, refuse, say, size_text

if TYPE_CHECKING:
    from rpg.store import Layout, RunFolder
    from rpg.store.archive import Archive

VARIABLE = "RPG_ARCHIVE"


@contextmanager
def _opened(url: str) -> Iterator[Archive]:
    """The archive at a URL, with a line of bytes and rate for each run that is copied."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from rpg.store.archive import Archive, Tell

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def line(name: str) -> Tell:
            task = progress.add_task(name)
            return lambda done, total: progress.update(task, completed=done, total=total)

        yield Archive(url, line)


def push_runs(layout: Layout, words: Sequence[str]) -> int:
    """Archive the finished runs of what `words` name after the URL, or all of them. Returns the exit code."""
    from rpg.store.notes import place

    has_url = bool(words) and "://" in words[0]
    url, names = words[0] if has_url else os.environ.get(VARIABLE), words[has_url:]
    if not url:
        refuse(f"name the archive, e.g. rpg push s3://bucket/folder, or set {VARIABLE} to it")
    paths = [place(layout, name) for name in names or layout.sweeps()]
    sweeps = [(path, layout.run_folders(path.name)) for path in paths if path.parent == layout.runs]
    runs = [layout.run(path.parent.name, path.name) for path in paths if path.parent != layout.runs]
    left = archived(url, [*runs, *(run for _, members in sweeps for run in members)])
    for name, why in left.items():
        complain(f"! {name} is left out: {why}", "yellow")
    return 1 if left else 0


def archived(url: str, runs: Iterable[RunFolder]) -> dict[str, str]:
    """Copy the finished runs to an archive; returns the others, each with the reason."""
    from rpg.store.run_folder import pending_evaluations

    why = {run: "" if run.done_path.exists() else run.state() for run in runs}
    why |= {run: "evaluations are missing" for run in why if not why[run] and pending_evaluations(run)}
    done = [run for run in why if not why[run]]
    with _opened(url) as archive:
        for sweep in {run.path.parent: None for run in done}:
            archive.push(sweep)
        sizes = [archive.push(run.path) for run in done]
    sent = [size for size in sizes if size]
    say(f"{url}: {len(sent)} runs sent ({size_text(sum(sent))}), {len(done) - len(sent)} were there already")
    return {f"{run.sweep}/{run.name}": reason for run, reason in why.items() if reason}


def fetch_results(layout: Layout) -> None:
    """Copy the runs that are in $RPG_ARCHIVE, if it is set, and not here, without their checkpoints."""
    from rpg.store import StoreError

    if url := os.environ.get(VARIABLE):
        try:
            with _opened(url) as archive:
                runs = archive.runs()
                count = sum(archive.fetch(layout, *run) for run in runs)
            say(f"{url}: {count} of its {len(runs)} runs were not here and are fetched, without checkpoints")
        except StoreError as error:  # what is here can be looked at all the same
            complain(f"! {error}", "yellow")


def fetched(layout: Layout, checkpoint: str) -> str:
    """The folder of SWEEP/RUN/step-000040, or of such a path in the data folder, from $RPG_ARCHIVE if it is not here;
    anything else as it is."""
    name = checkpoint.removeprefix(f"{layout.runs}/").replace("/checkpoints/", "/")
    if not (match := re.fullmatch(r"([^/]+)/([^/]+)/(step-\d+)/?", name)):
        return checkpoint
    sweep, run, step = match.groups()
    folder = layout.run(sweep, run).checkpoints / step
    if not folder.exists() and (url := os.environ.get(VARIABLE)):
        with _opened(url) as archive:
            archive.fetch(layout, sweep, run, step)
    return str(folder) if folder.exists() else checkpoint
