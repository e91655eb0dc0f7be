"""python -m rpg.backends.verl RUN_DIR: train the run whose manifest.json is in RUN_DIR on verl.

Exit codes: 0 all steps are trained, 1 failed (FAILED.json says why in one line), 71 the same, but by no
fault of the run, 75 another process works on this
run, 130 and 143 stopped by a signal, and every process of the run with it. Whatever ends it, `kill -9` included, the
same command goes on from the last checkpoint, or follows the Ray job that is still running.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rpg.backends.training_process import Say, run_training

if TYPE_CHECKING:
    from rpg.backends.verl.launch import Launcher
    from rpg.store.run_folder import RunFolder


def main(arguments: list[str] | None = None) -> int:
    launchers: list[Launcher] = []

    def train(folder: RunFolder, home: Path, say: Say) -> None:
        from rpg.backends.verl.launch import Launcher  # noqa: PLC0415 (after the run is claimed, so that others see that it is)

        launchers.append(Launcher())
        launchers[0].train(folder, home, say)

    def end() -> None:
        for launcher in launchers:
            launcher.stop()

    return run_training("rpg.backends.verl", __doc__, train, arguments, end)


if __name__ == "__main__":
    sys.exit(main())
