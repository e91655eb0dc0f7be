"""The evaluator of a sweep as a child process, and what a run's end is: trained, evaluated, or never to be."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flows.machine import programs
from flows.machine.children import Children
from flows.sweep.context import StageFailed
from rpg.store import Layout, RunFolder, StoreError
from rpg.store.atomic_files import read_json_object
from rpg.store.checkpoints import checkpoints_of
from rpg.store.run_folder import pending_evaluations
from rpg.store.run_writer import write_done, write_failed

EVALUATION_LOG = "evaluation.log"
EVALUATOR_TRIES = 3
_TAIL_BYTES = 8192


def finish(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """Write DONE.json for each run that is trained and evaluated; returns those that are done or failed."""
    over = []
    for folder in folders:
        if folder.done_path.exists() or folder.failed_path.exists():
            over.append(folder)
            continue
        if folder.state() == "running":
            continue
        manifest = folder.read_manifest()
        if not folder.checkpoint(manifest["steps"]).exists() or pending_evaluations(folder):
            continue
        rows = folder.read_metrics().rows
        seconds = sum(row.get("seconds_step", 0.0) for row in rows)
        with contextlib.suppress(StoreError, OSError):  # `rpg gc` does it another time
            checkpoints_of(folder).settle()
        write_done(folder, seconds=seconds, attempts=len(folder.attempts()))
        over.append(folder)
    return over


def fail_unevaluated(folders: Sequence[RunFolder]) -> None:
    """When no evaluation will come any more, a trained run that still lacks one has failed, and says why."""
    for folder in folders:
        if folder.done_path.exists() or folder.failed_path.exists():
            continue
        missing = pending_evaluations(folder)
        if not missing or not folder.checkpoint(folder.read_manifest()["steps"]).exists():
            continue
        benchmark, step = missing[0]
        record = folder.eval_path(benchmark, step).with_suffix(".error.json")
        try:
            why = read_json_object(record)["error"]
        except (StoreError, KeyError):
            why = f"step {step} was not evaluated on {benchmark}"
        write_failed(folder, str(why), step=step, log=str(folder.path.parent / EVALUATION_LOG))


def run_evaluator(
    layout: Layout,
    sweep: str,
    children: Children,
    trainings_over,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """One evaluation process for all runs; it is told by closing its input that no more checkpoints will come.

    `tell` gets the last line of its log now and then.
    """
    log = layout.sweep_folder(sweep) / EVALUATION_LOG
    for attempt in range(1, EVALUATOR_TRIES + 1):
        child = children.start(
            programs.EVALUATOR, layout.sweep_folder(sweep), log=log, stdin=subprocess.PIPE
        )
        while child.poll() is None:
            if not child.stdin.closed and trainings_over.wait(0.2):
                child.stdin.close()
            elif child.stdin.closed:
                time.sleep(0.2)
            tell(last_line(log))
        child.stdin.close()
        code = children.wait(child)
        if code == 0:
            return
        if attempt == EVALUATOR_TRIES:
            raise StageFailed(f"evaluation ended with code {code} {EVALUATOR_TRIES} times; its log: {log}")


def last_line(path: Path) -> str:
    """The last line with text in a log, "" while there is none: a child's last word is its one-line error."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
