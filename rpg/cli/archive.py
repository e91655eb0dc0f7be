"""`rpg push` to an object storage, and what other commands fetch from $RPG_ARCHIVE where it is not
here."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rpg.cli.app import complain, console, refuse, say, size_text
from rpg.store import Layout, RunFolder, StoreError
from rpg.store.archive import Archive
from rpg.store.notes import place
from rpg.store.run_folder import pending_evaluations

VARIABLE = "RPG_ARCHIVE"


@contextmanager
def _opened(url: str) -> Iterator[Archive]:
    """The archive at a URL, with a line of bytes and rate for what is being copied."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield Archive(
            url, lambda name: partial(progress.update, progress.add_task(name, visible=False))
        )


def push_runs(layout: Layout, words: Sequence[str]) -> int:
    """Archive the finished runs of what `words` name after the URL, or all of them. Returns the
    exit code."""
    has_url = bool(words) and "://" in words[0]
    url = words[0] if has_url else os.environ.get(VARIABLE)
    names = words[has_url:]
    if not url:
        hub = (
            "for the hub name a checkpoint and a repository: rpg push SWEEP/RUN/step-000040 "
            "me/my-model"
        )
        refuse(
            f"name the archive, e.g. rpg push s3://bucket/folder, or set {VARIABLE} to it; {hub}"
        )
    runs: list[RunFolder] = []
    for path in [place(layout, name) for name in names or layout.sweeps()]:
        is_sweep = path.parent == layout.runs
        runs += (
            layout.run_folders(path.name) if is_sweep else [layout.run(path.parent.name, path.name)]
        )
    left = archived(url, runs)
    for name, why in left.items():
        complain(f"! {name} is left out: {why}", "yellow")
    return 1 if left else 0


def archived(url: str, runs: Iterable[RunFolder]) -> dict[str, str]:
    """Copy the finished runs to an archive; returns the others, each with the reason."""
    done = []
    left_out: dict[str, str] = {}
    for run in dict.fromkeys(runs):  # one may be named twice
        if not run.done_path.exists():
            left_out[f"{run.sweep}/{run.name}"] = run.state()
        elif pending_evaluations(run):
            left_out[f"{run.sweep}/{run.name}"] = "evaluations are missing"
        else:
            done.append(run)
    with _opened(url) as archive:
        for sweep in dict.fromkeys(run.path.parent for run in done):
            archive.push(sweep)
        sizes = [archive.push(run.path) for run in done]
    there = sizes.count(0)
    say(f"{url}: runs sent: {len(sizes) - there} ({size_text(sum(sizes))}); there already: {there}")
    return left_out


def fetch_results(layout: Layout) -> None:
    """Copy the runs that are in $RPG_ARCHIVE, if it is set, and not here, without their
    checkpoints."""
    url = os.environ.get(VARIABLE)
    if url:
        try:
            with _opened(url) as archive:
                runs = archive.runs()
                new = 0
                damaged = 0
                for run in runs:
                    try:
                        new += archive.fetch(layout, *run)
                    except StoreError as error:  # those after it are whole
                        complain(f"! {error}", "yellow")
                        damaged += 1
            left = f"; {damaged} cannot be" if damaged else ""
            say(
                f"{url}: runs fetched, without checkpoints: {new} of {len(runs)}{left}; the "
                "others are here"
            )
        except StoreError as error:  # what is here can be looked at all the same
            complain(f"! {error}", "yellow")


def fetched(layout: Layout, checkpoint: str) -> str:
    """The folder of SWEEP/RUN/step-000040, or of its path, from $RPG_ARCHIVE if it is not here;
    anything else as it is."""
    name = checkpoint.removeprefix(f"{layout.runs}/").replace("/checkpoints/", "/")
    match = re.fullmatch(r"([^/]+)/([^/]+)/(step-\d+)/?", name)
    if not match:
        return checkpoint
    folder = layout.run(match[1], match[2]).checkpoints / match[3]
    if not folder.exists() and (url := os.environ.get(VARIABLE)):
        with _opened(url) as archive:
            archive.fetch(layout, *match.groups())
    return str(folder) if folder.exists() else checkpoint
