"""python -m rpg.backends.local RUN_DIR: train the run whose manifest.json is in RUN_DIR.

Exit codes: 0 all steps are trained, 1 failed (FAILED.json says why in one line), 75 another process
works on this run, 130 and 143 stopped by a signal. Whatever ends it, `kill -9` included, the same
command goes on from the last checkpoint. The process ends when its parent does.
"""

import sys
from pathlib import Path

from rpg.backends.training_process import Say, TrainingFailed, run_training
from rpg.errors import is_no_memory
from rpg.store.run_folder import RunFolder
from rpg.system.processes import quick_imports


def main(arguments: list[str] | None = None) -> int:
    return run_training("rpg.backends.local", __doc__, _train, arguments)


def _train(folder: RunFolder, home: Path, say: Say) -> None:
    with quick_imports():  # torch: after the run is claimed, so that others see that it is
        from rpg.backends.local.training_loop import train  # noqa: PLC0415 (as above)

    try:
        train(folder, home, say)
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_no_memory(error):
            raise
        why = (
            "not enough memory outside of a step: for the model, the optimizer's moments or a "
            "checkpoint"
        )
        raise TrainingFailed(why) from error


if __name__ == "__main__":
    sys.exit(main())
