"""python -m tests.evaluation.counted_engine LOG KILL ARGUMENTS...: `rpg` with a log of every sample that its engine draws.

In the batch with the number KILL (0: never) the process kills itself.
"""

import os
import signal
import sys

from rpg.evaluation import graded_samples
from rpg.evaluation.engines.local import LocalEngine

ROWS = 8


def count(log, kill=0, patch=setattr):
    """Have engines append a line per sample to `log` before they draw it, and draw and store few samples at a time."""
    complete, decode, batches = LocalEngine.complete, LocalEngine._decode, []

    def few(self, requests):
        self.rows = ROWS
        return complete(self, requests)

    def counted(self, requests):
        batches.append(len(requests))
        with open(log, "a") as file:
            file.write("".join(f"{request.key[2]} {request.key[3]}\n" for request in requests))
        if len(batches) == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return decode(self, requests)

    patch(LocalEngine, "complete", few)
    patch(LocalEngine, "_decode", counted)
    patch(graded_samples, "_FLUSH_ROWS", ROWS)


if __name__ == "__main__":
    from rpg.cli import main

    log, kill, *arguments = sys.argv[1:]
    count(log, int(kill))
    sys.argv = ["rpg", *arguments]
    main()
