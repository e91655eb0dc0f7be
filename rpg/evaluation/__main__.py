"""python -m rpg.evaluation SWEEP_DIR: evaluate the checkpoints of all runs of a sweep as they appear.

It ends when its standard input is closed (all trainings are over) and nothing that is there is owed; with --drain it
evaluates what is there and ends. Exit codes: 0 done, 1 it cannot go on, 75 another process evaluates this sweep. A
checkpoint that cannot be evaluated is a warning and a file `step-*.error.json`, and does not stop the rest.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from pathlib import Path

from rpg.guard import die_with_parent


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rpg.evaluation", description=__doc__)
    parser.add_argument("sweep", type=Path, help="the sweep's folder, with a folder per run")
    parser.add_argument("--home", type=Path, help="the data folder (default: two levels above SWEEP_DIR)")
    parser.add_argument("--drain", action="store_true", help="evaluate what is there, then end")
    parser.add_argument("--detached", action="store_true", help="go on when the parent process ends")
    options = parser.parse_args(arguments)
    if not options.detached:
        die_with_parent()

    from rpg.store.files import StoreError
    from rpg.store.layout import Layout

    sweep = options.sweep.resolve()
    home = (options.home or sweep.parents[1]).absolute()
    try:
        lock = os.open(sweep / ".evaluator", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        print(f"{sweep}: {error.strerror}; expected a sweep's folder", file=sys.stderr)
        return 1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print(f"{sweep}: already being evaluated by another process", file=sys.stderr)
        return 75

    from rpg.evaluation.worker import Evaluator, stdin_closed

    evaluator = Evaluator(Layout(home), sweep.name, lambda line: print(line, flush=True))
    try:
        evaluator.until((lambda: True) if options.drain else stdin_closed)
    except StoreError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
