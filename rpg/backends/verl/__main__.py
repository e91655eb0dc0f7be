"""python -m rpg.backends.verl RUN_DIR: train the run whose manifest.json is in RUN_DIR on verl.

Exit codes: 0 all steps are trained, 1 failed (FAILED.json says why in one line), 71 the same, but
by no fault of the run, 75 another process works on this run, 130 and 143 stopped by a signal, and
every process of the run with it. Whatever ends it, `kill -9` included, the same command goes on
from the last checkpoint.
"""

import sys
from pathlib import Path

from rpg.backends.training_process import Say, run_training
from rpg.store.run_folder import RunFolder


def main(arguments: list[str] | None = None) -> int:
    return run_training("rpg.backends.verl", __doc__, _train, arguments, _end)


def _train(folder: RunFolder, home: Path, say: Say) -> None:
    from rpg.backends.verl.launch import train  # noqa: PLC0415 (after the run is claimed, so that others see that it is)

    train(folder, home, say)


def _end(folder: RunFolder) -> None:
    from rpg.backends.verl.launch import end  # noqa: PLC0415 (as above)

    end(folder)


if __name__ == "__main__":
    sys.exit(main())
