"""The process of one training on any back end: its lease, heartbeat, signals, exit code and error
message."""

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from types import FrameType

from rpg.errors import UserError
from rpg.store.atomic_files import StoreError
from rpg.store.run_folder import RunFolder
from rpg.store.run_writer import claim_run, release_run, renew_lease, write_failed
from rpg.system.processes import BUSY, KILL_AFTER, LOST, die_with_parent

Say = Callable[[str], None]
_BEAT_SECONDS = 5.0


class TrainingFailed(UserError):
    """Why a training ended, in one line; `log` is the file that says more, `tail` its last
    lines."""

    def __init__(self, message: str, log: Path | None = None, tail: list[str] | None = None):
        super().__init__(message)
        self.log = log
        self.tail = tail


class TrainingLost(TrainingFailed):
    """What runs the training ended it (its driver was killed, its Ray did not start): it can be
    started again."""


def run_training(
    name: str,
    description: str | None,
    train: Callable[[RunFolder, Path, Say], None],
    arguments: list[str] | None = None,
    end: Callable[[RunFolder], None] = lambda _folder: None,
) -> int:
    """Claim the run named on the command line, train it with `train(folder, home, say)` and return
    the exit code.

    `end(folder)` is called when a signal stops the process; it ends what `train` has started
    elsewhere.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=description)
    parser.add_argument("run", type=Path, help="the run's folder, with its manifest.json")
    parser.add_argument(
        "--on-node",
        action="store_true",
        help="work in the data folder; when the parent process ends, release the lease and exit",
    )
    options = parser.parse_args(arguments)
    parent = os.getppid()
    die_with_parent(signal.SIGTERM if options.on_node else signal.SIGKILL)

    folder = RunFolder(options.run.resolve())
    home = folder.path.parents[2]
    if options.on_node:
        os.chdir(home)
    try:
        lock = os.open(folder.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        print(f"{folder.path}: {error.strerror}; expected a run's folder", file=sys.stderr)
        return 2
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = (folder.lease() or {}).get("pid", "?")
        print(f"{folder.path}: already running, by pid {holder}", file=sys.stderr)
        return BUSY
    try:
        claim_run(folder)
    except StoreError as error:
        print(error, file=sys.stderr)
        return BUSY if folder.holder() else _failed(folder, error)
    _end_on_signals(folder, end)
    stop = Event()
    watched = parent if options.on_node else None
    beat = Thread(target=_beat, args=(folder, stop, end, watched), daemon=True, name="heartbeat")
    beat.start()
    code = 0
    try:
        train(folder, home, _say(folder))
    except Exception as error:  # noqa: BLE001 (a training may fail in any way, and FAILED.json says how)
        code = _failed(folder, error)
    stop.set()
    beat.join()
    release_run(folder)
    return code


def _say(folder: RunFolder) -> Say:
    """Prints a line; in a drill (rpg.config.sweep_spec.Drill) it ends the process, too."""

    def say(line: str) -> None:
        print(line, flush=True)

    step = os.environ.get(KILL_AFTER)
    return killing(say, folder, int(step)) if step else say


def killing(say: Say, folder: RunFolder, step: int) -> Say:
    """`say`, which ends this process as `kill -9` does once the run has done this step."""

    def say_and_end(line: str) -> None:
        say(line)
        rows = folder.read_metrics()
        if rows and rows[-1]["step"] >= step:
            os.kill(os.getpid(), signal.SIGKILL)

    return say_and_end


def _failed(folder: RunFolder, error: Exception) -> int:
    """FAILED.json gets one line, the log the traceback."""
    message = str(error).strip().partition("\n")[0].strip()
    if not isinstance(error, UserError):
        message = f"{type(error).__name__}: {message}".rstrip(": ")
    message = message or "unknown error"
    with contextlib.suppress(OSError):  # the log's disk may be what is full
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        print(f"FAILED: {message}", file=sys.stderr, flush=True)
    log, tail = (error.log, error.tail) if isinstance(error, TrainingFailed) else (None, None)
    try:
        rows = folder.read_metrics()
        step = rows[-1]["step"] if rows else None
        write_failed(folder, message, step=step, log=str(log) if log else None, tail=tail)
    except (OSError, UserError) as unwritten:  # a full disk may not even take this
        with contextlib.suppress(OSError):
            print(f"FAILED.json cannot be written: {unwritten}", file=sys.stderr, flush=True)
    return LOST if isinstance(error, TrainingLost) else 1


def _beat(
    folder: RunFolder, stop: Event, end: Callable[[RunFolder], None], parent: int | None
) -> None:
    while not stop.wait(_BEAT_SECONDS):
        if parent not in (
            None,
            os.getppid(),
        ):  # the signal has not reached Python's code for a whole beat
            with contextlib.suppress(OSError, UserError):
                release_run(folder)
            os._exit(143)
        try:
            if not renew_lease(
                folder
            ):  # another host began, too, and file locks do not reach there
                print("another process has taken over this run", file=sys.stderr, flush=True)
                end(folder)
                os._exit(BUSY)
        except (OSError, UserError) as error:  # a full disk: training itself will say so
            print(f"warning: no heartbeat: {error}", file=sys.stderr, flush=True)


def _end_on_signals(folder: RunFolder, end: Callable[[RunFolder], None]) -> None:
    """SIGTERM and SIGINT end the process at once: its files are consistent at every moment."""

    def stop(number: int, _frame: FrameType | None) -> None:
        end(folder)
        with contextlib.suppress(OSError, UserError):
            release_run(folder)
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
