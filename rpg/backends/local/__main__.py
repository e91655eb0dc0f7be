"""python -m rpg.backends.local RUN_DIR: train the run whose manifest.json is in RUN_DIR.

Exit codes: 0 all steps are trained, 1 failed (FAILED.json says why in one line), 75 another process works on this
run, 130 and 143 stopped by a signal. Whatever ends it, `kill -9` included, the same command goes on from the last
checkpoint. The process ends when its parent does, unless --detached.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from rpg.guard import die_with_parent

_BEAT_SECONDS = 5.0
BUSY = 75


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rpg.backends.local", description=__doc__)
    parser.add_argument("run", type=Path, help="the run's folder, with its manifest.json")
    parser.add_argument("--home", type=Path, help="the data folder (default: three levels above RUN_DIR)")
    parser.add_argument("--detached", action="store_true", help="go on when the parent process ends")
    options = parser.parse_args(arguments)
    if not options.detached:
        die_with_parent()

    from rpg.store.files import StoreError
    from rpg.store.run import RunFolder

    folder = RunFolder(options.run.resolve())
    home = (options.home or folder.path.parents[2]).absolute()
    try:
        lock = os.open(folder.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
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
        folder.claim()
    except StoreError as error:
        print(error, file=sys.stderr)
        return BUSY if folder.lease() else _failed(folder, str(error))
    _end_on_signals(folder)
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(folder, stop), daemon=True, name="heartbeat")
    beat.start()
    code = _train(folder, home)
    stop.set()
    beat.join()
    folder.release()
    return code


def _train(folder, home: Path) -> int:
    say = lambda line: print(line, flush=True)  # noqa: E731
    try:
        from rpg.backends.local.model import ModelError
        from rpg.backends.local.run import TrainingError, train
        from rpg.config.errors import ConfigError
        from rpg.store.files import StoreError
        from rpg.tasks import DataError

        train(folder, home, say)
        return 0
    except (ConfigError, DataError, ModelError, StoreError, TrainingError) as error:
        return _failed(folder, str(error))
    except Exception as error:
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
        return _failed(folder, f"{type(error).__name__}: {line}".rstrip(": "))


def _failed(folder, message: str) -> int:
    """FAILED.json gets the line, the log the traceback."""
    if sys.exc_info()[0] is not None:
        traceback.print_exc()
    message = next((line.strip() for line in message.splitlines() if line.strip()), "unknown error")
    print(f"FAILED: {message}", file=sys.stderr, flush=True)
    steps = folder.attempts() and folder.read_metrics().rows
    try:
        folder.write_failed(message, step=steps[-1]["step"] if steps else None)
    except Exception as error:  # a full disk may not even take this
        print(f"FAILED.json cannot be written: {error}", file=sys.stderr, flush=True)
    return 1


def _beat(folder, stop: threading.Event) -> None:
    while not stop.wait(_BEAT_SECONDS):
        try:
            folder.beat()
        except Exception as error:  # a full disk: training itself will say so
            print(f"warning: no heartbeat: {error}", file=sys.stderr, flush=True)


def _end_on_signals(folder) -> None:
    """SIGTERM and SIGINT end the process at once: files are consistent at every moment."""

    def end(number, _frame):
        folder.lease_path.unlink(missing_ok=True)
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


if __name__ == "__main__":
    sys.exit(main())
